"""Where metrics are served: an address of this machine, or an object; anything else is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.engine.config.metrics_settings import MetricsConfig
from tests.engine.config.loading import parsed, problems_of

SERVERS = {"mcpServers": {"s": {"command": "x"}}}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("127.0.0.1:9464", MetricsConfig(address="127.0.0.1:9464")),
        ("[::1]:0", MetricsConfig(address="[::1]:0")),
        ({"address": "localhost:1", "perTool": True}, MetricsConfig(address="localhost:1", per_tool=True)),
        ({"perTool": True}, MetricsConfig(per_tool=True)),
        ({"address": "0.0.0.0:1", "token": "t0ken"}, MetricsConfig(address="0.0.0.0:1", token="t0ken")),
        ({"token": "t0ken", "address": "[::1]:1"}, MetricsConfig(address="[::1]:1", token="t0ken")),
    ],
)
def test_an_address_or_an_object(written: Any, meant: MetricsConfig) -> None:
    assert parsed({**SERVERS, "metrics": written}).metrics == meant


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("0.0.0.0:9464", "$.metrics"),
        ("metrics.example:9464", "$.metrics"),
        ("127.0.0.1", "$.metrics"),
        ("127.0.0.1:99999", "$.metrics"),
        (9464, "$.metrics"),
        ({"address": "10.0.0.1:1"}, "$.metrics.address"),
        ({"address": "10.0.0.1:1", "token": ""}, "$.metrics.token"),
        ({"address": "nothing", "token": "t0ken"}, "$.metrics.address"),
        ({"perTool": "often"}, "$.metrics.perTool"),
        ({"port": 9464}, "$.metrics.port"),
    ],
)
def test_exposed_or_unknown_metrics_settings_are_refused(written: Any, place: str) -> None:
    assert place in problems_of({**SERVERS, "metrics": written}).message
