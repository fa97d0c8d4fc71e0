"""Begins to trace the calls of a gateway: reads where spans go, and fetches what its headers refer to. Loaded only if
the configuration or the environment names a collector."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcp_workbench.engine.config.redact import secrets_in
from mcp_workbench.seeing.otlp_settings import is_wanted, settings_of
from mcp_workbench.seeing.span_sender import SpanSender
from mcp_workbench.seeing.tracing import CallTracer

if TYPE_CHECKING:
    from mcp_workbench.app.runtime import Runtime
    from mcp_workbench.engine.config.model import ReferringValue, WorkbenchConfig
    from mcp_workbench.seeing.otlp_settings import OtlpSettings

log = logging.getLogger(__name__)

Use = Callable[[CallTracer], None]


def begin_traces(runtime: Runtime, config: WorkbenchConfig, environ: Mapping[str, str], use: Use) -> None:
    """`use` is told of the tracer, if there is to be one: at once, unless headers have to be fetched."""
    telemetry = config.telemetry
    if not is_wanted(telemetry, environ):
        return
    settings = settings_of(telemetry, environ, log.warning)
    if settings is None:
        return
    references = [value for value in config.references if value.field[:2] == ("telemetry", "headers")]
    if references:
        _ = runtime.start_task(_fetch_and_begin(runtime, settings, references, environ, use))
    else:
        use(_tracer(runtime, settings))


async def _fetch_and_begin(
    runtime: Runtime,
    settings: OtlpSettings,
    references: list[ReferringValue],
    environ: Mapping[str, str],
    use: Use,
) -> None:
    from mcp_workbench.signin.secrets.resolve import ReferenceUnresolved, resolve_value

    headers = dict(settings.headers)
    for value in references:
        try:
            found = await resolve_value(value, environ)
        except ReferenceUnresolved as error:
            log.warning("no traces are sent: %s", error.message)
            return
        runtime.redactor.replace(value, found.secrets)
        for warning in found.warnings:
            log.warning("%s", warning)
        headers[str(value.field[2])] = found.text.strip()
    use(_tracer(runtime, replace(settings, headers=headers)))


def _tracer(runtime: Runtime, settings: OtlpSettings) -> CallTracer:
    # Those from variables, which no file has told of.
    runtime.redactor.replace(
        "telemetry", frozenset(part for each in settings.headers.items() for part in secrets_in(*each))
    )
    sender = next((each for each in runtime.counting.span_senders if each.settings == settings), None)
    if sender is None:
        sender = SpanSender(settings, runtime.redactor.text)
        runtime.counting.span_senders.append(sender)
    return CallTracer(settings.sampler, sender)
