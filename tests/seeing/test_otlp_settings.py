"""Where spans go: by the setting `telemetry` and the variables of OpenTelemetry."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.telemetry_settings import TelemetryConfig
from mcp_workbench.seeing.otlp_settings import OtlpSettings, is_wanted, settings_of
from mcp_workbench.seeing.trace_context import Sampler

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


def settings(telemetry: TelemetryConfig | None, environ: dict[str, str]) -> OtlpSettings:
    warnings: list[str] = []
    found = settings_of(telemetry, environ, warnings.append)
    assert found is not None and not warnings
    return found


@pytest.mark.parametrize(
    ("telemetry", "environ", "expected"),
    [
        (None, {}, False),
        (None, {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, False),
        (None, ENDPOINT, True),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/"}, True),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        (None, {**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False),
        (None, {**ENDPOINT, "OTEL_SDK_DISABLED": "1"}, True),
        (None, {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        (None, {**ENDPOINT, "OTEL_TRACES_EXPORTER": "console,otlp"}, True),
        (TelemetryConfig(is_on=False), ENDPOINT, False),
        (TelemetryConfig(traces=0.5), {}, False),
        (TelemetryConfig(traces=0.5), ENDPOINT, True),
        # What is written in the file is meant.
        (TelemetryConfig(otlp="http://c"), {"OTEL_SDK_DISABLED": "true"}, True),
    ],
)
def test_traces_are_sent_where_the_file_or_the_environment_says_so(
    telemetry: TelemetryConfig | None, environ: dict[str, str], expected: bool
) -> None:
    assert is_wanted(telemetry, environ) is expected


@pytest.mark.parametrize(
    ("telemetry", "environ", "url"),
    [
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/base/"}, "http://c:4318/base/v1/traces"),
        (None, {**ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/own"}, "http://c/own"),
        (TelemetryConfig(otlp="http://c:1/"), ENDPOINT, "http://c:1/v1/traces"),
        (TelemetryConfig(otlp="https://c/v1/traces"), {}, "https://c/v1/traces"),
    ],
)
def test_path_of_traces_is_added_to_an_address_for_all_signals(
    telemetry: TelemetryConfig | None, environ: dict[str, str], url: str
) -> None:
    assert settings(telemetry, environ).url == url


def test_defaults_are_those_of_opentelemetry() -> None:
    found = settings(None, ENDPOINT)
    assert (found.sampler, found.timeout, found.headers) == (Sampler(1.0, follows_parent=True), 10.0, {})
    assert found.resource == {"service.name": "mcp-workbench"}


def test_variables_of_traces_win_over_those_of_all_signals() -> None:
    found = settings(
        None,
        ENDPOINT
        | {
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "api-key=s%20e%3D, b = 2",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "5000",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "250",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "none",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.25",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,deployment.environment.name=my%20desk",
            "OTEL_SERVICE_NAME": "bench",
        },
    )
    assert found.headers == {"api-key": "s e=", "b": "2"}
    assert (found.timeout, found.is_compressed, found.certificate) == (0.25, False, "/ca.pem")
    assert found.sampler == Sampler(0.25, follows_parent=False)
    assert found.resource == {"service.name": "bench", "deployment.environment.name": "my desk"}


@pytest.mark.parametrize(
    ("host", "variable", "expected"),
    [
        ("127.0.0.1", "", False),
        ("[::1]", "", False),
        ("collector.example", "", True),
        ("collector.example", "none", False),
        ("localhost", "gzip", True),
    ],
)
def test_remote_export_is_compressed_by_default(host: str, variable: str, expected: bool) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host}:4318", "OTEL_EXPORTER_OTLP_COMPRESSION": variable}
    assert settings(None, environ).is_compressed is expected


def test_file_wins_over_variables() -> None:
    written = TelemetryConfig(otlp="http://c", traces=0.1, headers={"x": "file"})
    found = settings(written, {"OTEL_EXPORTER_OTLP_HEADERS": "x=variable,y=2", "OTEL_TRACES_SAMPLER": "always_off"})
    assert found.headers == {"x": "file", "y": "2"} and found.sampler == Sampler(0.1, follows_parent=True)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "`soon`, expected milliseconds"),
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "`sometimes`, expected one of always_on"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}, "`2`, expected a number from 0"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=1,secret"}, "not `name=value`"),
    ],
)
def test_variable_with_an_invalid_value_is_reported_and_ignored(environ: dict[str, str], said: str) -> None:
    warnings: list[str] = []
    assert settings_of(None, {**ENDPOINT, **environ}, warnings.append) is not None
    assert len(warnings) == 1 and said in warnings[0] and "secret" not in warnings[0]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "port 4318"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "not an http:// or https:// address"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "ftp://me:pass@c"}, "`c/v1/traces` is not"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:99999"}, "is not"),
    ],
)
def test_unusable_collector_address_is_reported(environ: dict[str, str], said: str) -> None:
    warnings: list[str] = []
    assert settings_of(None, environ, warnings.append) is None
    assert len(warnings) == 1 and said in warnings[0] and "pass" not in warnings[0]
