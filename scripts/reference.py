"""Generate the reference pages (conf/README.md and pages in docs) and the dashboard."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import click
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scripts.dashboard import dashboard_page
from scripts.doctor_page import doctor_page
from scripts.metrics_page import metrics_page
from scripts.places import places_page
from scripts.readers import readers_page
from scripts.spark_page import spark_versions_page
from scripts.versions import versions_page
from strandline import errors
from strandline.cli import app
from strandline.model import table_schemas as columns
from strandline.model.child_table import DDL, HISTORY_DDL
from strandline.model.quarantine import QUARANTINE_DDL
from strandline.settings.configuration import Settings

ROOT = Path(__file__).parent.parent

_CONF_HEAD = """# Settings

`conf/base.yml` applies to every target. `conf/<target>.yml` overrides it for one target. `--target` or
`STRANDLINE_TARGET` chooses the target; the default is `local`. The folder `conf` is in the working directory;
`--conf` or `STRANDLINE_CONF` names another folder.

Order of precedence, lowest first: default, `conf/base.yml`, `conf/<target>.yml`, environment, command-line option.

- **Environment:** the prefix `STRANDLINE_`, then the parts of the key, joined by two underscores. `source.uri` is
  `STRANDLINE_SOURCE__URI`; `MONGODB_URI` is used if that variable is not set.
- **Values:** text, which is converted to the type of the setting. `no`, `1.10` or a time need no quotes.
- **null:** removes a value, also in the environment.
- **On the command line:** `--set KEY=VALUE`, repeated: `strandline --set lake.catalog=main status`.
  It has precedence over the environment. A map takes a JSON object, or one entry:
  `--set spark.conf.spark.sql.shuffle.partitions=8`.
- **Lists:** a YAML list (in the environment: a JSON list), or text with commas. A comma in brackets, as in
  `salary_[0-9]{1,2}`, does not separate entries.
- **Unknown keys:** an error that names the file and the nearest valid key.
- **Passwords:** never in a file. Set the URI in the environment.

Gold's SQL files are in `conf/gold`, the expectations in `conf/quality`. `make docs` generates this page.

One setting is in no section (`engine: spark`, `STRANDLINE_ENGINE=spark`, `--set engine=spark`):
"""

_TABLES_HEAD = """# Tables

Columns that Strandline creates. In `silver.<collection>` and `silver.<table>_history`, [typed columns](columns.md) for
the documents' fields come before these. Gold's columns are defined in its SQL files. `make docs` generates this page.

