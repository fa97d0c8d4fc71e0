"""`call`, `open`, `list`, `tokens` and `check` use the shared workbench where it is running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from mcp_workbench.sharing.front import joining
from tests.cli import in_process
from tests.cli.shell import COMMAND, CTRL_D, Done, environment, on_terminal, run
from tests.sharing.harness import Shared
from tests.sharing.test_sharing import crowded, process
from tests.support.processes import wait_until
from tests.support.workbench import logged, scripted_entry, write_config


def called(config: Path, *flags: str) -> int:
    done = run("call", "--config", config, "--raw", *flags, "box/server/pid", cwd=config.parent)
    assert done.status == 0, done
    pid: int = json.loads(done.stdout)["structuredContent"]["pid"]
    return pid


@pytest.mark.requirement("sharing.commands")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_call_uses_the_server_that_runs_for_others(shared: Shared, era: str) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry("--era", era)}})
        # A legacy server was told of abilities that a command line does not have.
        agent = await crowd.join(config, capabilities={"elicitation": {}, "roots": {}})
        running = await process(agent)
        assert called(config) == running
        assert called(config, "--private") != running
        assert await process(agent) == running


def test_a_server_that_call_started_is_there_for_the_next_call(shared: Shared) -> None:
    shared.up()
    config = write_config(shared.folder, {"box": {"server": scripted_entry()}})
    assert called(config) == called(config)


def test_a_workbench_that_is_stopped_is_reported_and_not_waited_for(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.up()
    config = write_config(shared.folder, {"box": {"server": scripted_entry()}})
    arguments = ("call", "--config", config, "box/server/pid")
    monkeypatch.setattr(joining, "WORKBENCH_START_TIMEOUT", 0.2)
    os.kill(shared.pids[0], signal.SIGSTOP)
    try:
        done = in_process.run(*arguments, cwd=config.parent)
    finally:
        os.kill(shared.pids[0], signal.SIGCONT)
    assert done.status == 0
    assert "did not answer within" in done.stderr and "the command starts what it needs itself" in done.stderr


def test_a_server_with_state_is_not_borrowed(shared: Shared) -> None:
    shared.up()
    config = write_config(shared.folder, {"box": {"server": scripted_entry(share="session")}})
    assert called(config) != called(config)


@pytest.mark.requirement("sharing.commands")
def test_all_other_commands_use_it_too(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    starts = tmp_path / "starts"
    servers = {"server": scripted_entry("--starts", starts), "broken": {"command": "does-not-exist"}}
    config = write_config(shared.folder, {"box": servers})
    commands = (("open", "box"), ("list", "--connect"), ("tokens", "--connect"), ("check", "--connect", "--json"))
    done = {command[0]: run(command[0], "--config", config, *command[1:], cwd=config.parent) for command in commands}
    assert len(starts.read_text().split()) == 1, "one process for all of them"
    assert "echo" in done["open"].stdout and "`does-not-exist` was not found" in done["open"].stdout
    assert "does-not-exist" in done["list"].stderr and done["list"].status == 1
    findings = {each["server"]: each for each in json.loads(done["check"].stdout)["servers"]}
    assert findings["server"]["state"] == "ready" and findings["broken"]["state"] == "failed"
    assert "install it, or give its full path" in findings["broken"]["hint"]


def answered(config: Path, path: str, typed: str, when: str, command: str = "call") -> str:
    """What somebody at a terminal sees who calls this and types that."""
    status, shown = on_terminal(
        *(command, "--config", config, *path.split()),
        type_when=lambda shown: when in shown,
        key=typed.encode() + b"\n",
        cwd=config.parent,
    )
    assert status == 0, shown
    return shown


@pytest.mark.requirement("cli.call-questions")
async def test_questions_of_servers_that_run_for_others_are_asked_at_the_terminal(
    shared: Shared, tmp_path: Path
) -> None:
    shared.up()
    starts = tmp_path / "starts"
    async with crowded(shared) as crowd:
        eras = {
            era: scripted_entry("--era", era, "--offers", era, "--starts", starts)
            for era in ("legacy", "modern", "dual")
        }
        policy = [
            {"tools": ["box/modern/echo"], "then": "ask"},
            {"resources": ["**"], "then": "ask"},
            {"then": "allow"},
        ]
        config = crowd.config({"box": eras}, policy=policy)
        agent = await crowd.join(config, capabilities={"roots": {}})
        for era in eras:
            await process(agent, era)
        running = starts.read_text()
        for era in eras:
            shown = await asyncio.to_thread(answered, config, f"box/{era}/ask", "Ada", "name [string]: ")
            assert "What is your name?" in shown and '"name": "Ada"' in shown
            if era == "legacy":
                # From its first question on, whoever can be asked has a process of it to themselves.
                assert starts.read_text() == running
        for path, typed, when, result in (
            ("box/modern/ask_url", "n", "in a browser? [y/N] ", '"decline"'),
            ("box/modern/echo", "y", "y allows it once", "arguments"),
        ):
            assert result in await asyncio.to_thread(answered, config, path, typed, when)
        assert starts.read_text() == running, "questions are asked where the servers run"
        for command, path, typed, when, result in (
            ("prompt", "box/dual/ask_first who=Ada", "good", "mood [string]?: ", "'mood': 'good'"),
            ("resource", "modern:///one", "y", "y allows it once", "one"),
        ):
            assert result in await asyncio.to_thread(answered, config, path, typed, when, command)
        assert "no terminal to answer at" in (await asyncio.to_thread(piped, config, "box/modern/ask")).stderr


def piped(config: Path, path: str) -> Done:
    return run("call", "--config", config, path, cwd=config.parent)


@pytest.mark.requirement("cli.call-questions")
async def test_a_server_that_runs_for_clients_it_cannot_ask_is_started_where_it_has_to_ask(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        servers = {kind: scripted_entry("--era", "legacy", "--asking-tools", kind) for kind in ("hidden", "refused")}
        config = crowd.config({"box": servers})
        agent = await crowd.join(config)
        for server in servers:
            await process(agent, server)
        # A tool that it shows only to those whom it can ask.
        shown = await asyncio.to_thread(answered, config, "box/hidden/ask", "Ada", "name [string]: ")
        assert '"name": "Ada"' in shown
        # The call is not made twice: the server may have done half of it.
        status, shown = await asyncio.to_thread(
            on_terminal, "call", "--config", config, "box/refused/ask", cwd=config.parent
        )
        assert status == 1 and "run the command again" in " ".join(shown.split())
        shown = await asyncio.to_thread(answered, config, "box/refused/ask", "Ada", "name [string]: ")
        assert '"name": "Ada"' in shown


def test_ctrl_c_cancels_the_call_at_a_server_of_the_shared_workbench(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    log = tmp_path / "log"
    config = write_config(shared.folder, {"box": {"server": scripted_entry("--log", log)}})
    status, _ = on_terminal(
        *("call", "--config", config, "box/server/hang"),
        type_when=lambda _: log.exists() and bool(logged(log, "tools/call")),
    )
    assert status == 130
    wait_until(lambda: bool(logged(log, "notifications/cancelled")))
    [cancelled], [call] = logged(log, "notifications/cancelled"), logged(log, "tools/call")
    assert cancelled["params"]["requestId"] == call["id"]


def test_a_workbench_that_dies_in_the_middle_of_a_call_is_reported(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    log = tmp_path / "log"
    config = write_config(shared.folder, {"box": {"server": scripted_entry("--log", log)}})
    arguments = ["call", "--config", str(config), "box/server/hang"]
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=environment()) as calling:
        wait_until(lambda: len(logged(log, "tools/call")) == 1)
        shared.kill()
        assert calling.stderr is not None
        said = calling.stderr.read()
    assert "the shared workbench ended before it answered" in said and "may have been carried out" in said
    assert calling.returncode == 1


def test_without_a_shared_workbench_nothing_is_joined(shared: Shared) -> None:
    config = write_config(shared.folder, {"box": {"server": scripted_entry()}})
    assert called(config) != called(config)
    assert not shared.is_running


def test_a_front_end_at_a_terminal_says_that_it_speaks_mcp_there(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    config = write_config(tmp_path, {"box": {"one": scripted_entry()}})
    status, shown = on_terminal(
        "serve", config, type_when=lambda shown: "this terminal is the MCP client now" in shown, key=CTRL_D
    )
    assert status == 0 and "Traceback" not in shown
    # And without any argument, nobody is served: the state is shown, with the workbench that runs.
    status, shown = on_terminal(env={"TERM": "dumb"}, cwd=tmp_path)
    assert status == 0 and f"process {shared.pids[-1]}, shared, 0 clients" in shown
    shared.down()
