"""`mcp-workbench team approve` reaches the workbench in which a call waits, once, and only as its own user."""

from __future__ import annotations

import asyncio
import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.engine import socket_peers
from mcp_workbench.team.policy.approval_socket import (
    ApprovalRefused,
    ApprovalReply,
    ApprovalRequest,
    ApprovalSocket,
    decide_anywhere,
)
from tests.cli.in_process import command

pytestmark = pytest.mark.processes


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", path)
        yield Path(path)


class Waiting:
    def __init__(self) -> None:
        self.calls = {"one": "box/server/tool for alice"}
        self.asked: list[tuple[str, float | None]] = []
        self.by = ""
        self.decided: dict[str, str] = {}

    async def decide(self, wanted: ApprovalRequest, by: str) -> ApprovalReply:
        # Whoever runs the command, by name and by process.
        self.by = by
        if wanted.only_shows:
            return ApprovalReply(self.calls.get(wanted.id))
        self.asked.append((wanted.id, wanted.seconds))
        if wanted.id in self.decided:
            return ApprovalReply(decided=self.decided[wanted.id])
        self.decided[wanted.id] = f"{'denied' if wanted.denies else 'approved'} by {by}"
        return ApprovalReply(self.calls.pop(wanted.id, None))


async def test_a_call_is_approved_where_it_waits(folder: Path) -> None:
    waiting = Waiting()
    socket = ApprovalSocket(waiting.decide)
    await socket.open()
    try:
        shown = await decide_anywhere(ApprovalRequest("one", only_shows=True))
        assert shown.found == "box/server/tool for alice"
        assert not waiting.asked, "looking at it allows nothing"
        who = f"{pwd.getpwuid(os.getuid()).pw_name} (process {os.getpid()})"
        assert (await decide_anywhere(ApprovalRequest("one", 5.0))).found == "box/server/tool for alice"
        again = await decide_anywhere(ApprovalRequest("one", denies=True))
        assert again == ApprovalReply(decided=f"approved by {who}"), "an approval twice is none"
        assert waiting.asked == [("one", 5.0), ("one", None)]
        assert waiting.by == who
    finally:
        socket.close()
    assert await decide_anywhere(ApprovalRequest("one")) == ApprovalReply()


async def test_another_user_cannot_approve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting()
    socket = ApprovalSocket(waiting.decide)
    await socket.open()
    monkeypatch.setattr(socket_peers, "peer_uid", lambda connection: os.getuid() + 1)
    try:
        with pytest.raises(ApprovalRefused):
            await decide_anywhere(ApprovalRequest("one"))
        assert not waiting.asked and waiting.calls
    finally:
        socket.close()


async def test_approval_is_refused_where_servers_cannot_be_distinguished(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting()
    socket = ApprovalSocket(waiting.decide)
    await socket.open()
    # As in a container in which everything has `no_new_privs`, and where the status of processes is hidden.
    for found in (True, None):
        monkeypatch.setattr(socket_peers, "_has_mark", lambda pid, found=found: found)
        with pytest.raises(ApprovalRefused):
            await decide_anywhere(ApprovalRequest("one"))
        with pytest.raises(ApprovalRefused):
            await decide_anywhere(ApprovalRequest("one", only_shows=True))
    socket.close()
    assert not waiting.asked and waiting.calls


def test_a_refused_approval_says_where_to_answer_instead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def decide(wanted: ApprovalRequest) -> ApprovalReply:
        raise ApprovalRefused

    monkeypatch.setattr("mcp_workbench.cli.commands.approve.decide_anywhere", decide)
    done = command(monkeypatch, "approve", "abc")
    assert done.status == 1 and done.stdout == ""
    assert "no_new_privs" in done.stderr and "answer in a client that can ask you" in done.stderr


@pytest.mark.parametrize("sent", [b"", b"{}\n", b"no JSON\n", b"x" * 10_000, b'{"id": 7}\n'])
async def test_other_input_approves_nothing(folder: Path, sent: bytes) -> None:
    waiting = Waiting()
    socket = ApprovalSocket(waiting.decide)
    await socket.open()
    try:
        (path,) = folder.glob("*/*.approve.sock")
        assert path.parent.stat().st_mode & 0o077 == 0
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert not waiting.asked
        assert (await decide_anywhere(ApprovalRequest("one"))).found is not None, "it goes on"
    finally:
        socket.close()


def test_nothing_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, "approve", "abc")
    assert done.status == 2 and "no call is waiting for the approval `abc`" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "ID is missing"),
        (("abc", "--for", "soon"), "is not a number of seconds"),
        (("abc", "--for", "0"), "is not a"),
        (("abc", "--deny", "--for", "60"), "`--deny` cannot be combined"),
        (("abc", "--deny", "--show"), "`--deny` cannot be combined"),
    ],
)
def test_a_wrong_command_line_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    done = command(monkeypatch, "approve", *words)
    assert done.status == 2 and said in done.stderr


def test_the_reply_to_an_approval_or_denial_is_printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def decide(wanted: ApprovalRequest) -> ApprovalReply:
        return ApprovalReply(f"{wanted.id} shown\n{{\n}}" if wanted.only_shows else f"{wanted.id} for {wanted.seconds}")

    monkeypatch.setattr("mcp_workbench.cli.commands.approve.decide_anywhere", decide)
    done = command(monkeypatch, "approve", "abc", "--for", "60")
    assert (done.status, done.stdout) == (0, "approved: abc for 60.0\n")
    done = command(monkeypatch, "approve", "abc", "--show")
    assert (done.status, done.stdout) == (0, "abc shown\n{\\n}\n"), "in a line of its own, whatever is in it"
    done = command(monkeypatch, "approve", "abc", "--deny")
    assert (done.status, done.stdout) == (0, "denied: abc for None\n")


def test_second_decision_returns_the_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def decide(wanted: ApprovalRequest) -> ApprovalReply:
        return ApprovalReply(decided="denied by ada (process 7)")

    monkeypatch.setattr("mcp_workbench.cli.commands.approve.decide_anywhere", decide)
    done = command(monkeypatch, "approve", "abc")
    assert done.status == 2 and done.stdout == ""
    assert "the call `abc` has been denied by ada (process 7) already" in done.stderr
