"""Sign-ins in a shared workbench: each file has the store that it asks for, whoever came first."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.process_context import runtime_folder
from tests.sharing.harness import Shared
from tests.signin.authority import SignInSetup, sign_in_setup
from tests.signin.command_line import CommandLine
from tests.signin.test_signed_in_headers import over
from tests.support import fake_keyring
from tests.support.processes import eventually

ENCRYPTED = "are not encrypted, and the configuration says `keychain: true`"


async def said_to(shared: Shared, at: SignInSetup, folder: Path, **settings: Any) -> str:
    """What a client hears who calls the server that somebody has signed in to."""
    box = {"box": {"files": {"url": at.authority.url, "protocol": "legacy"}}}
    folder.mkdir(exist_ok=True)
    each = Shared(folder)
    async with each.client(box, **settings) as client:
        assert "shared workbench" not in client.stderr or shared.is_running
        answered = await client.use_tool("box", "files", "read")
        return str(answered["content"][0]["text"])


@pytest.mark.parametrize("insists_first", [True, False])
async def test_a_file_that_wants_encrypted_sign_ins_does_not_get_those_of_another(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, insists_first: bool
) -> None:
    for name, value in {**fake_keyring.environment(tmp_path / "keys"), "XDG_DATA_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        await user.run("login", "files")
        shared.up()
        for keychain in (True, None) if insists_first else (None, True):
            settings = {} if keychain is None else {"keychain": keychain}
            said = await said_to(shared, at, tmp_path / f"file-{keychain}", **settings)
            if keychain:
                assert ENCRYPTED in said and "auth --encrypt" in said
            else:
                assert said == "read it"
        assert len(shared.pids) == 1 and os.path.exists(user.store.path)


async def test_down_waits_for_a_refresh_that_was_sent(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has taken the old refresh token: whoever does not wait for the new one has to sign in again."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        await user.run("login", "files")
        await user.store.change(lambda contents: contents.put(over(user.record)))
        at.authority.expire()
        is_asked, may_answer = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            is_asked.set()
            await may_answer.wait()

        at.authority.before_token = hold
        shared.up()
        status = os.path.join(runtime_folder(), f"{shared.pids[-1]}.sock")
        assert os.path.exists(status)
        box = {"box": {"files": {"url": at.authority.url, "protocol": "legacy"}}}
        async with shared.client(box, expect_exit=False) as client:
            call = asyncio.ensure_future(client.use_tool("box", "files", "read"))
            await is_asked.wait()
            ending = asyncio.ensure_future(asyncio.to_thread(shared.down))
            assert (await call)["isError"]
            # Servers have ended, and `status` does not find it any more: nothing but the refresh is under way.
            await eventually(lambda: not os.path.exists(status))
            assert user.record.refresh_token == "refresh-1" and not ending.done()
            may_answer.set()
            await ending
            assert user.record.refresh_token == "refresh-2", "it is on the disk when `down` returns"
        assert at.authority.refreshes == 1
