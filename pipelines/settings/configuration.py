"""The only reader of conf files and environment. Everything behind `cli` and `jobs` gets plain frozen values.

Precedence: command-line option > environment (``STRANDLINE_SOURCE__URI``) > ``conf/<target>.yml`` > ``conf/base.yml`` > default.
"""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from pipelines.errors import ConfigurationError
from pipelines.model.bson.extended_json import JsonMode
from pipelines.model.tables import Lake
from pipelines.settings.conf_file import read_sections
from pipelines.settings.keys import ENV_PREFIX, nearest, unknown_keys, unknown_variables
from pipelines.settings.maintenance import MaintenanceSettings
from pipelines.settings.output import GoldSettings, LoggingSettings, MetricsSettings, QualitySettings
from pipelines.settings.selection import Section, SelectionSettings, entry_problems
from pipelines.settings.silver import SilverSettings
from pipelines.settings.snapshot import SnapshotSettings

DEFAULT_CONF = Path("conf")
_PASSWORD = re.compile(r"://[^/?@]*:[^/?@]+@|[?&;]\w*password=", re.IGNORECASE)
_CONTROL_INTERVAL_MS = 10_000
_log = logging.getLogger("strandline.settings")


class SourceSettings(Section):
    """The MongoDB deployment that is read."""

    name: str = Field(
        "mongo", pattern=r"^[a-z][a-z0-9_]{0,62}$", description="Names the bronze table and the fencing id."
    )
    uri: SecretStr | None = Field(
        None,
        min_length=1,
        description="Connection string; without one nothing is captured, and `demo` starts the embedded mongod.",
    )
    connect_timeout_ms: int = Field(
        10_000, gt=0, description="Longest wait for a connection, where the URI has no `connectTimeoutMS`."
    )
    server_selection_timeout_ms: int = Field(
        10_000,
        gt=0,
        description="Longest wait for a server that can answer, where the URI has no `serverSelectionTimeoutMS`.",
    )
    socket_timeout_ms: int = Field(
        0, ge=0, description="Longest wait for an answer, where the URI has no `socketTimeoutMS`; 0: no limit."
    )


