"""Checks of the settings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from strandline.io.spark.older_wheel import REMEDY
from strandline.jobs.doctor.findings import Check, Finding, doctor_check
from strandline.model.network import is_loopback
from strandline.settings.configuration import Settings

SETTINGS: Final = Check(
    "configuration.settings",
    "Files of conf, environment and options: unknown keys, wrong types, contradictions",
    why="a misspelt setting would otherwise have no effect, and nobody would see it",
    fix="correct the named keys; strandline explain settings lists every one",
)
FILES: Final = Check(
    "configuration.files",
    "A conf folder with a file for the target",
    why="in a wrong folder the defaults would begin a new lake",
    fix="change to the project's folder, or name its conf folder with --conf",
)
PACKAGE: Final = Check(
    "configuration.package",
    "An older wheel of strandline, whose package was `pipelines`",
    why="it hides modules of that name, also of other projects",
    fix=REMEDY,
)
_SHORT_RETENTION_HOURS: Final = 24


@dataclass(frozen=True)
class _Rule:
    """A rule for one setting.

    Args:
        key: Name of the setting.
        applies: True: the finding is told.
        text: What the setting does, or why it does nothing.
        fix: Other cure than the check's.
    """

    key: str
    applies: Callable[[Settings], bool]
    text: str
    fix: str = ""


def _is_s3(settings: Settings) -> bool:
    return settings.lake.catalog is None and settings.lake_location.in_object_store


def _is_open(address: str) -> bool:
    return not is_loopback(address)


def _is_plain(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


_UNUSED: Final = (
    _Rule(
        "engine",
        lambda of: None not in (of.capture.engine, of.silver.engine, of.gold.engine),
        "capture.engine, silver.engine and gold.engine are set",
    ),
    _Rule(
        "capture.full_update_type",
        lambda of: "update_full" not in of.capture.mode,
        "capture.mode asks for no whole document",
    ),
    _Rule("capture.field_hash_salt", lambda of: not of.capture.field_hash_list, "field_hash_list is empty"),
    _Rule("capture.field_mask_text", lambda of: not of.capture.field_mask_list, "field_mask_list is empty"),
    _Rule(
        "capture.cursor_oversize_skip_threshold",
        lambda of: of.capture.cursor_oversize_handling_mode != "skip",
        "cursor_oversize_handling_mode is not skip",
    ),
    _Rule(
        "capture.guardrail_collections_limit_action",
        lambda of: not of.capture.guardrail_collections_max,
        "guardrail_collections_max is 0",
    ),
    _Rule(
        "capture.signal_file", lambda of: "file" not in of.capture.signal_enabled_channels, "the channel file is off"
    ),
    _Rule(
        "capture.signal_data_collection",
        lambda of: "source" not in of.capture.signal_enabled_channels,
        "the channel source is off",
    ),
    _Rule("lake.root", lambda of: of.lake.catalog is not None, "lake.catalog is set"),
    _Rule("lake.schema_prefix", lambda of: of.lake.catalog is None, "lake.catalog is not set"),
    _Rule("lake.s3_endpoint", lambda of: not _is_s3(of), "the lake is not in S3"),
    _Rule("lake.s3_region", lambda of: not _is_s3(of), "the lake is not in S3"),
    _Rule(
        "silver.table_delimiter", lambda of: of.silver.naming == "collection", "table names hold only the collection"
    ),
    _Rule(
        "maintenance.log_max_files",
        lambda of: of.lake.catalog is not None or of.lake_location.in_object_store,
        "it applies to local folders only",
    ),
    _Rule("gold.tests_dir", lambda of: of.gold.sql_dir is None, "there are no SQL files"),
    _Rule("quality.max_quarantined_rows", lambda of: of.quality.suites_dir is None, "there are no suites"),
)
"""Settings that have no effect if the rule applies. A setting that nobody has set is left out."""

_RISKS: Final = (
    _Rule(
        "capture.on_history_lost",
        lambda of: of.capture.on_history_lost == "restart_at_oldest",
        "restart_at_oldest: a gap stays, and silver does not get the changes in it",
        "set it to heal or fail",
    ),
    _Rule(
        "capture.sharded_ids_are_unique",
        lambda of: of.capture.sharded_ids_are_unique,
        "true: of two documents with one _id on two shards, silver keeps one",
    ),
    _Rule(
        "capture.cursor_oversize_handling_mode",
        lambda of: of.capture.cursor_oversize_handling_mode == "skip",
        "skip: events above 16 MiB are stored without their documents",
        "set it to split (MongoDB 6.0.9 and newer)",
    ),
    _Rule(
        "capture.errors_max_retries",
        lambda of: of.capture.errors_max_retries == 0,
        "0: the first election ends capture",
        "set it to -1",
    ),
    _Rule(
        "capture.headroom_warning_minutes",
        lambda of: of.capture.headroom_warning_minutes == 0,
        "0: nobody is warned before the oplog drops the position",
    ),
    _Rule(
        "logging.show_keys",
        lambda of: of.logging.show_keys,
        "true: the log holds the _id of documents, which may be personal data",
    ),
    _Rule(
        "metrics.address",
        lambda of: of.metrics.port is not None and _is_open(of.metrics.address),
        "other machines may read metrics, state and log without a password",
        "limit who reaches the port",
    ),
    _Rule(
        "ui.address",
        lambda of: _is_open(of.ui.address),
        "the page is served by HTTP, and its token can be read on the way",
        "put a proxy with TLS in front of it (strandline explain ui)",
    ),
    _Rule(
        "lake.s3_endpoint",
        lambda of: _is_plain(of.lake.s3_endpoint or ""),
        "http://: documents can be read on the way",
        "use https://",
    ),
    _Rule(
        "maintenance.retention_hours",
        lambda of: of.maintenance.retention_hours < _SHORT_RETENTION_HOURS,
        "below a day: a query that runs longer fails when its files are removed",
    ),
)


def examine_settings(settings: Settings) -> Iterator[Finding]:
    """Yield the findings for settings that are valid. Pure."""
    yield SETTINGS.ok(f"target {settings.target}")
    for check in (unused, risk):
        findings = list(check(settings))
        yield from findings or [check.ok("none")]


@doctor_check(
    "configuration.unused",
    "Settings that are set and have no effect beside the other settings",
    why="somebody expects an effect that does not come",
    fix="remove the setting, or set the one that it belongs to",
)
def unused(check: Check, of: Settings) -> Iterator[Finding]:
    for rule in _UNUSED:
        section, _, key = rule.key.rpartition(".")
        if key in (getattr(of, section) if section else of).model_fields_set and rule.applies(of):
            name = "lake.schema" if key == "schema_prefix" else rule.key
            yield check.info(f"{name} has no effect: {rule.text}", fix=check.fix)
    if foreign := sorted(key for key in of.spark.conf if not key.startswith("spark.")):
        yield check.warning(f"spark.conf has names that do not begin with spark.: {', '.join(foreign)}")


@doctor_check(
    "configuration.risk",
    "Settings that lose events, show data, or open a port",
    why="each is right for somebody, and should be set on purpose",
    fix="remove the setting, unless it is set on purpose",
)
def risk(check: Check, of: Settings) -> Iterator[Finding]:
    yield from (check.warning(f"{rule.key}: {rule.text}", fix=rule.fix) for rule in _RISKS if rule.applies(of))


@doctor_check(
    "configuration.names",
    "Collections that settings of silver and snapshots name are captured",
    why="a misspelt name makes the setting apply to nothing",
    fix="correct the name; it is database.collection, or that of a table in silver.tables, whose pattern matches one",
)
def names(check: Check, of: Settings, captured: Collection[str]) -> Finding:
    """Return the finding for collections that settings of silver and snapshots name.

    Args:
        captured: Collections that exist and are captured, as ``database.collection``.
    """
    existing = {*captured, *(table for name in captured if (table := of.silver.named(name)) != name)}
    named: dict[str, Iterable[str]] = {
        "silver.tables": of.silver.tables,
        "silver.columns": of.silver.columns,
        "silver.layout": of.silver.layout,
        "silver.children": of.silver.children,
        "silver.compatibility_by_collection": of.silver.compatibility_by_collection,
        "silver.table_properties_by_collection": of.silver.table_properties_by_collection,
        "silver.history_collections": of.silver.history_collections,
        "capture.snapshot_collection_filter_overrides": of.capture.snapshot_collection_filter_overrides,
    }
    missing = [f"{key}: {name}" for key, names in named.items() for name in names if name not in existing]
    if missing:
        return check.warning(f"no captured collection has the name in {'; '.join(missing)}")
    return check.ok("all of them are captured")
