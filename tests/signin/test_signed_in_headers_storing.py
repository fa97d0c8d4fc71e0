"""Refresh tokens on a full disk, in a stopped process, at a failing authorization server: none is lost or reused."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin import store as store_module
from mcp_workbench.signin.flow_io import NotNow
from mcp_workbench.signin.store import SignInRecord, lock_name
from mcp_workbench.signin.store_location import StoreUnusable
from tests.signin.authority import SignInSetup, another, sign_in_setup
from tests.support.processes import eventually

pytestmark = pytest.mark.processes


def due(record: SignInRecord) -> SignInRecord:
    return replace(record, obtained_at=time.time() - 900, expires_at=time.time() + 100)


def over(record: SignInRecord) -> SignInRecord:
    return replace(record, obtained_at=time.time() - 900, expires_at=time.time() - 1)


def sent_refresh_tokens(at: SignInSetup) -> list[str]:
    return [asked["refresh_token"] for asked in at.authority.token_requests if asked["grant_type"] == "refresh_token"]


@contextlib.contextmanager
def full_when_storing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The room that was reserved is gone when the answer is to be stored: a quota, a disk that fails."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        yield


@contextlib.asynccontextmanager
async def closing(setup: SignInSetup) -> AsyncIterator[SignInSetup]:
    try:
        yield setup
    finally:
        await setup.sign_ins.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that can be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("mounting a file system needs root and the right to do so")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room for a single byte more."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return path


@pytest.mark.requirement("signin.never-lost")
async def test_a_refresh_is_not_sent_while_the_disk_is_full(small_disk: Path) -> None:
    async with sign_in_setup(small_disk) as at:
        await at.log_in()
        await at.change(due)
        filler = fill(small_disk)
        assert await at.call() == 200, "the token is good for a while"
        assert at.authority.refreshes == 0
        filler.unlink()
        await at.change(over)
        at.authority.expire()
        filler = fill(small_disk)
        for _ in range(3):
            with pytest.raises(StoreUnusable, match="No space left"):
                await at.call()
        assert at.authority.refreshes == 0
        filler.unlink()
        assert await at.call() == 200
        assert sent_refresh_tokens(at) == ["refresh-1"]
        assert at.record.refresh_token == "refresh-2"


async def test_the_reserved_room_suffices_when_the_disk_fills_up_after_sending(small_disk: Path) -> None:
    async with sign_in_setup(small_disk, token_answer={"expires_in": 3600, "scope": "s" * 4000}) as at:
        await at.log_in()
        await at.change(due)

        async def others_write() -> None:
            fill(small_disk)

        at.authority.before_token = others_write
        assert await at.call() == 200
        assert at.record.refresh_token == "refresh-2", "it is on the disk, and read from there"
        assert sorted(path.suffix for path in (small_disk / "sign-ins").iterdir()) == [".json", ".lock", ".lock"]


@pytest.mark.requirement("signin.never-lost")
async def test_a_token_that_cannot_be_stored_is_used_from_memory_and_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "SAVE_RETRY_DELAY", 0.01)
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        at.authority.expire()
        on_disk = Path(at.sign_ins.store.path)
        with full_when_storing(monkeypatch):
            assert [await at.call() for _ in range(3)] == [200] * 3
            assert sent_refresh_tokens(at) == ["refresh-1"]
            assert json.loads(on_disk.read_bytes())["records"][0]["refresh_token"] == "refresh-1"
        await eventually(lambda: json.loads(on_disk.read_bytes())["records"][0]["refresh_token"] == "refresh-2")
        assert await another(at).call() == 200
        assert sent_refresh_tokens(at) == ["refresh-1"]


async def test_a_sign_in_that_is_only_in_memory_is_refreshed_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path, ttl=-1) as at:
        await at.log_in()
        await at.change(over)
        with full_when_storing(monkeypatch):
            for _ in range(2):
                at.authority.expire()
                assert await at.call() == 200
                monkeypatch.setattr(at.source, "_last_chance", ("", 0.0))
            assert sent_refresh_tokens(at) == ["refresh-1", "refresh-2"]
        await at.sign_ins.close()
        assert at.record.refresh_token == "refresh-3", "stored when the workbench ends, at the latest"


@pytest.mark.requirement("signin.never-lost")
async def test_another_process_does_not_send_a_token_whose_answer_waits_in_our_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path) as at, closing(another(at)) as other:
        await at.log_in()
        await at.change(over)
        at.authority.expire()
        with full_when_storing(monkeypatch):
            assert await at.call() == 200
            for _ in range(2):
                with pytest.raises(StoreUnusable, match="has not been able to store"):
                    await other.call()
            assert sent_refresh_tokens(at) == ["refresh-1"]
        await at.sign_ins.close()
        assert await other.call() == 200
        assert sent_refresh_tokens(at) == ["refresh-1"]


async def test_a_token_whose_answer_was_lost_with_its_process_is_never_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path) as at, closing(another(at)) as other:
        await at.log_in()
        await at.change(over)
        at.authority.expire()
        with full_when_storing(monkeypatch):
            assert await other.call() == 200
            # Ends without having been able to store it.
            await other.sign_ins.close()
        for _ in range(2):
            with pytest.raises(SignInNeeded, match="could not be stored"):
                await at.call()
        assert sent_refresh_tokens(at) == ["refresh-1"]
        await at.log_in()
        assert await at.call() == 200


async def test_a_token_whose_process_ended_without_an_answer_is_tried_again(tmp_path: Path) -> None:
    """Only another attempt can tell whether it still works; and what the process had reserved is reused."""
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        at.authority.expire()
        name = lock_name(at.target.principal, at.target.server)
        async with at.sign_ins.store.refreshing(name, 1.0) as turn:
            at.sign_ins.store.reserve(turn, "refresh-1")
            room = Path(turn.room).read_bytes()
        Path(turn.room).write_bytes(room)
        assert await at.call() == 200
        assert sent_refresh_tokens(at) == ["refresh-1"]
        assert not Path(turn.room).exists()
        assert Path(turn.room).with_suffix(".lock").read_bytes() == b"", "nothing is left to say about it"


async def test_signing_in_again_wins_over_a_token_that_waits_to_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        with full_when_storing(monkeypatch):
            assert await at.call() == 200
        await at.log_in()
        assert at.record.refresh_token == "refresh-3"
        await at.sign_ins.close()
        assert at.record.refresh_token == "refresh-3"


async def test_a_grant_that_is_over_is_not_asked_about_again_although_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        at.authority.expire()
        at.authority.refresh_tokens.clear()
        with full_when_storing(monkeypatch):
            with pytest.raises(SignInNeeded):
                await at.call()
            with contextlib.suppress(StoreUnusable, SignInNeeded):
                await at.call()
            assert at.authority.refreshes == 1


@pytest.mark.requirement("signin.never-lost")
async def test_an_answer_that_arrived_while_the_process_was_stopped_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-Z for 65 s: the clock has jumped, and the answer is in the socket, unread."""
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        at.authority.expire()
        loop = asyncio.get_running_loop()
        clock = loop.time

        async def stop() -> None:
            monkeypatch.setattr(loop, "time", lambda: clock() + 65.0)

        at.authority.before_token = stop
        assert await at.call() == 200
        assert sent_refresh_tokens(at) == ["refresh-1"]
        assert at.record.refresh_token == "refresh-2"


