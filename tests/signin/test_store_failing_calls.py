"""The file of sign-ins, whatever system call its writer dies at or is refused."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count
from pathlib import Path

import pytest

from mcp_workbench.signin.store import TokenStore
from mcp_workbench.signin.store_location import StoreUnusable
from tests.signin.test_store import put
from tests.support.failing_calls import MODES, Died, Mode, failing_at, no_descriptor_left

SERVERS = tuple(f"https://{name}.example" for name in ("one", "two", "three"))


async def script(store: TokenStore, stored: list[str]) -> None:
    for server in SERVERS:
        with contextlib.suppress(StoreUnusable):
            await put(store, server)
            stored.append(server)


@pytest.mark.parametrize("mode", MODES)
async def test_no_sign_in_that_was_stored_is_lost(tmp_path: Path, mode: Mode) -> None:
    for at in count(1):
        folder = tmp_path / str(at)
        stored: list[str] = []
        with no_descriptor_left(mode), failing_at(at, mode) as calls, contextlib.suppress(Died):
            await script(TokenStore(str(folder), keychain=False), stored)
        again = TokenStore(str(folder), keychain=False)
        found = [each.server for each in again.read().records]
        assert set(stored) <= set(found), (at, stored, found)
        assert mode.startswith("dies") or set(found) == set(stored), "what was refused is not there"
        await put(again, "https://last.example")
        assert {each.server for each in again.read().records} == {*found, "https://last.example"}
        # Drafts hold tokens.
        assert sorted(each.suffix for each in folder.iterdir()) == [".json", ".lock"], at
        if not calls.was_reached:
            assert stored == list(SERVERS)
            return
        # Let the loop run in between.
        await asyncio.sleep(0)