class CaptureSettings(SelectionSettings, SnapshotSettings):
    """What is captured, and how. Names are Debezium's, in snake case."""

    max_batch_size: int = Field(100_000, ge=1, description="Events of one commit.")
    max_queue_size_in_bytes: int = Field(128 * 1024 * 1024, ge=1024, description="Bytes of events of one commit.")
    poll_interval_ms: int = Field(200, ge=1, description="Longest wait for a batch to fill.")
    cursor_max_await_time_ms: int = Field(200, ge=1, description="Longest that the server holds back an empty answer.")
    heartbeat_interval_ms: int = Field(
        60_000,
        ge=100,
        description="Interval, in ms, at which an idle stream commits its token. The token must stay younger than the source's oplog.",
    )
    on_history_lost: Literal["fail", "heal", "restart_at_oldest"] = Field(
        "fail",
        description="When the oplog no longer holds the position: stop; record a gap and read everything again; or record it and go on.",
    )
    headroom_warning_minutes: int = Field(
        60,
        ge=0,
        description="`stop` and `pause` are refused, and `status` warns, when the source forgets the position sooner than that.",
    )
    start_at: str | None = Field(
        None,
        description="Where the very first run starts, as an ISO 8601 time (UTC where it names no zone); default: now. "
        "After `offsets reset` capture starts at now.",
    )
    connect_max_attempts: int = Field(
        16,
        ge=1,
        description="Maximum attempts without progress in which nobody answers, before the capture ends. Elections do not count.",
    )
    connect_backoff_initial_delay_ms: int = Field(
        1000, ge=1, description="Delay before the first retry, in ms. It doubles with each failure."
    )
    errors_max_retries: int = Field(
        -1,
        ge=-1,
        description="Maximum failures without progress in which a server answered (an election, a killed cursor), before the capture "
        "ends; -1: no limit; 0: the first one ends it. Attempts in which nobody answered do not count.",
    )
    errors_retry_limit: int = Field(
        0,
        ge=-1,
        description="Maximum repeated reads of one event that cannot be sent, before the event is passed; -1: no limit.",
    )
    errors_retry_delay_max_ms: int = Field(120_000, ge=1, description="Maximum delay between two retries, in ms.")
    errors_tolerance: Literal["none", "all"] = Field(
        "all",
        description="Whether a streamed document that JSON cannot show lands as bytes with a dead letter, or stops the capture.",
    )
    cursor_oversize_handling_mode: Literal["fail", "skip", "split"] = Field(
        "fail",
        description="Events above 16 MiB: stop, land without their documents, or have the server split them (6.0.9 and newer).",
    )
    cursor_oversize_skip_threshold: int = Field(
        0,
        ge=0,
        description="Bytes of a document that is not wanted either when skipping; 0: whatever MongoDB can send is.",
    )
    guardrail_collections_max: int = Field(
        0, ge=0, description="More collections than that are not meant to be captured; 0: no limit."
    )
    guardrail_collections_limit_action: Literal["warn", "fail"] = Field(
        "warn", description="What happens at the start if there are more."
    )
    engine: Literal["spark", "native"] = Field(
        "spark",
        description="Who writes bronze: Spark, or worker processes of capture itself, into a folder of its machine.",
    )
    json_columns: Literal["stored", "derived"] = Field(
        "derived",
        description="Whether `after` and `before` are written at capture, or read from `envelope` when asked for.",
    )
    json_serialization_mode: JsonMode = Field(
        "extended",
        description="Extended JSON of documents in the Debezium view: v1 (strict), canonical v2 (extended), relaxed v2 (relaxed), or v1 "
        "with relaxed `updatedFields` (legacy, Debezium's default).",
    )

    @model_validator(mode="after")
    def _what_stands_alone(self) -> CaptureSettings:
        name, entries = "snapshot_include_collection_list", self.snapshot_include_collection_list
        problems = entry_problems(name, entries, "collection", self.filters_match_mode)
        if self.guardrail_collections_limit_action == "fail" and not self.guardrail_collections_max:
            problems.append("guardrail_collections_limit_action stands without guardrail_collections_max")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def control_interval_seconds(self) -> float:
        """Longest time until a run sees that the source was paused or stopped, and for which notifications wait for others."""
        return min(self.heartbeat_interval_ms, _CONTROL_INTERVAL_MS) / 1000

    @property
    def lost_history_policy(self) -> Literal["fail", "heal", "restart_at_oldest"]:
        """``on_history_lost``; a snapshot mode that heals goes over it."""
        return "heal" if self.snapshot_policy.heals else self.on_history_lost


class LakeSettings(Section):
    """Where tables live: a folder, or a catalog with schemas ``<schema>_bronze``, …"""

    root: str | None = Field(
        "lake", description="Folder or URI; not used where a catalog is set; without one it must not be null."
    )
    catalog: str | None = Field(
        None, description="Catalog that holds the schemas; none: tables are folders under the root."
    )
    schema_prefix: str = Field("strandline", alias="schema", description="What the four schemas' names begin with.")

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    @model_validator(mode="after")
    def _somewhere(self) -> LakeSettings:
        if not self.root and self.catalog is None:
            raise ValueError(
                "neither root nor catalog is set; where there is a catalog, STRANDLINE_LAKE__CATALOG names it"
            )
        return self


