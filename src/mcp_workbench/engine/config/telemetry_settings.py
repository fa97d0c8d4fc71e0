"""The members of `telemetry`: where traces are sent, and how many of them. Loaded only for a file that has it."""

from __future__ import annotations

from typing import Final

from mcp_workbench.engine.config.kinds import Kind, Schema, Url, number_in, or_variable
from mcp_workbench.engine.config.mappings import Headers
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.redact import secrets_in
from mcp_workbench.engine.config.setting import Declared, setting


class _Ratio(Kind):
    """A part of all."""

    def read(self, value: object, path: Path, reader: Reader) -> float | None:
        number = number_in(value, path, reader)
        if number is None:
            return None
        if isinstance(number, str) or not 0 <= number <= 1:
            reader.wrong(value, path, "a number from 0 to 1")
            return None
        return float(number)

    def schema(self) -> Schema:
        return or_variable({"type": "number", "minimum": 0, "maximum": 1})


class TelemetryConfig(Declared, frozen=True, kw_only=True):
    """Where traces are sent."""

    otlp: str | None = setting(
        Url(),
        "The address of a collector's OTLP/HTTP receiver, such as `http://127.0.0.1:4318`; `/v1/traces` is added. If "
        "unset, that of `OTEL_EXPORTER_OTLP_ENDPOINT`.",
    )
    traces: float | None = setting(
        _Ratio(),
        "The part of calls that is traced, from 0 to 1. A call that comes with a trace is traced if its client traces "
        "it. If unset, as `OTEL_TRACES_SAMPLER` says, otherwise all.",
    )
    headers: dict[str, str] = setting(
        Headers(), "Sent with every request to the collector, such as a key. Never printed.", {}, fetches=True
    )
    # `"telemetry": false`
    is_on: bool = True


class _TelemetryMembers(Members[TelemetryConfig]):
    def read(self, value: object, path: Path, reader: Reader) -> TelemetryConfig | None:
        if value is False:
            return TelemetryConfig(is_on=False)
        telemetry = super().read(value, path, reader)
        for name, text in ({} if telemetry is None else telemetry.headers).items():
            # What a reference leads to is secret once it is fetched.
            if (*path, "headers", name) not in reader.references:
                reader.secrets.update(secrets_in(name, text))
        return telemetry

    def schema(self) -> Schema:
        return {"anyOf": [{"const": False}, super().schema()]}


TELEMETRY: Final = _TelemetryMembers(
    TelemetryConfig, '`false`, or an object such as `{"otlp": "http://127.0.0.1:4318"}`'
)
