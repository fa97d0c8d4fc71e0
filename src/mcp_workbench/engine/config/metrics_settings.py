"""The members of `metrics`: where metrics are served, and in which detail. Loaded only for a file that has it."""

from __future__ import annotations

from typing import Final

from mcp_workbench.engine.config.kinds import Boolean, Kind, Schema, Text
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import Declared, setting

_EXPECTED: Final = "`host:port` on this machine, such as `127.0.0.1:9464`"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


class _LoopbackAddress(Text):
    """`host:port` that only this machine reaches, because no token is asked for there."""

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is None:
            return None
        host, _, port = text.rpartition(":")
        if host not in _LOOPBACK or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
            reader.wrong(value, path, _EXPECTED)
            return None
        return text


class MetricsConfig(Declared, frozen=True, kw_only=True):
    """Where metrics are served in addition to `/metrics` of `serve --http`."""

    address: str | None = setting(
        _LoopbackAddress(_EXPECTED),
        "Where `/metrics` is served on this machine, without a token: `host:port`. Also over stdio and by the shared "
        "workbench.",
    )
    per_tool: bool = setting(
        Boolean(), "Whether calls are told apart by tool: up to 500 tools, the others are counted together.", False
    )


class _Metrics(Kind):
    """An address, or an object."""

    def __init__(self) -> None:
        self._members = Members(MetricsConfig, "`host:port` on this machine, or an object with `address` and `perTool`")
        self._address = _LoopbackAddress(_EXPECTED)

    def read(self, value: object, path: Path, reader: Reader) -> MetricsConfig | None:
        if not isinstance(value, str):
            return self._members.read(value, path, reader)
        address = self._address.read(value, path, reader)
        return None if address is None else MetricsConfig(address=address)

    def schema(self) -> Schema:
        return {"anyOf": [self._address.schema(), self._members.schema()]}


METRICS: Final = _Metrics()
