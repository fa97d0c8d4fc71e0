"""Secrets by reference, as a server and its users see them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.shell import run
from tests.end_to_end.harness import Workbench, error_text, open_toolbox, unavailable
from tests.support import fake_keyring
from tests.support.client import RawClient
from tests.support.workbench import scripted_entry, write_config

SECRET = "hunter2/is+my very=secret"
# Says everything it knows, in every way, and ends.
CARELESS = """
import base64, os, sys, urllib.parse
key = os.environ["KEY"]
for text in (key, urllib.parse.quote(key), base64.b64encode(b"user:" + key.encode()).decode(),
             base64.urlsafe_b64encode(b"x" + key.encode()).decode(), repr(sys.argv[1:])):
    sys.stderr.write(f"starting with {text}\\n")
sys.exit(3)
"""


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


async def variable(client: RawClient, server: str, name: str) -> str | None:
    found = await client.use_tool("box", server, "env", {"name": name})
    value: str | None = found["structuredContent"]["value"]
    return value


@pytest.mark.requirement("secrets.references")
async def test_each_server_gets_its_references_resolved_at_start(workbench: Workbench) -> None:
    file = private(workbench.path("token"), "first\n")
    private(workbench.path("server.env"), "FROM_FILE=of the file\nKEY=overridden\n")
    box = {
        "one": scripted_entry(env={"KEY": "${file:token}", "PRINTED": "${cmd:printf %s printed}"}, idleTimeout=0.2),
        "two": scripted_entry(envFile="server.env", env={"KEY": "${keyring:name}"}),
    }
    environ = {
        **os.environ,
        **fake_keyring.environment(workbench.path("keys"), **{"mcp-workbench__name": "of the chain"}),
    }
    async with workbench.serving({"box": box}, env=environ) as client:
        assert [await variable(client, "one", name) for name in ("KEY", "PRINTED")] == ["first", "printed"]
        assert [await variable(client, "two", name) for name in ("KEY", "FROM_FILE")] == ["of the chain", "of the file"]
        # A secret that was replaced is there with the next start.
        file.write_text("second")
        while await variable(client, "one", "KEY") != "second":
            await asyncio.sleep(0.3)


@pytest.mark.requirement("secrets.redaction")
async def test_resolved_secrets_are_shown_nowhere(workbench: Workbench) -> None:
    private(workbench.path("token"), SECRET)
    entry = {"command": sys.executable, "args": ["-c", CARELESS, "${file:token}"], "env": {"KEY": "${file:token}"}}
    log = workbench.path("log")
    async with workbench.serving({"box": {"bad": entry}}, "--debug", "--log-file", log) as client:
        error = error_text(await open_toolbox(client, "box"))
        status = subprocess.run(
            [sys.executable, "-m", "mcp_workbench", "status", "--json"], capture_output=True, text=True, check=True
        ).stdout
    config = workbench.path("workbench-config.json")
    checked = run("check", "--connect", "--debug", config)
    shown = {
        "error": error,
        "status": status,
        "log": log.read_text(),
        "stderr": client.stderr,
        "check": checked.stdout + checked.stderr,
        "list": run("list", config).stdout,
    }
    assert "starting with ***" in error and "starting with ***" in shown["log"] and "exited with status 3" in status
    assert "${file:token}" in shown["list"]
    leaks = [SECRET, quote(SECRET), base64.b64encode(SECRET.encode()).decode()[:20], "dW50ZXIyL2lzK215IHZlcnk9c2Vjcm"]
    for where, text in shown.items():
        assert not [leak for leak in leaks if leak in text], f"{where}: {text}"


@pytest.mark.requirement("secrets.references")
async def test_one_that_cannot_be_fetched_is_the_problem_of_its_server_alone(workbench: Workbench) -> None:
    box = {"bad": scripted_entry(env={"KEY": "${file:gone}"}), "good": scripted_entry()}
    where = workbench.path("gone")
    reason = f"`${{file:gone}}` in `env.KEY` cannot be resolved: the file `{where}` does not exist"
    async with workbench.serving({"box": box}) as client:
        assert unavailable(await open_toolbox(client, "box"))["bad"]["reason"].startswith(reason)
        assert (await client.use_tool("box", "good", "count"))["structuredContent"] == {"count": 1}
        private(where, "here now")
        assert await variable(client, "bad", "KEY") == "here now"


def test_check_names_missing_secrets_and_runs_no_program(workbench: Workbench) -> None:
    trace = workbench.path("trace")
    box = {
        "bad": scripted_entry(env={"KEY": "${file:gone}"}),
        "programs": scripted_entry(env={"KEY": f"${{cmd:touch {trace}}}"}),
    }
    config = write_config(workbench.folder, {"box": box})
    done = run("check", config)
    assert (done.status, done.stdout) == (2, "")
    assert "[box/bad] `${file:gone}` in `env.KEY` cannot be resolved" in done.stderr.replace("\n       ", " ")
    assert not trace.exists()
    shown = json.loads(run("check", "--json", config).stdout)
    assert shown["valid"] is False and [problem["server"] for problem in shown["problems"]] == ["box/bad"]
    private(workbench.path("gone"), "x").chmod(0o644)
    done = run("check", config)
    assert done.status == 0 and "can be read by other users" in done.stderr
    done = run("check", "--connect", config)
    assert done.status == 1 and "printed nothing" in done.stdout and trace.exists()


@pytest.mark.requirement("secrets.commands")
def test_a_program_runs_only_for_a_file_that_is_trusted(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    write_config(tmp_path, {"box": {"server": scripted_entry(env={"KEY": f"${{cmd:touch {trace}}}"})}})
    assert "is not trusted yet" in run("check", "--connect", cwd=tmp_path).stderr and not trace.exists()
    trusted = run("trust", cwd=tmp_path)
    assert f"box/server runs `${{cmd:touch {trace}}}` for its secrets" in trusted.stdout.replace("\n  ", " ")
    assert not trace.exists()
    run("check", "--connect", cwd=tmp_path)
    assert trace.exists()


LOADED_LATER = ("mcp_workbench.signin.secrets", "mcp_workbench.signin", "keyring", "cryptography", "joserfc")


async def test_a_server_without_references_and_sign_in_loads_nothing_of_them(workbench: Workbench) -> None:
    """Not even while it is used: what nobody needs costs nobody anything."""
    config = write_config(workbench.folder, {"box": {"server": scripted_entry(env={"KEY": "given"})}})
    command = [sys.executable, "-X", "importtime", "-m", "mcp_workbench", "serve", "--config", str(config)]
    async with RawClient.spawn(command) as client:
        await client.initialize()
        await open_toolbox(client, "box")
        assert await variable(client, "server", "KEY") == "given"
    loaded = {line.rpartition("|")[2].strip() for line in client.stderr.splitlines() if line.startswith("import time:")}
    assert "mcp_workbench.engine.transport.child" in loaded, "otherwise this test looks at nothing"
    assert not [name for name in loaded if name.startswith(LOADED_LATER)]
