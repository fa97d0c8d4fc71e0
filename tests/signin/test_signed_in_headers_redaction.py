"""Tokens and client secrets are shown nowhere, though servers quote what they are sent."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from tests.cli.shell import run
from tests.engine.transport.http.listening import Reply, Request, scripted_http
from tests.signin.authority import Authority

pytestmark = pytest.mark.processes

SECRET = "hunter2/of the client"


class Quoting(Authority):
    """Lets machines in, and then answers with what it was sent."""

    async def _speak(self, request: Request, reply: Reply) -> None:
        token = request.headers["authorization"].removeprefix("Bearer ")
        said = f"cannot serve {token} ({base64.b64encode(f'x{token}'.encode()).decode()})"
        await reply.send(500, said.encode(), "text/plain")


def config_of(folder: Path, url: str) -> Path:
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    oauth = {"grant": "client_credentials", "clientId": "robot", "clientSecret": "${file:secret}"}
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": {"files": {"url": url, "oauth": oauth, "protocol": "legacy"}}}))
    return path


@pytest.mark.requirement("secrets.redaction")
async def test_a_token_that_a_server_quotes_is_hidden(tmp_path: Path) -> None:
    authority = Quoting(token_answer={"access_token": "access-of-a-machine"})
    authority.valid["access-of-a-machine"] = ""
    async with scripted_http(authority.handle) as server:
        authority.origin = f"http://127.0.0.1:{server.port}"
        config = config_of(tmp_path, authority.url)
        done = await asyncio.to_thread(run, "check", "--connect", "--debug", config)
    pair = base64.b64decode(authority.token_headers[0]["authorization"].removeprefix("Basic ")).decode()
    assert pair == "robot:hunter2%2Fof+the+client", "the secret was fetched"
    shown = done.stdout + done.stderr
    assert done.status == 1 and "cannot serve ***" in shown
    assert "access-of-a-machine" not in shown and "Y2Nlc3Mtb2YtYS1tYWNoaW5l" not in shown


async def test_a_secret_that_an_authorization_server_quotes_is_hidden(tmp_path: Path) -> None:
    said = json.dumps({"error": "invalid_client", "error_description": f"the secret {SECRET} is wrong"})
    authority = Authority(token_faults=[(401, said.encode())] * 9)
    async with scripted_http(authority.handle) as server:
        authority.origin = f"http://127.0.0.1:{server.port}"
        done = await asyncio.to_thread(run, "check", "--connect", "--debug", config_of(tmp_path, authority.url))
    shown = done.stdout + done.stderr
    assert done.status == 1 and "the secret *** is wrong" in shown.replace("\n", " ")
    assert SECRET not in shown
