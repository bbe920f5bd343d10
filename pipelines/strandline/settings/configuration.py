"""Reader of conf files and environment. Only `cli` and `jobs` use it; all other modules get plain frozen values.

Precedence: command-line option > environment (``STRANDLINE_SOURCE__URI``) > ``conf/<target>.yml`` >
``conf/base.yml`` > default.
"""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from strandline.errors import ConfigurationError
from strandline.model.tables import Lake
from strandline.settings import DEFAULT_CONF
from strandline.settings.capture import CaptureSettings
from strandline.settings.conf_file import read_sections
from strandline.settings.keys import ENV_PREFIX, nearest, not_json, unknown_keys, unknown_variables
from strandline.settings.maintenance import MaintenanceSettings
from strandline.settings.output import GoldSettings, LoggingSettings, MetricsSettings, QualitySettings
from strandline.settings.project_folder import with_project_folders
from strandline.settings.proof import ProofSettings
from strandline.settings.selection import Engine, Section
from strandline.settings.silver import SilverSettings
from strandline.settings.telemetry import LineageSettings, TelemetrySettings
from strandline.settings.ui import UiSettings
from strandline.settings.wrong_values import ENVIRONMENT, OPTIONS, Place, wrong_values

_PASSWORD = re.compile(r"://[^/?@]*:[^/?@]+@|[?&;]\w*password=", re.IGNORECASE)
_log = logging.getLogger("strandline.settings")


class SourceSettings(Section):
    """Connection to the source MongoDB deployment."""

    name: str = Field(
        "mongo",
        pattern=r"^[a-z][a-z0-9_]{0,62}$",
        description="Name of the source. It becomes the name of the bronze table and part of the fencing id.",
    )
    uri: SecretStr | None = Field(
        None,
        min_length=1,
        description="MongoDB connection string. null: capture is not possible, and `demo` starts an embedded mongod.",
    )
    uri_file: str | None = Field(
        None,
        min_length=1,
        description="File that holds the connection string, instead of `uri`. Capture reads it again when it opens "
        "new connections.",
    )
    password_file: str | None = Field(
        None,
        min_length=1,
        description="File that holds the password of the user in the connection string. Capture reads it again when "
        "it opens new connections.",
    )
    connect_timeout_ms: int = Field(
        10_000, gt=0, description="Maximum wait for a connection, in ms. `connectTimeoutMS` in the URI overrides it."
    )
    server_selection_timeout_ms: int = Field(
        10_000,
        gt=0,
        description="Maximum wait for a suitable server, in ms. `serverSelectionTimeoutMS` in the URI overrides it.",
    )
    socket_timeout_ms: int = Field(
        0,
        ge=0,
        description="Maximum wait for an answer of the server, in ms. `socketTimeoutMS` in the URI overrides it. 0: no "
        "limit.",
    )

    @model_validator(mode="after")
    def _check_uri(self) -> SourceSettings:
        if self.uri is not None and self.uri_file is not None:
            raise ValueError("uri and uri_file are both set (MONGODB_URI counts as uri); remove one")
        return self

    @property
    def is_configured(self) -> bool:
        """Return True if there is a connection string."""
        return self.uri is not None or self.uri_file is not None


class LakeSettings(Section):
    """Location of the tables: a folder, or a catalog with the schemas ``<schema>_bronze``, …"""

    root: str | None = Field(
        "lake", description="Folder or URI of the lake. Not used if `catalog` is set; required if it is not."
    )
    catalog: str | None = Field(
        None, description="Catalog that holds the schemas. null: tables are folders under `root`."
    )
    schema_prefix: str = Field(
        "strandline",
        alias="schema",
        description="Prefix of the names of the four schemas, for example `strandline_bronze`.",
    )
    s3_endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        description="URL of another S3 server than AWS's, such as `https://minio:9000`. Credentials come from AWS's "
        "environment variables, or from the role of the machine.",
    )
    s3_region: str | None = Field(None, description="AWS region of the bucket. null: `AWS_REGION`.")

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    @model_validator(mode="after")
    def _check_location(self) -> LakeSettings:
        if not self.root and self.catalog is None:
            raise ValueError(
                "neither root nor catalog is set; where there is a catalog, STRANDLINE_LAKE__CATALOG names it"
            )
        return self


