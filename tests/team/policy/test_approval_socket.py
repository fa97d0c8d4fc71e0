"""What the approval socket does with those who connect to it, one conversation at a time and without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.json import decode, encode

from mcp_workbench.team.policy import approval_socket
from mcp_workbench.team.policy.approval_socket import (
    MAX_APPROVAL_REQUEST_BYTES,
    ApprovalReply,
    ApprovalRequest,
    ApprovalSocket,
)

APPROVE = encode(ApprovalRequest(id="two")) + b"\n"


class Peer:
    """Somebody who has connected (`StreamWriter`): what they said, and what they were told."""

    def __init__(self, said: bytes) -> None:
        self.reader = asyncio.StreamReader(limit=MAX_APPROVAL_REQUEST_BYTES)
        self.reader.feed_data(said)
        self.told = b""
        self.is_closed = False

    def get_extra_info(self, name: str) -> object:
        return self

    def write(self, data: bytes) -> None:
        self.told += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Approvals:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_allowed: bool) -> None:
        self.decided: list[tuple[str, str]] = []
        monkeypatch.setattr(approval_socket, "may_decide", lambda connection: is_allowed)
        monkeypatch.setattr(approval_socket, "described_peer", lambda connection: "ann")
        self._socket = ApprovalSocket(self._decide)

    async def _decide(self, request: ApprovalRequest, who: str) -> ApprovalReply:
        self.decided.append((request.id, who))
        return ApprovalReply(found="the call")

    async def answer(self, peer: Peer) -> None:
        writer: Any = peer
        await self._socket._answer(peer.reader, writer)
        assert peer.is_closed


async def test_permitted_peer_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    approvals, peer = Approvals(monkeypatch, is_allowed=True), Peer(APPROVE)
    await approvals.answer(peer)
    assert decode(peer.told, type=ApprovalReply).found == "the call"
    assert approvals.decided == [("two", "ann")]


async def test_peer_without_permission_is_refused_after_its_request_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is answered and left before it has written finds a broken pipe, and never reads why."""
    approvals, peer = Approvals(monkeypatch, is_allowed=False), Peer(APPROVE)
    await approvals.answer(peer)
    assert decode(peer.told, type=ApprovalReply) == ApprovalReply(is_refused=True)
    peer.reader.feed_eof()
    assert await peer.reader.read() == b"" and approvals.decided == []


@pytest.mark.parametrize("is_allowed", [True, False])
@pytest.mark.parametrize("said", [b"", b"x" * (2 * MAX_APPROVAL_REQUEST_BYTES), b"nothing of the kind\n"])
async def test_invalid_request_is_waited_for_briefly_and_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, said: bytes, is_allowed: bool
) -> None:
    monkeypatch.setattr(approval_socket, "LOCAL_ANSWER_TIMEOUT", 0.0 if not said else 60.0)
    approvals, peer = Approvals(monkeypatch, is_allowed=is_allowed), Peer(said)
    await approvals.answer(peer)
    assert approvals.decided == [] and b"the call" not in peer.told