class SparkSettings(Section):
    """How Spark is reached."""

    master: str | None = Field(
        "local[*]", description="None: the session of the surroundings (Databricks, spark-submit, Connect)."
    )
    conf: dict[str, str] = Field(
        default_factory=dict,
        repr=False,  # an object store's key may be among them
        description="Spark settings; they have the last word, but for what tables rely on (pipelines/io/session_settings.py). "
        "JARs, packages and extensions are added to Delta's.",
    )

    @field_validator("conf", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Accept JSON's numbers and truth values (from the environment), and a key with nothing under it."""
        if not isinstance(value, dict | None):
            return value
        return {
            key: json.dumps(entry) if isinstance(entry, bool | int | float) else entry
            for key, entry in (value or {}).items()
        }


class Settings(BaseSettings):
    """The whole configuration of one target, validated and frozen."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        env_parse_none_str="null",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    target: str = "local"
    source: SourceSettings = SourceSettings()
    capture: CaptureSettings = CaptureSettings()
    lake: LakeSettings = LakeSettings()
    spark: SparkSettings = SparkSettings()
    silver: SilverSettings = SilverSettings()
    gold: GoldSettings = GoldSettings()
    quality: QualitySettings = QualitySettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # why: the caller names it
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # why: the caller names it
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # why: the caller names it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # why: the caller names it
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (
            init_settings,
        )  # load_settings merges files, environment and options itself: options stand above the environment

    @property
    def lake_location(self) -> Lake:
        return Lake(root=self.lake.root, catalog=self.lake.catalog, schema=self.lake.schema_prefix)


def load_settings(
    target: str = "local", conf: Path = DEFAULT_CONF, overrides: dict[str, Any] | None = None
) -> Settings:
    """Read ``<conf>/base.yml`` and ``<conf>/<target>.yml``, the environment and the options over them.

    Raises:
        ConfigurationError: All problems at once: file, key, what is wrong with it and the nearest valid key. No value is shown.
    """
    problems: list[str] = []
    merged: dict[str, Any] = {}
    for file in _files(target, conf, problems):
        content = read_sections(file, problems)
        problems += [f"{file}: {text}" for text in unknown_keys(content, Settings)]
        _tell_password(file, content)
        merged = _deep_merge(merged, content)
    problems += unknown_variables(os.environ, Settings)
    merged = _deep_merge(_deep_merge(merged, _environment(problems)), overrides or {})
    for section, key, files in (("gold", "sql_dir", "*.sql"), ("quality", "suites_dir", "*.yml")):
        if any((conf / section).glob(files)):
            merged = _deep_merge({section: {key: str(conf / section)}}, merged)
    settings = _validated({**merged, "target": target}, problems)
    if settings is None or problems:
        raise ConfigurationError(
            "; ".join(problems), next_step="correct the named keys; conf/README.md lists every one"
        )
    return settings


def _tell_password(file: Path, content: dict[str, Any]) -> None:
    source = content.get("source")
    uri = source.get("uri") if isinstance(source, dict) else None
    if isinstance(uri, str) and _PASSWORD.search(uri):
        _log.warning(
            "%s holds a password, in source.uri: give the URI in the environment instead (STRANDLINE_SOURCE__URI)", file
        )


def _files(target: str, conf: Path, problems: list[str]) -> list[Path]:
    """Those that exist, the later over the earlier. ``local`` needs none: an installed command has no conf folder."""
    if conf != DEFAULT_CONF and not conf.is_dir():
        problems.append(f"no folder {conf}")
    known = sorted(path.stem for path in conf.glob("*.yml") if path.stem != "base")
    if target not in (*known, "local"):  # also refuses a target that is a path
        problems.append(f"no {conf / target}.yml: unknown target {target!r}{nearest(target, known)}")
        target = "base"
    return [file for name in dict.fromkeys(("base", target)) if (file := conf / f"{name}.yml").exists()]


def without_files(target: str, conf: Path) -> str | None:
    """I/O: says so where the default folder has neither file, which is no error: an installed command needs none. None: it has one."""
    if conf != DEFAULT_CONF or _files(target, conf, []):
        return None
    names = " and ".join(f"no {conf / name}.yml" for name in dict.fromkeys(("base", target)))
    return f"{names} in {Path.cwd()}: settings come from the environment and the defaults alone"


def _validated(merged: dict[str, Any], problems: list[str]) -> Settings | None:
    try:
        return Settings(**merged)
    except ValidationError as error:
        for item in error.errors(include_input=False):
            if item["type"] != "extra_forbidden" or not problems:  # unknown keys are reported already, with their file
                problems.append(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}")
        return None


def _environment(problems: list[str]) -> dict[str, Any]:
    """What the environment sets, nested. ``MONGODB_URI`` stands in for ``STRANDLINE_SOURCE__URI``."""
    try:
        found = EnvSettingsSource(Settings)()
    except SettingsError:  # raised without the variable's name; a section or a map must be JSON
        problems.append(
            f"environment: one of {', '.join(v for v in os.environ if v.startswith(ENV_PREFIX))} is not valid JSON"
        )
        return {}
    fallback = os.environ.get("MONGODB_URI")
    return _deep_merge({"source": {"uri": fallback}}, found) if fallback else found


def _deep_merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = (
            _deep_merge(below, value or {}) if isinstance(below, dict) and isinstance(value, dict | None) else value
        )
    return merged
