"""The members of `metrics`: where metrics are served, and in which detail. Loaded only for a file that has it."""

from __future__ import annotations

from typing import Final

from mcp_workbench.engine.config.kinds import Boolean, Kind, Schema, Text
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import Declared, setting

_EXPECTED_ADDRESS: Final = "`host:port`, such as `127.0.0.1:9464`"
_ON_THIS_MACHINE: Final = "`host:port` on this machine, such as `127.0.0.1:9464`, or a `token` beside it"
_LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


class _ListeningAddress(Text):
    """`host:port`."""

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is None:
            return None
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
            reader.wrong(value, path, _EXPECTED_ADDRESS)
            return None
        return text


def is_on_this_machine(address: str) -> bool:
    """Whether nobody else can reach it."""
    return address.rpartition(":")[0] in _LOCAL_HOSTS


class MetricsConfig(Declared, frozen=True, kw_only=True):
    """Where metrics are served in addition to `/metrics` of `serve --http`."""

    address: str | None = setting(
        _ListeningAddress(_EXPECTED_ADDRESS),
        "Where `/metrics` is served: `host:port`, also over stdio and by the shared workbench. If other machines can "
        "reach it, a `token` is needed.",
    )
    token: str | None = setting(
        Text(),
        "What Prometheus has to send as a bearer token to that address. Never printed.",
        is_secret=True,
        fetches=True,
    )
    per_tool: bool = setting(
        Boolean(), "Whether calls are told apart by tool: up to 500 tools, the others are counted together.", False
    )


class _Metrics(Kind):
    """An address, or an object."""

    def __init__(self) -> None:
        self._members = Members(MetricsConfig, "`host:port` on this machine, or an object with `address` and `perTool`")
        self._address = _ListeningAddress(_EXPECTED_ADDRESS)

    def read(self, value: object, path: Path, reader: Reader) -> MetricsConfig | None:
        if isinstance(value, str):
            address = self._address.read(value, path, reader)
            found = None if address is None else MetricsConfig(address=address)
        else:
            found = self._members.read(value, path, reader)
        if found is None or found.address is None or found.token or is_on_this_machine(found.address):
            return found
        written, place = (value, path) if isinstance(value, str) else (found.address, (*path, "address"))
        reader.wrong(written, place, _ON_THIS_MACHINE)
        return None

    def schema(self) -> Schema:
        return {"anyOf": [self._address.schema(), self._members.schema()]}


METRICS: Final = _Metrics()
