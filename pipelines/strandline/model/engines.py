"""Engines that write tables: their names in results, commands, pages and documentation. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from strandline.model.tables import LAYERS, Layer

SPARK: Final = "Spark"
DELTA_RS: Final = "delta-rs"
"""Also the engine of commits that this process makes in the place of delta-rs, which cannot make them."""
_NAMES: Final = {"apache-spark": SPARK, "databricks-runtime": SPARK, "delta-rs": DELTA_RS, "strandline": DELTA_RS}


def engine_in(engine_info: str | None) -> str | None:
    """Return the engine of a commit, from its ``engineInfo``: `SPARK`, `DELTA_RS`, or another program's own name.

    None: the commit does not say.
    """
    program = (engine_info or "").partition("/")[0].partition(":")[0].strip()
    return _NAMES.get(program.casefold(), program) or None


def engines_text(tables: Iterable[tuple[Layer, str | None]]) -> str:
    """Return who wrote what, such as ``bronze: delta-rs; silver: Spark 3 tables, delta-rs 14; gold: Spark 1 table``.

    Args:
        tables: Layer and engine of each table. Tables without an engine are left out.
    """
    engines: dict[Layer, list[str]] = {}
    for layer, engine in tables:
        if engine:
            engines.setdefault(layer, []).append(engine)
    return "; ".join(
        f"{layer}: {engines[layer][0] if layer == 'bronze' else engines_of_layer(engines[layer])}"
        for layer in LAYERS
        if layer in engines
    )


def engines_of_layer(engines: Iterable[str | None]) -> str:
    """Return who wrote the tables of one layer, such as ``Spark 3 tables, delta-rs 14``. Empty: nobody is known."""
    counts = Counter(engine for engine in engines if engine).most_common()
    unit = f" table{'' if counts and counts[0][1] == 1 else 's'}"
    return ", ".join(f"{engine} {count:,}{'' if number else unit}" for number, (engine, count) in enumerate(counts))