- To read the documents of a silver table, add `WHERE NOT _deleted`: a deleted document keeps its row for some days.
- `position`, epoch, tombstone, pending patch, cut and other words are explained in
  [the words](architecture.md#the-words).
"""

_COMMANDS_HEAD = """# Commands

All commands and options, as `--help` shows them. The options of `strandline` itself come before the command or behind
it: `strandline run --once --target prod`. Settings are in [conf/README.md](../conf/README.md). `make docs` generates
this page.

| exit code | meaning |
|---|---|
| 0 | Done. Or ended by SIGTERM after its work in progress. |
| 1 | A view or table of gold was not built, or a case of `gold test` failed. |
| 2 | A setting, an option, a privilege or the topology of the source is wrong. Nothing was written. |
| 3 | The source no longer has the history behind the committed position. |
| 4 | A table or a row breaks its contract, or `reconcile` found a difference. |
| 5 | A quality gate closed. Gold stays as it was. |
| 6 | Another writer owns the source's bronze table. |
| 75 | The source or the lake did not answer, or another process was faster. The same command may succeed later. |
| 130 | Ended by Ctrl-C. |
"""

_TABLES = (
    (
        "bronze.&lt;source&gt;",
        "Append-only change events, and documents of snapshots. The document is in `envelope`, as BSON. `after` has\n"
        "it as JSON, too, if `capture.json_columns` is `stored`. One commit holds one batch. Some columns, such as\n"
        "the resume token, are filled only in the last row of a batch.\n\n"
        "Other values of `op` are no changes of a document: `heartbeat` and `offset` (a position), `gap` (a range\n"
        "without events), `ddl` (a drop or a rename), `snapshot` (progress of a snapshot), `signal` (a request).",
        columns.BRONZE_DDL,
    ),
    (
        "silver.&lt;collection&gt;",
        "One row per document. `maintain` removes the row of a deleted document (`_deleted`) after\n"
        "`maintenance.tombstone_retention_hours`. [Is a row exact?](columns.md#is-a-row-exact) explains `_exact`. In\n"
        "a [portable](columns.md#portable-and-native-tables) table, which is the default, `_rescued` is a STRING.",
        columns.SILVER_BOOKKEEPING_DDL,
    ),
    (
        "silver.&lt;table&gt;_history",
        "All versions of all documents (`silver.history: scd2`).",
        columns.SILVER_HISTORY_DDL,
    ),
    (
        "silver.&lt;child&gt;",
        "One row for each element of an array ([`silver.children`](children.md)). The fields of the element come\n"
        "before `_position`.",
        ", ".join(f"{name} {kind}" for name, kind in DDL.items()),
    ),
    (
        "silver.&lt;child&gt;_history",
        "All versions of all elements, if the documents have a history. The fields of the element come\n"
        "before `_position`.",
        ", ".join(f"{name} {kind}" for name, kind in HISTORY_DDL.items()),
    ),
    (str(columns.SCHEMA_CHANGES), "Changes of the columns of silver tables.", columns.SCHEMA_CHANGES_DDL),
    (str(columns.SOURCES), "Requests of operators to run, pause, stop or delete a source.", columns.SOURCES_DDL),
    (str(columns.ERASURES), "Documents that `strandline erase` has removed.", columns.ERASURES_DDL),
    (
        str(columns.SIGNALS),
        "Requests to a running capture. Append a row; capture processes each row once.",
        columns.SIGNALS_DDL,
    ),
    (str(columns.NOTIFICATIONS), "Progress of snapshots and signals.", columns.NOTIFICATIONS_DDL),
    (
        str(columns.DEAD_LETTERS),
        "Events and documents that could not be processed, with the reason. The stream continued.",
        columns.DEAD_LETTERS_DDL,
    ),
    (str(columns.QUALITY), "Result of every expectation in every quality run.", columns.QUALITY_DDL),
    (
        "silver.&lt;table&gt;_quarantine",
        "Rows that fail a suite with `on_failure: quarantine`. Gold leaves them out.",
        QUARANTINE_DDL,
    ),
    (
        str(columns.RECONCILE),
        "Documents that differed between silver and the source, per run of `reconcile`.",
        columns.RECONCILE_DDL,
    ),
    (str(columns.PROOF), "Ranges of the continuous comparison, and when each was last equal.", columns.PROOF_DDL),
    (str(columns.CUTS), "Consistent versions of all silver tables, one row per silver run.", columns.CUTS_DDL),
)

_ERRORS_HEAD = """# Errors and exit codes

A command that fails prints one line on standard error: what happened, why, and, after an arrow (`→`), the next step.
The exit code tells scripts the kind of failure. `make docs` generates this page.

| exit code | error | cause and effect | running the command again | next step |
|---|---|---|---|---|
"""

_ERRORS_TAIL = """
`reconcile` and `snapshot verify` also end with exit code 4 when they find a difference. `doctor` ends with the code of
the first error that it finds ([doctor](doctor.md)).

Under systemd, do not restart after the exit codes 2, 3, 4 and 6 ([tutorial](start.md#6-as-a-service)). The
[runbook](runbook.md) lists problems by symptom.
"""

_SAME_AGAIN: Final = "Safe. Fails in the same way until the cause is removed."
_WITHOUT_CLASS: Final = (
    (
        "0",
        "–",
        "Done. Or SIGTERM ended `capture` or `run`: the work in progress is committed, or the next run repeats it.",
        "–",
        "–",
    ),
    (
        "1",
        "–",
        "A view or table of gold was not built, or a case of `gold test` failed.",
        _SAME_AGAIN,
        "The output names the view, table or case, and the reason. A stack trace is a defect of Strandline: report it.",
    ),
)
_INTERRUPTED: Final = (
    "130",
    "–",
    "Ctrl-C ended the command. What is committed stays.",
    "Safe: the same command does the rest.",
    "–",
)
_NEXT_STEP: Final = {
    errors.ConfigurationError: (
        _SAME_AGAIN,
        "Correct the setting that the line names. `strandline doctor` lists everything that is wrong.",
    ),
    errors.ResumePointLost: (
        _SAME_AGAIN,
        "[Reset the offset, or let capture heal the gap](runbook.md#exit-code-3-the-source-no-longer-has-the-history).",
    ),
    errors.ContractError: (_SAME_AGAIN, "The line names the table and the command, often `strandline rebuild`."),
    errors.QualityGateClosed: (
        _SAME_AGAIN,
        "[Correct the rows in the source, or accept the change](runbook.md#exit-code-5-the-quality-gate-is-closed).",
    ),
    errors.FencedError: (
        "Safe, after the other writer has ended.",
        "[Keep one of the two captures](runbook.md#exit-code-6-another-writer).",
    ),
    errors.LakeUnavailable: (
        "Safe, and may succeed.",
        "Free the disk, or bring the store back. Then repeat the command.",
    ),
    errors.RetriableError: ("Safe, and may succeed.", "Wait, then repeat the command."),
}


def settings_page() -> str:
    """Return the text of conf/README.md."""
    single = {name: field for name, field in Settings.model_fields.items() if field.description}
    page = _CONF_HEAD + _settings_table(single)
    for name, section in _sections(Settings):
        page += f"\n## {name}\n\n{(section.__doc__ or '').strip()}\n" + _settings_table(section.model_fields)
    return page


def _settings_table(fields: Mapping[str, FieldInfo]) -> str:
    table = "\n| key | type | default | |\n|---|---|---|---|\n"
    for key, field in fields.items():
        cells = (f"`{field.alias or key}`", f"`{_type(field.annotation)}`", _default(field), field.description or "")
        table += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return table


def tables_page() -> str:
    """Return the text of docs/tables.md."""
    page = _TABLES_HEAD
    for name, meaning, ddl in _TABLES:
        page += f"\n## {name}\n\n{meaning}\n\n| column | type | |\n|---|---|---|\n"
        page += "".join(f"| `{column}` | `{kind}` | {comment} |\n" for column, kind, comment in columns_of(ddl))
    return page


def commands_page() -> str:
    """Return the text of docs/commands.md."""
    root = typer.main.get_command(app)
    return _COMMANDS_HEAD + "".join(_command(path, command) for path, command in _commands(root, ("strandline",)))


def errors_page() -> str:
    """Return the text of docs/errors.md: one row per error with an exit code of its own."""
    leaves = [
        error for _, error in inspect.getmembers(errors, inspect.isclass) if issubclass(error, errors.StrandlineError)
    ]
    rows = [error for error in leaves if error.exit_code != errors.StrandlineError.exit_code]
    rows.sort(key=lambda error: error.exit_code)
    causes = {
        error: " ".join((error.__doc__ or "").partition("\n    Args:")[0].replace("``", "`").split()) for error in rows
    }
    named = [(str(error.exit_code), f"`{error.__name__}`", causes[error], *_NEXT_STEP[error]) for error in rows]
    rows_of_page = (*_WITHOUT_CLASS, *named, _INTERRUPTED)
    return _ERRORS_HEAD + "".join("| " + " | ".join(cells) + " |\n" for cells in rows_of_page) + _ERRORS_TAIL


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the command and its subcommands, each with its full name as words."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


def _command(path: tuple[str, ...], command: Any) -> str:
    """Return one section: the help text, then a row per argument and option."""
    context = click.Context(command)
    page = f"\n## {' '.join(path)}\n\n{' '.join((command.help or '').split())}\n"
    rows = [row for parameter in command.params if parameter.name != "help" and (row := _parameter(parameter, context))]
    return page + ("\n| | |\n|---|---|\n" + "".join(rows) if rows else "")


def _parameter(parameter: Any, context: click.Context) -> str:
    if getattr(parameter, "hidden", False):
        return ""
    record = parameter.get_help_record(context)
    named, meaning = record if record is not None else (parameter.human_readable_name, "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{named}`", " ".join(meaning.split()))) + " |\n"


def columns_of(ddl: str) -> list[tuple[str, str, str]]:
    """Return name, type and comment of every column, in order. Commas in brackets or quotes do not separate columns."""
    found, depth, start = [], 0, 0
    body = ddl.strip() + ","
    for token in re.finditer(r"'(?:[^']|'')*'|[<>,]", body):
        depth += {"<": 1, ">": -1}.get(token[0], 0)
        if token[0] == "," and depth == 0:
            name, kind, comment = _column(body[start : token.start()])
            found.append((name, kind, comment))
            start = token.end()
    return found


def _column(text: str) -> tuple[str, str, str]:
    declared, _, comment = text.partition(" COMMENT ")
    name, kind = declared.split(maxsplit=1)
    return name, " ".join(kind.split()), comment.strip()[1:-1].replace("''", "'")


def _sections(settings: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield name, field.annotation


def _type(annotation: Any) -> str:
    """Return the type as YAML users name it: `string or null`, `list of string`, `"soft" or "hard"`."""
    names = {str: "string", int: "integer", bool: "boolean", float: "number", type(None): "null"}
    if annotation in names:
        return names[annotation]
    arguments = get_args(annotation)
    if not arguments:
        return "string" if annotation.__name__ == "SecretStr" else str(annotation.__name__)
    if getattr(annotation, "__origin__", None) is tuple:
        return f"list of {_type(arguments[0])}"
    if getattr(annotation, "__origin__", None) is dict:
        return f"map of {_type(arguments[0])} to {_type(arguments[1])}"
    return " or ".join(f'"{argument}"' if isinstance(argument, str) else _type(argument) for argument in arguments)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ((), {}):
        return "none"
    return f"`{value}`"


def main() -> None:
    (ROOT / "conf" / "README.md").write_text(settings_page(), encoding="utf-8")
    (ROOT / "docs" / "tables.md").write_text(tables_page(), encoding="utf-8")
    (ROOT / "docs" / "commands.md").write_text(commands_page(), encoding="utf-8")
    (ROOT / "docs" / "errors.md").write_text(errors_page(), encoding="utf-8")
    (ROOT / "docs" / "doctor.md").write_text(doctor_page(), encoding="utf-8")
    (ROOT / "docs" / "places.md").write_text(places_page(), encoding="utf-8")
    (ROOT / "docs" / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (ROOT / "ops" / "grafana" / "strandline.json").write_text(dashboard_page(), encoding="utf-8")
    (ROOT / "docs" / "readers.md").write_text(readers_page(), encoding="utf-8")
    (ROOT / "docs" / "versions.md").write_text(versions_page(), encoding="utf-8")
    (ROOT / "docs" / "spark-versions.md").write_text(spark_versions_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
