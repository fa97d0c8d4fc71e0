"""Refreshed tokens that cannot be stored: used from memory, stored later, and refreshed by no other process."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.signin import store as module
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.refresh_turn import RefreshTurn
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore
from mcp_workbench.signin.store_location import StoreUnusable
from tests.support.virtual_time import VirtualLoop

ISSUER = "https://auth.example"
ONE, TWO = "https://one.example", "https://two.example"


def record(server: str, refresh_token: str | None, client: str = "app") -> SignInRecord:
    return SignInRecord(
        principal="",
        server=server,
        issuer=ISSUER,
        client=OAuthClient(issuer=ISSUER, id=client),
        token_endpoint=f"{ISSUER}/token",
        access_token=f"access with {refresh_token}",
        refresh_token=refresh_token,
    )


def tokens(contents: Contents) -> dict[str, str | None]:
    return {each.server: each.refresh_token for each in contents.records}


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    store = TokenStore(str(tmp_path / "sign-ins"), keychain=False)

    def sign_in(contents: Contents) -> None:
        contents.put(record(ONE, "first"))
        contents.put(record(TWO, "second"))
        contents.put_client(OAuthClient(issuer="https://other.example", id="other"))
        contents.put_client(OAuthClient(issuer=ISSUER, id="app"))

    asyncio.run(store.change(sign_in))
    return store


def another(store: TokenStore) -> TokenStore:
    """Of another process."""
    return TokenStore(os.path.dirname(store.path), keychain=False)


@contextmanager
def full_disk(clock: Callable[[], float] = time.monotonic) -> Iterator[list[float]]:
    """Nothing can be stored. Yields when it was tried."""
    tried: list[float] = []

    def fail(draft: str, path: str) -> None:
        tried.append(clock())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", fail)
        yield tried


@asynccontextmanager
async def refreshing(store: TokenStore, server: str, name: str = "name") -> AsyncIterator[RefreshTurn]:
    """Up to the answer."""
    async with store.refreshing(name, 0.0) as turn:
        (earlier,) = (each for each in store.read().records if each.server == server)
        store.reserve(turn, earlier.refresh_token or "")
        turn.answered()
        yield turn


async def refresh(store: TokenStore, server: str, before: str, after: str, name: str = "name") -> Contents:
    async with refreshing(store, server, name) as turn:
        return await store.renew(record(server, after), record(server, before), turn)


def left_behind(store: TokenStore) -> dict[str, bytes]:
    """What is beside the sign-ins and says something."""
    folder = Path(store.path).parent
    return {
        each.name: content
        for each in folder.iterdir()
        if each.name != "sign-ins.json" and (content := each.read_bytes())
    }


async def test_a_refreshed_record_takes_the_reserved_room(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[tuple[str, int]] = []
    real = os.replace

    def replace_file(draft: str, path: str) -> None:
        replaced.append((draft, os.stat(draft).st_size))
        real(draft, path)

    monkeypatch.setattr(os, "replace", replace_file)
    contents = await refresh(store, ONE, "first", "third")
    assert tokens(contents) == tokens(another(store).read()) == {TWO: "second", ONE: "third"}
    # The room is larger, and what was in it is gone.
    assert replaced == [(str(Path(store.path).parent / "name.reserved"), os.stat(store.path).st_size)]
    assert left_behind(store) == {}
    async with another(store).refreshing("name", 0.0) as turn:
        assert not turn.was_exchanged("first") and not turn.was_exchanged("third")


async def test_the_room_holds_the_whole_file_and_an_answer(store: TokenStore) -> None:
    async with store.refreshing("name", 0.0) as turn:
        store.reserve(turn, "first")
        assert os.stat(turn.room).st_size == os.stat(store.path).st_size + module.ANSWER_ROOM_BYTES
    assert not os.path.exists(turn.room)


async def test_a_room_that_was_taken_away_is_done_without(store: TokenStore) -> None:
    async with refreshing(store, ONE) as turn:
        os.unlink(turn.room)
        os.symlink(f"{store.path}.elsewhere", turn.room)
        Path(f"{store.path}.elsewhere").write_text("somebody's")
        contents = await store.renew(record(ONE, "third"), record(ONE, "first"), turn)
    assert tokens(contents) == tokens(another(store).read()) == {TWO: "second", ONE: "third"}
    assert Path(f"{store.path}.elsewhere").read_text() == "somebody's"


async def test_without_room_for_the_answer_nothing_is_to_be_sent(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with store.refreshing("name", 0.0) as turn:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreUnusable, match=r"the token was not refreshed, .*: No space left on device"):
                store.reserve(turn, "first")
        assert not os.path.exists(turn.room), "a full disk is not filled further"
    assert left_behind(store) == {}


async def test_a_token_that_cannot_be_stored_is_used_from_memory(store: TokenStore) -> None:
    with full_disk():
        contents = await refresh(store, ONE, "first", "third")
        assert tokens(contents) == tokens(store.read()) == {TWO: "second", ONE: "third"}
        assert tokens(another(store).read()) == {ONE: "first", TWO: "second"}
        with pytest.raises(StoreUnusable, match="another workbench has refreshed this sign-in and has not been able"):
            async with another(store).refreshing("name", 30.0):
                pytest.fail("its token was exchanged")
        # The turn for another sign-in is free.
        async with another(store).refreshing("other", 0.0):
            pass
        # So is this one for the process that has the token, which replaces it once more.
        again = await refresh(store, ONE, "third", "fourth")
        assert tokens(again) == {TWO: "second", ONE: "fourth"}
    stored = await store.change(lambda contents: contents.satisfy("", ONE))
    assert tokens(stored) == tokens(another(store).read()) == {TWO: "second", ONE: "fourth"}
    assert left_behind(store) == {}
    async with another(store).refreshing("name", 0.0) as turn:
        assert not turn.was_exchanged("first")
    await store.close()


async def test_stored_value_is_not_stored_again(store: TokenStore) -> None:
    with full_disk():
        await refresh(store, ONE, "first", "third")
    await store.change(lambda contents: None)
    # The user goes back to what was there, at another terminal.
    await another(store).change(lambda contents: contents.put(record(ONE, "first")))
    assert tokens(store.read()) == {TWO: "second", ONE: "first"}
    before = store.stamp()
    await store.close()
    assert store.stamp() == before


async def test_two_sign_ins_that_cannot_be_stored(store: TokenStore) -> None:
    with full_disk():
        await refresh(store, ONE, "first", "third", "name")
        contents = await refresh(store, TWO, "second", "fourth", "other")
        assert tokens(contents) == {ONE: "third", TWO: "fourth"}
        for name in ("name", "other"):
            with pytest.raises(StoreUnusable, match="has not been able to store it"):
                async with another(store).refreshing(name, 0.0):
                    pytest.fail("its token was exchanged")
    await store.change(lambda contents: None)
    assert tokens(another(store).read()) == {ONE: "third", TWO: "fourth"}
    for name in ("name", "other"):
        async with another(store).refreshing(name, 0.0):
            pass
    await store.close()


async def test_two_refreshes_of_a_kept_sign_in_take_turns(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STORE_LOCK_POLL_INTERVAL", 0.001)
    descriptors = len(os.listdir("/proc/self/fd"))
    with full_disk():
        await refresh(store, ONE, "first", "third")
        held = len(os.listdir("/proc/self/fd"))
        async with store.refreshing("name", 0.0) as turn:
            with pytest.raises(StoreUnusable, match="another workbench has held"):
                async with store.refreshing("name", 0.0):
                    pytest.fail("it is not our turn")
            # The disk has room again: what is stored settles the turn, which is not over yet.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "replace", os.rename)
                await store.change(lambda contents: None)
            assert not turn.is_kept
            with pytest.raises(StoreUnusable, match="another workbench has held"):
                async with another(store).refreshing("name", 0.0):
                    pytest.fail("it is not their turn")
        assert held == descriptors + 1
    assert len(os.listdir("/proc/self/fd")) == descriptors
    async with another(store).refreshing("name", 0.0):
        pass
    await store.close()


async def test_refusal_that_cannot_be_stored_delays_no_request(store: TokenStore) -> None:
    """The token was not exchanged, so any process may try it again."""
    with full_disk():
        async with store.refreshing("name", 0.0) as turn:
            store.reserve(turn, "first")
            await store.renew(replace(record(ONE, "first"), ended="for now"), record(ONE, "first"), turn)
        async with another(store).refreshing("name", 0.0):
            pass
    await store.close()


@pytest.mark.parametrize("forgets_client", [True, False])
async def test_a_client_that_is_no_longer_known_is_forgotten_with_its_tokens(
    store: TokenStore, forgets_client: bool
) -> None:
    async with refreshing(store, ONE) as turn:
        contents = await store.renew(record(ONE, None), record(ONE, "first"), turn, forgets_client=forgets_client)
    assert [each.id for each in contents.clients] == (["other"] if forgets_client else ["other", "app"])


@pytest.mark.parametrize("action", ["out", "in"])
async def test_concurrent_changes_of_the_user_win(store: TokenStore, action: str) -> None:
    with full_disk():
        await refresh(store, ONE, "first", "third")

    def act(contents: Contents) -> None:
        contents.records = [each for each in contents.records if each.server != ONE]
        if action == "in":
            contents.put(record(ONE, "new"))

    await another(store).change(act)
    wanted = {TWO: "second"} if action == "out" else {TWO: "second", ONE: "new"}
    assert tokens(store.read()) == wanted
    await store.close()
    assert tokens(another(store).read()) == wanted


def test_storing_is_tried_again_less_and_less_often(store: TokenStore, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with full_disk(loop.time) as tried:
            await refresh(store, ONE, "first", "third")
            await asyncio.sleep(2)
            # A second refresh starts no second task.
            await refresh(store, ONE, "third", "fourth")
            await asyncio.sleep(120)
        # The first refresh tries its reserved room, too.
        assert [round(each - began) for each in tried] == [0, 0, 1, 2, 3, 7, 15, 31, 61, 91, 121]
        assert "are now in" not in caplog.text
        await asyncio.sleep(30)
        assert tokens(another(store).read())[ONE] == "fourth" and "are now in" in caplog.text
        # The next failure is tried again from the beginning.
        began = loop.time()
        with full_disk(loop.time) as tried:
            await refresh(store, ONE, "fourth", "fifth")
            await asyncio.sleep(2)
        assert [round(each - began) for each in tried] == [0, 0, 1]
        await asyncio.sleep(1.5)
        assert tokens(another(store).read())[ONE] == "fifth"
        await store.close()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(0)) as runner:
        runner.run(run())


async def test_a_failed_start_of_storing_is_used_even_if_nothing_can_be_read(store: TokenStore) -> None:
    async with refreshing(store, ONE) as turn:
        os.chmod(store.path, 0o644)
        contents = await store.renew(record(ONE, "third"), record(ONE, "first"), turn)
        assert tokens(contents) == {ONE: "third"}
        os.chmod(store.path, 0o600)
    await store.close()


async def test_closing_stores_pending_renewals(store: TokenStore) -> None:
    with full_disk():
        await refresh(store, ONE, "first", "third")
    await store.close()
    assert tokens(another(store).read()) == {TWO: "second", ONE: "third"}
    async with another(store).refreshing("name", 0.0):
        pass


async def test_closing_names_the_sign_ins_that_are_lost(store: TokenStore, caplog: pytest.LogCaptureFixture) -> None:
    with full_disk():
        await refresh(store, ONE, "first", "third", "name")
        await refresh(store, TWO, "second", "fourth", "other")
        await store.close()
    assert f"you have to sign in again to {ONE}, {TWO}" in caplog.text
    assert tokens(another(store).read()) == {ONE: "first", TWO: "second"}
    # Unlocked; the note says what became of its token.
    for name, token in (("name", "first"), ("other", "second")):
        async with another(store).refreshing(name, 0.0) as turn:
            assert turn.was_exchanged(token)
    assert len(asyncio.all_tasks()) == 1