class SparkSettings(Section):
    """Connection to Spark, and its settings."""

    master: str | None = Field(
        "local[*]",
        description="Spark master URL. null: use the session of the environment (Databricks, spark-submit, Spark "
        "Connect).",
    )
    conf: dict[str, str] = Field(
        default_factory=dict,
        repr=False,  # an object store's key may be among them
        description="Additional Spark settings. They override Strandline's, except the settings that the tables "
        "depend on (pipelines/strandline/io/spark/session_settings.py). JARs, packages and extensions are added to "
        "Delta's.",
    )

    @field_validator("conf", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Accept JSON numbers and booleans (from the environment), and an empty section."""
        if not isinstance(value, dict | None):
            return value
        return {
            key: json.dumps(entry) if isinstance(entry, bool | int | float) else entry
            for key, entry in (value or {}).items()
        }


class Settings(BaseSettings):
    """Complete configuration of one target, validated and frozen."""

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
    engine: Engine = Field(
        "auto",
        description="Program that writes bronze, silver and gold. `spark`: Spark writes every row. `auto`: where "
        "delta-rs reaches the lake, it writes bronze, most batches of silver, and few changed keys of "
        "gold, in this process and without Java; Spark writes all else. `capture.engine`, `silver.engine` and "
        "`gold.engine` override it for one layer.",
    )
    source: SourceSettings = SourceSettings()
    capture: CaptureSettings = CaptureSettings()
    lake: LakeSettings = LakeSettings()
    spark: SparkSettings = SparkSettings()
    silver: SilverSettings = SilverSettings()
    gold: GoldSettings = GoldSettings()
    quality: QualitySettings = QualitySettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    proof: ProofSettings = ProofSettings()
    metrics: MetricsSettings = MetricsSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    lineage: LineageSettings = LineageSettings()
    logging: LoggingSettings = LoggingSettings()
    ui: UiSettings = UiSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # why: the caller names it
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # why: the caller names it
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # why: the caller names it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # why: the caller names it
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)  # load_settings merges files, environment and options: options override the environment

    @property
    def capture_engine(self) -> Literal["auto", "spark", "native"]:
        """Engine that writes bronze."""
        return self.capture.engine or self.engine

    @property
    def silver_engine(self) -> Engine:
        """Engine that merges into silver."""
        return self.silver.engine or self.engine

    @property
    def gold_engine(self) -> Engine:
        """Engine that merges changed keys into gold."""
        return self.gold.engine or self.engine

    @property
    def lake_location(self) -> Lake:
        return Lake(root=self.lake.root, catalog=self.lake.catalog, schema=self.lake.schema_prefix)

    def in_project(self, project: Path) -> Settings:
        """Return the settings with relative folders under *project*: Jupyter starts a notebook in a folder below it."""
        lake, quality, root = self.lake, self.quality, self.lake.root
        if root and "://" not in root and not lake.catalog:
            lake = lake.model_copy(update={"root": str(project / root)})
        quality = quality.model_copy(update={"docs_dir": str(project / quality.docs_dir)})
        return self.model_copy(update={"lake": lake, "quality": quality})


_OTHER_FILES: Final = "correct --target or --conf (STRANDLINE_TARGET, STRANDLINE_CONF)"
_OTHER_KEYS: Final = "correct the named keys; strandline explain settings lists every one"


def load_settings(
    target: str = "local", conf: Path = DEFAULT_CONF, overrides: dict[str, Any] | None = None
) -> Settings:
    """Read ``<conf>/base.yml`` and ``<conf>/<target>.yml``; then apply the environment and the options.

    Relative folders of gold and quality begin at the folder that holds *conf*.

    I/O: reads the files and the environment; writes nothing.

    Raises:
        ConfigurationError: One or more settings are wrong. The message lists all problems with file, key and the
            nearest valid key. It holds no secret.
    """
    problems: list[str] = []
    merged: dict[str, Any] = {}
    places: list[Place] = []
    files = _files(target, conf, problems)
    step = _OTHER_FILES if problems else _OTHER_KEYS
    for file in files:
        content = read_sections(file, problems)
        problems += [f"{file}: {text}" for text in unknown_keys(content, Settings)]
        _warn_of_password(file, content)
        places.insert(0, (str(file), content))
        merged = _deep_merge(merged, content)
    problems += unknown_variables(os.environ, Settings)
    _warn_of_password("--set", overrides or {})
    environment = _environment(problems)
    places = [(OPTIONS, overrides or {}), (ENVIRONMENT, environment), *places]
    merged = with_project_folders(_deep_merge(_deep_merge(merged, environment), overrides or {}), conf)
    settings = _validated({**merged, "target": target}, problems, places)
    if settings is None or problems:
        raise ConfigurationError("; ".join(problems), next_step=step)
    return settings


def _warn_of_password(place: Path | str, content: dict[str, Any]) -> None:
    source = content.get("source")
    uri = source.get("uri") if isinstance(source, dict) else None
    if isinstance(uri, str) and _PASSWORD.search(uri):
        _log.warning(
            "%s holds a password, in source.uri: give the URI in the environment instead (STRANDLINE_SOURCE__URI)",
            place,
        )


def _files(target: str, conf: Path, problems: list[str]) -> list[Path]:
    """Return the configuration files that exist. Later files override earlier ones. Target ``local`` needs none."""
    if conf != DEFAULT_CONF and not conf.is_dir():
        problems.append(f"no folder {conf}")
    targets = sorted(path.stem for path in conf.glob("*.yml") if path.stem != "base")
    if target not in (*targets, "local"):  # also refuses a target that is a path
        problems.append(f"no {conf / target}.yml: unknown target {target!r}{nearest(target, targets)}")
        target = "base"
    return [file for name in dict.fromkeys(("base", target)) if (file := conf / f"{name}.yml").exists()]


def missing_files_note(target: str, conf: Path) -> str | None:
    """Return a note if the default conf folder has no file of *target*.

    None: a file exists, or *conf* is not the default.

    I/O: checks whether the files exist; writes nothing. No file is no error: an installed command needs none.
    """
    if conf != DEFAULT_CONF or _files(target, conf, []):
        return None
    names = " and ".join(f"no {conf / name}.yml" for name in dict.fromkeys(("base", target)))
    return f"{names} in {Path.cwd()}: settings come from the environment and the defaults alone"


def _validated(merged: dict[str, Any], problems: list[str], places: list[Place]) -> Settings | None:
    try:
        return Settings(**merged)
    except ValidationError as error:
        problems += wrong_values(error, Settings, places, with_unknown_keys=not problems)  # else they are reported
        return None


def _environment(problems: list[str]) -> dict[str, Any]:
    """Return the settings of the environment, nested. ``MONGODB_URI`` replaces a missing ``STRANDLINE_SOURCE__URI``."""
    try:
        values = EnvSettingsSource(Settings)()
    except SettingsError:  # raised without the variable's name
        problems += [f"environment {name}: {problem}" for name, problem in not_json(os.environ, Settings)]
        return {}
    fallback = os.environ.get("MONGODB_URI")
    return _deep_merge({"source": {"uri": fallback}}, values) if fallback else values


def _deep_merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = (
            _deep_merge(below, value or {}) if isinstance(below, dict) and isinstance(value, dict | None) else value
        )
    return merged
