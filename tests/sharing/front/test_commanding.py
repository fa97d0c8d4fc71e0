"""What commands say to the shared workbench, and what they make of its answers."""

from __future__ import annotations

import socket

import pytest

from mcp_workbench.sharing.front import commanding
from mcp_workbench.sharing.front.joining import NotRunning
from mcp_workbench.sharing.front.line_protocol import AGAIN, ENDING_NOW, RESTART


def test_workbench_that_another_command_ends_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(AGAIN, "requested by another"), ("", ""), (ENDING_NOW, "7 2")]
    ours, theirs = zip(*(socket.socketpair() for _ in answers), strict=True)
    for each in theirs:
        each.close()
    connections = list(ours)
    monkeypatch.setattr(commanding, "_reach", lambda: connections.pop(0))
    monkeypatch.setattr(commanding, "exchange", lambda *_: answers.pop(0))
    ended = commanding.end(RESTART)
    assert (ended.pid, ended.clients, answers, connections) == (7, 2, [], [])


def test_workbench_that_has_ended_meanwhile_is_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    found = [ours]

    def reach() -> socket.socket:
        if not found:
            raise NotRunning
        return found.pop()

    monkeypatch.setattr(commanding, "_reach", reach)
    monkeypatch.setattr(commanding, "exchange", lambda *_: (AGAIN, "requested by another"))
    with pytest.raises(NotRunning):
        commanding.end(RESTART)
