"""How long a front end waits for a shared workbench, and what it says when it gives up."""

from __future__ import annotations

import _socket
import time
from types import SimpleNamespace

import pytest

from mcp_workbench.sharing.front import commanding, joining
from mcp_workbench.sharing.front.joining import CannotJoin, NotRunning


class Gone(Exception):
    """The one that was waited for has ended."""


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workbench that ends holds the lock for a while after a start would have taken too long."""
    looks = iter([False, False, False])

    def start() -> bool:
        for found in looks:
            return found
        raise Gone

    def connect() -> _socket.socket:
        raise NotRunning

    monkeypatch.setattr(joining, "start", start)
    monkeypatch.setattr(joining, "connect", connect)
    monkeypatch.setattr(joining, "WORKBENCH_START_TIMEOUT", -1.0)


@pytest.mark.usefixtures("ending")
def test_a_client_that_was_served_before_waits_for_the_end_of_a_workbench() -> None:
    with pytest.raises(Gone):
        joining.join((), b"{}", may_start=True, is_patient=True)


@pytest.mark.usefixtures("ending")
def test_commands_wait_for_the_end_of_a_workbench() -> None:
    with pytest.raises(Gone):
        commanding.ask("ping", may_start=True)


@pytest.mark.usefixtures("ending")
def test_a_client_that_starts_does_not_wait_for_the_end_of_a_workbench() -> None:
    with pytest.raises(CannotJoin, match="neither became ready nor exited"):
        joining.join((), may_start=True)


@pytest.mark.usefixtures("ending")
def test_the_end_of_a_workbench_is_not_waited_for_without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "WORKBENCH_END_TIMEOUT", 0.0)
    with pytest.raises(CannotJoin, match="neither became ready nor exited"):
        joining.join((), may_start=True, is_patient=True)


def test_silence_is_reported_with_the_time_that_was_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "time", SimpleNamespace(monotonic=lambda: 100.0))

    class Silent:
        def sendall(self, data: bytes) -> None:
            pass

        def settimeout(self, seconds: float) -> None:
            pass

        def recv(self, count: int) -> bytes:
            raise TimeoutError

    with pytest.raises(CannotJoin, match=r"did not answer within 5 s"):
        joining.exchange(Silent(), b"hello\n", 105.0)  # type: ignore[arg-type]


def test_the_answer_to_a_hello_that_is_not_read_to_its_end_is_read() -> None:
    ours, theirs = _socket.socketpair()
    theirs.send(b"\x01unable too long\n")
    theirs.close()
    try:
        assert joining.exchange(ours, b"x" * 1000, time.monotonic() + 30) == ("unable", "too long")
    finally:
        ours.close()
