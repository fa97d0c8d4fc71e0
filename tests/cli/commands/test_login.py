"""`login`, `logout`, `auth`, and what `check`, `status` and an agent are told of sign-ins."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from msgspec.structs import replace

from mcp_workbench.signin.grant_end import DAY
from tests.signin.authority import Authority, follow, sign_in_setup
from tests.signin.command_line import NO_BROWSER_HERE, SECONDS, CommandLine

pytestmark = pytest.mark.processes


async def line(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    async with asyncio.timeout(SECONDS):
        return (await stream.readline()).decode().strip()


def callback_of(authority: Authority, page: str) -> str:
    """Where a browser on another machine ends: an address that it cannot show."""
    parts = urlsplit(page)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("GET", f"{parts.path}?{parts.query}")
    response = connection.getresponse()
    response.read()
    connection.close()
    found = response.getheader("location")
    assert found is not None
    return found


async def test_login_opens_the_browser_and_prints_the_account(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        status, out, said = await user.run("login", "files")
        assert status == 0, said
        assert "signed in to files" in out
        assert "files offers 1 tool" in out
        _, _, again = await user.run("login", "files")
        assert "you are signed in to files; --again signs in once more" in again
        assert len(at.authority.authorizations) == 1
        assert "access-1" not in out + said + again


@pytest.mark.parametrize("comes", ["pasted", "pasted wrongly first", "by itself"])
async def test_without_a_browser_the_pasted_callback_counts_and_so_does_the_one_that_comes(
    tmp_path: Path, comes: str
) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        async with user.started("login", "files", "--no-browser") as process:
            page = await line(process.stdout)
            assert process.stdin is not None
            if comes == "by itself":
                await follow(page)
            else:
                back = await asyncio.to_thread(callback_of, at.authority, page)
                if comes == "pasted wrongly first":
                    process.stdin.write(b"http://127.0.0.1/callback?code=x&state=wrong\n")
                process.stdin.write(back.encode() + b"\n")
            async with asyncio.timeout(SECONDS):
                out, said = await process.communicate()
        assert process.returncode == 0, said
        assert b"signed in to files" in out
        assert (b"does not belong to the sign-in" in said) == (comes == "pasted wrongly first")


async def test_a_browser_that_does_not_open_leaves_the_address_to_open_by_hand(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        async with user.started("login", "files", browser=NO_BROWSER_HERE) as process:
            page = await line(process.stdout)
            assert page.startswith(at.authority.origin)
            await follow(page)
            async with asyncio.timeout(SECONDS):
                out, _ = await process.communicate()
        assert b"signed in to files" in out


@pytest.mark.requirement("team.principals")
async def test_a_sign_in_for_another_user_is_theirs_alone(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        status, out, said = await user.run("login", "files", "--as", "alice")
        assert status == 0 and "signed in to files" in out, said
        _, _, again = await user.run("login", "files", "--as", "alice")
        assert "alice is signed in to files; --again signs in once more" in again
        _, listed, _ = await user.run("auth", "--json")
        assert [each["principal"] for each in json.loads(listed)] == ["alice"]
        status, out, said = await user.run("logout", "files")
        assert "you were not signed in" in said, "what is hers is not ours"
        status, out, said = await user.run("logout", "files", "--as", "alice")
        assert status == 0 and "signed out of files" in out


async def test_a_device_code_is_shown_and_waited_for(tmp_path: Path) -> None:
    pending = b'{"error":"authorization_pending"}'
    async with sign_in_setup(tmp_path, token_faults=[(400, pending), (400, pending)]) as at:
        at.authority.metadata = {"device_authorization_endpoint": f"{at.authority.origin}/device"}
        user = CommandLine(tmp_path, at.authority)
        status, out, said = await user.run("login", "files", "--device")
        assert status == 0, said
        assert out.splitlines()[:2] == [f"{at.authority.origin}/activate", "ABCD"]
        assert len(at.authority.token_requests) == 3
        assert "device_code" in at.authority.registrations[0]["grant_types"][0]


async def test_login_names_alternatives_without_device_codes(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        status, _, said = await CommandLine(tmp_path, at.authority).run("login", "files", "--device")
        assert status == 1
        assert "does not support device codes" in said
        assert "--no-browser" in said


@pytest.mark.requirement("audit.events")
async def test_logout_revokes_and_says_when_it_could_not(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority, file={"audit": {"file": "audit.jsonl"}})
        await user.run("login", "files")
        status, out, _ = await user.run("logout", "files")
        assert (status, "the server has revoked the token" in out) == (0, True)
        assert at.authority.revoked == ["refresh-1"]
        status, _, said = await user.run("logout", "files")
        assert (status, "you were not signed in" in said) == (0, True)
        at.authority.metadata = {"revocation_endpoint": None}
        await user.run("login", "files")
        status, out, said = await user.run("logout", "files")
        assert (status, "the token was deleted on this machine" in out) == (0, True)
        assert "you can remove the workbench from" in said
    lines = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    told = [line for line in lines if line["kind"] == "sign_in"]
    assert [line["decision"] for line in told] == ["signed in", "signed out"] * 2
    who = ("local", "command line", "box", "files")
    assert {(line["principal"], line["peer"], line["toolbox"], line["server"]) for line in told} == {who}


async def test_auth_shows_everything_but_tokens(tmp_path: Path) -> None:
    answer = {"scope": "read write"}
    async with sign_in_setup(tmp_path, token_answer=answer) as at:
        user = CommandLine(tmp_path, at.authority, oauth={"grantDays": 30})
        _, _, said = await user.run("auth")
        assert "you are not signed in to any server" in said
        await user.run("check", "--connect")
        _, out, _ = await user.run("auth")
        assert "needs sign-in" in out
        _, _, said = await user.run("login", "files")
        assert "the server ends this sign-in on" in said
        _, out, said = await user.run("auth")
        (_, row) = out.strip().splitlines()[-2:] if len(out.strip().splitlines()) > 1 else ("", out)
        for shown in (at.authority.url, "signed in", "read write", time.strftime("%Y-%m-%d")):
            assert shown in row, out
        assert str(user.store.path) in said
        _, listed, _ = await user.run("auth", "--json")
        (entry,) = json.loads(listed)
        assert abs(entry["endsAt"] - time.time() - 30 * DAY) < 3600
        assert (entry["state"], entry["scopes"], entry["stored"]) == ("signed in", ["read", "write"], "file")
        assert "access-1" not in out + listed + said
        assert "refresh-1" not in out + listed + said


async def test_a_sign_in_that_ends_soon_is_said_by_auth_and_check(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority, oauth={"grantDays": 30})
        await user.run("login", "files")
        record = user.record
        soon = replace(record, signed_in_at=time.time() - 28 * DAY, grant_limit_at=time.time() + 2 * DAY)
        await user.store.change(lambda contents: contents.put(soon))
        for command in (("auth",), ("check",), ("check", "--connect")):
            status, _, said = await user.run(*command)
            assert "the sign-in ends on" in said, command
            assert "--again" in said
            assert status == 0


async def test_check_says_needs_sign_in_and_for_which_server(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority)
        status, out, said = await user.run("check", "--connect")
        assert status == 1
        assert "needs sign-in" in out
        assert "the only server needs you to sign in: `files`" in said
        assert f"mcp-workbench auth login files --config {user.config}" in out + said


async def test_request_beyond_the_limit_is_refused_with_a_reason(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        user = CommandLine(tmp_path, at.authority, headers={"Authorization": "Bearer mine"})
        status, _, said = await user.run("login", "files")
        assert (status, "already has a token in `headers`" in said) == (2, True)


async def test_a_callback_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            oauth = {"clientId": "mine", "callbackPort": port}
            user = CommandLine(tmp_path, at.authority, file={"audit": {"file": "audit.jsonl"}}, oauth=oauth)
            status, _, said = await user.run("login", "files")
        assert status == 1
        assert f"port {port} on this machine is in use" in said
        assert '"decision":"failed","reason":"port' in (tmp_path / "audit.jsonl").read_text()


async def test_a_pasted_callback_may_be_the_query_alone(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        sign_in = await at.sign_ins.begin(at.target)
        back = dict(parse_qsl(urlsplit(await asyncio.to_thread(callback_of, at.authority, sign_in.url)).query))
        assert sign_in.paste(urlencode(back)) is None
        await sign_in.wait()
