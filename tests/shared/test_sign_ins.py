"""Sign-ins in a shared workbench: each file has the store that it asks for, whoever came first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.shared.harness import Shared
from tests.signin.authority import Scene, scene
from tests.signin.command_line import CommandLine
from tests.support import fake_keyring

ENCRYPTED = "are not encrypted, and the configuration says `keychain: true`"


async def said_to(shared: Shared, at: Scene, folder: Path, **settings: Any) -> str:
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
    async with scene(tmp_path) as at:
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
