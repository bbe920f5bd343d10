"""Settings sections ``telemetry`` (traces of OpenTelemetry) and ``lineage`` (events of OpenLineage). Both are off."""

from __future__ import annotations

from pydantic import Field

from strandline.settings.selection import Section

_WEB = r"^https?://"


class TelemetrySettings(Section):
    """Traces of OpenTelemetry. They need the extra `otel`."""

    traces: bool = Field(
        False,
        description="Send spans of `capture`, `run`, `silver`, `gold` and `quality` to a collector, by OTLP over HTTP.",
    )
    endpoint: str | None = Field(
        None,
        pattern=_WEB,
        description="Base URL of the collector, such as `http://collector:4318`; `/v1/traces` is appended. null: "
        "`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, else `http://localhost:4318`. "
        "Headers, certificates and timeouts always come from the `OTEL_*` environment variables.",
    )

    @property
    def traces_url(self) -> str | None:
        """URL that gets the spans. None: the environment names it."""
        return None if self.endpoint is None else f"{self.endpoint.rstrip('/')}/v1/traces"


class LineageSettings(Section):
    """Lineage events of OpenLineage. They need the extra `openlineage`."""

    enabled: bool = Field(
        False,
        description="Send a lineage event when `capture`, a silver table, a gold node or a quality run begins and "
        "ends.",
    )
    url: str | None = Field(
        None,
        pattern=_WEB,
        description="Base URL of the receiver, such as `http://marquez:5000`; `/api/v1/lineage` is appended. null: "
        "the environment variables or the file of the OpenLineage client, such as `OPENLINEAGE_URL`. "
        "`OPENLINEAGE_API_KEY` is used in both cases.",
    )
    namespace: str | None = Field(
        None, min_length=1, description="Namespace of the jobs. null: `OPENLINEAGE_NAMESPACE`, else `strandline`."
    )