async def test_a_failing_authorization_server_is_asked_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + now[0])
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        at.authority.expire()
        at.authority.token_faults = [(503, b"later")] * 100
        asked, said = [], ""
        for second in range(120):
            now[0] = float(second)
            for _ in range(3):
                with pytest.raises(NotNow) as failed:
                    await at.call()
                said = failed.value.message
            asked.append(at.authority.refreshes)
        assert "503" in said
        assert "the next attempt is in" in said
        gaps = [second for second in range(1, 120) if asked[second] > asked[second - 1]]
        assert 4 <= at.authority.refreshes <= 10
        assert gaps == sorted(gaps) and gaps[-1] - gaps[-2] >= 30
        at.authority.token_faults = []
        now[0] += 60
        assert await at.call() == 200
        assert at.record.refresh_token == "refresh-2"


async def test_the_trouble_of_one_sign_in_keeps_no_other_from_the_same_authorization_server(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at, closing(another(at)) as unused:
        people = []
        for name in ("alice", "bob"):
            person = another(at, name)
            person.sign_ins, person.source = at.sign_ins, at.sign_ins.source(person.target, {})
            await person.log_in()
            await person.change(over)
            people.append(person)
        alice, bob = people
        at.authority.expire()
        at.authority.token_faults = [(500, b"")]
        with pytest.raises(NotNow):
            await alice.call()
        assert await bob.call() == 200
        assert await alice.call() == 200, "it has just answered somebody"
        assert unused.authority.refreshes == 3
