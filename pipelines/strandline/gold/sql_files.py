"""Reader of gold's SQL files. It needs no Spark."""

from __future__ import annotations

from pathlib import Path

from strandline.errors import ConfigurationError
from strandline.gold.graph import Graph, parse


def load_graph(sql_dir: Path | None) -> Graph:
    """Read and parse every ``*.sql`` file of *sql_dir*. None: an empty graph.

    I/O: reads the files; writes nothing.

    Raises:
        ConfigurationError: The folder or a file cannot be read, or `parse` finds a problem.
    """
    if sql_dir is None:
        return parse({})
    try:
        files = {str(file): file.read_text(encoding="utf-8-sig") for file in sql_dir.iterdir() if file.suffix == ".sql"}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "a file is not UTF-8"
        raise ConfigurationError(
            f"gold's SQL files in {sql_dir} cannot be read: {why}", next_step="correct gold.sql_dir"
        ) from None
    return parse(files)


def node_names(sql_dir: Path | None) -> set[str]:
    """Return the names that the ``*.sql`` files of *sql_dir* define, also if a file does not parse.

    I/O: lists the folder. None, or a folder that is not there: no names.
    """
    return {file.stem for file in sql_dir.glob("*.sql")} if sql_dir is not None else set()
