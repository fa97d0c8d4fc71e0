"""Where spans are sent and how, from the setting `telemetry` and the variables of OpenTelemetry.

A function of both. What is written in the file wins. As OpenTelemetry's specification wants it, a variable with an
invalid value is reported and ignored: a program must not fail to start because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from mcp_workbench.engine.config.telemetry_settings import TelemetryConfig
from mcp_workbench.seeing.trace_context import SAMPLERS, Sampler, named_sampler

TRACES_PATH: Final = "/v1/traces"
# The default of OpenTelemetry's specification.
DEFAULT_TIMEOUT: Final = 10.0
MAX_TIMEOUT: Final = 60.0
SERVICE: Final = "mcp-workbench"
_LOCAL_COLLECTORS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_OTLP_PREFIX: Final = "OTEL_EXPORTER_OTLP_"


class OtlpSettings(Struct, frozen=True, kw_only=True):
    """A collector, and what it is told."""

    url: str
    headers: dict[str, str]
    sampler: Sampler
    timeout: float = DEFAULT_TIMEOUT
    is_compressed: bool = True
    # A file with certificates that are trusted instead of the system's.
    certificate: str | None = None
    # Of the resource: `service.name`, and what the user adds.
    resource: dict[str, str]


def is_wanted(telemetry: TelemetryConfig | None, environ: Mapping[str, str]) -> bool:
    """Whether anything is to be sent."""
    if telemetry is not None and not telemetry.is_on:
        return False
    if telemetry is not None and telemetry.otlp is not None:
        return True
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return not is_disabled and "otlp" in exporter.split(",") and bool(_endpoint(environ))


def settings_of(
    telemetry: TelemetryConfig | None, environ: Mapping[str, str], warn: Callable[[str], None]
) -> OtlpSettings | None:
    """None if nothing can be sent; `warn` is told why. To be called only if it is wanted."""
    variables = _Variables(environ, warn)
    written = None if telemetry is None else telemetry.otlp
    url = _endpoint(environ) if written is None else _with_path(written)
    parts = urlsplit(url)
    try:
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        warn(f"no traces are sent: `{_shown(url)}` is not an http:// or https:// address")
        return None
    if written is None and variables.of_traces("PROTOCOL") == "grpc":
        warn(
            "no traces are sent: `OTEL_EXPORTER_OTLP_PROTOCOL` is `grpc`, and the workbench sends OTLP over HTTP; give "
            "it the address of the collector's HTTP receiver, usually port 4318, in the setting `telemetry`"
        )
        return None
    headers = variables.pairs(variables.of_traces("HEADERS"))
    return OtlpSettings(
        url=url,
        headers=headers if telemetry is None else {**headers, **telemetry.headers},
        sampler=variables.sampler() if telemetry is None or telemetry.traces is None else Sampler(telemetry.traces),
        timeout=variables.timeout(),
        is_compressed=variables.is_compressed(parts.hostname or ""),
        certificate=variables.of_traces("CERTIFICATE") or None,
        resource=variables.resource(),
    )


def _endpoint(environ: Mapping[str, str]) -> str:
    """The address from the variables; empty if they have none. The one for all signals gets the path of traces."""
    if of_traces := environ.get(_OTLP_PREFIX + "TRACES_ENDPOINT", "").strip():
        return of_traces
    base = environ.get(_OTLP_PREFIX + "ENDPOINT", "").strip()
    return base and base.rstrip("/") + TRACES_PATH


def _with_path(url: str) -> str:
    """The address in the file, which may be that of the collector or the whole one."""
    return url if urlsplit(url).path.endswith(TRACES_PATH) else url.rstrip("/") + TRACES_PATH


def _shown(url: str) -> str:
    """Without a password."""
    return url.rpartition("@")[2][:200]


class _Variables:
    def __init__(self, environ: Mapping[str, str], warn: Callable[[str], None]) -> None:
        self._environ = environ
        self._warn = warn

    def _get(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    def of_traces(self, name: str) -> str:
        """The one for traces wins over the one for all signals."""
        return self._get(f"{_OTLP_PREFIX}TRACES_{name}") or self._get(_OTLP_PREFIX + name)

    def pairs(self, text: str) -> dict[str, str]:
        """`name=value,name=value`, with values as in addresses."""
        found = {}
        for each in filter(None, map(str.strip, text.split(","))):
            name, equals, value = each.partition("=")
            if not equals or not name.strip():
                # A value may be a secret.
                self._warn("a variable of OpenTelemetry has a part that is not `name=value`; it is ignored")
                continue
            found[unquote(name.strip())] = unquote(value.strip())
        return found

    def timeout(self) -> float:
        text = self.of_traces("TIMEOUT")
        if not text:
            return DEFAULT_TIMEOUT
        if text.isascii() and text.isdecimal() and int(text):
            return min(int(text) / 1000, MAX_TIMEOUT)
        self._warn(f"`OTEL_EXPORTER_OTLP_TIMEOUT` is `{text[:50]}`, expected milliseconds; it is ignored")
        return DEFAULT_TIMEOUT

    def is_compressed(self, host: str) -> bool:
        """Unless said otherwise, what leaves this machine is."""
        compression = self.of_traces("COMPRESSION")
        return compression == "gzip" if compression else host not in _LOCAL_COLLECTORS

    def sampler(self) -> Sampler:
        name, text = self._get("OTEL_TRACES_SAMPLER") or "parentbased_always_on", self._get("OTEL_TRACES_SAMPLER_ARG")
        if name not in SAMPLERS:
            self._warn(f"`OTEL_TRACES_SAMPLER` is `{name[:50]}`, expected one of {', '.join(SAMPLERS)}; it is ignored")
            return Sampler()
        try:
            ratio = float(text or 1.0)
        except ValueError:
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            self._warn(f"`OTEL_TRACES_SAMPLER_ARG` is `{text[:50]}`, expected a number from 0 to 1; it is ignored")
            ratio = 1.0
        return named_sampler(name, ratio)

    def resource(self) -> dict[str, str]:
        found = {"service.name": SERVICE, **self.pairs(self._get("OTEL_RESOURCE_ATTRIBUTES"))}
        if name := self._get("OTEL_SERVICE_NAME"):
            found["service.name"] = name
        return found
