"""A variable that is not set: the server that needs it is unavailable and says why, the others work."""

from __future__ import annotations

import json
import os

import pytest

from tests.cli.in_process import run
from tests.end_to_end.harness import ERAS, Workbench, error_text, open_toolbox, start_use, tool_names, unavailable
from tests.support.client import RpcError
from tests.support.scripted_tools import TOOLS
from tests.support.workbench import scripted_entry, write_config

LACKING = scripted_entry(env={"KEY": "${SURELY_NOT_SET}"})
REASON = "the variable `SURELY_NOT_SET` is not set, at $.toolboxes.box.mcpServers.bad.env.KEY"
WITHOUT_BACKTICKS = "the variable `SURELY_NOT_SET` is not set"


@pytest.mark.requirement("config.unresolved")
@pytest.mark.parametrize("era", ERAS)
async def test_the_server_is_unavailable_with_the_name_of_the_variable(workbench: Workbench, era: str) -> None:
    box = {"bad": LACKING, "good": scripted_entry()}
    async with workbench.serving({"box": box}, era=era) as client:
        result = await open_toolbox(client, "box")
        assert tool_names(result) == sorted(TOOLS)
        missing = unavailable(result)["bad"]
        assert missing["reason"] == REASON
        assert "${SURELY_NOT_SET:-" in json.dumps(missing)
        assert REASON in error_text(await client.call_tool("use_tool", start_use("box", "bad", "echo")))
        assert (await client.use_tool("box", "good", "count"))["structuredContent"] == {"count": 1}
        # Trying again and again is no crash loop: nothing was started, so nothing has failed for good.
        for _ in range(7):
            assert unavailable(await open_toolbox(client, "box"))["bad"]["reason"] == REASON


async def test_where_it_is_the_only_server_opening_says_so(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"bad": LACKING}}) as client:
        assert REASON in error_text(await open_toolbox(client, "box"))


async def test_other_faces_show_the_tools_of_the_others(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"bad": LACKING, "good": scripted_entry()}}, "--face", "flat") as client:
        names = {tool["name"].split(":")[1] for tool in (await client.request("tools/list"))["tools"]}
        assert names == {"good"}


def test_check_names_the_place_and_ends_with_2(workbench: Workbench) -> None:
    config = write_config(workbench.folder, {"box": {"bad": LACKING, "good": scripted_entry()}})
    done = run("check", config)
    assert (done.status, done.stdout) == (2, "")
    assert f"{config}:" in done.stderr and WITHOUT_BACKTICKS in done.stderr
    done = run("check", "--connect", config)
    assert done.status == 2
    assert "ready" in done.stdout and "failed" in done.stdout and WITHOUT_BACKTICKS in done.stdout
    shown = json.loads(run("check", "--connect", "--json", config).stdout)
    assert shown["valid"] is False and shown["problems"][0]["line"]
    assert [server["state"] for server in shown["servers"]] == ["failed", "ready"]


def test_list_and_call_use_the_working_servers(workbench: Workbench) -> None:
    config = write_config(workbench.folder, {"box": {"bad": LACKING, "good": scripted_entry()}})
    assert run("call", "--config", config, "box/good/count").status == 0
    failed = run("call", "--config", config, "box/bad/count")
    assert failed.status == 1 and "SURELY_NOT_SET" in failed.stderr
    listed = run("list", config)
    assert listed.status == 0 and "(unavailable: the variable `SURELY_NOT_SET` is not set" in listed.stdout
    described = json.loads(run("list", "--json", config).stdout)["toolboxes"][0]["servers"]
    assert [server.get("unavailable") for server in described] == [REASON, None]


@pytest.mark.parametrize("face", ["flat", "dynamic"])
async def test_where_nothing_can_be_started_a_list_does_not_wait(workbench: Workbench, face: str) -> None:
    # Longer than a test may take: waiting for it would fail.
    async with workbench.serving({"box": {"bad": LACKING}}, "--face", face, "--list-timeout", "600") as client:
        if face == "flat":
            with pytest.raises(RpcError, match="SURELY_NOT_SET"):
                await client.request("tools/list")
        else:
            assert REASON in error_text(await open_toolbox(client, "box"))


async def test_values_of_variables_are_not_shown_to_clients(workbench: Workbench) -> None:
    entry = {"url": "http://${HOST_AND_TOKEN}/mcp"}
    environment = {**os.environ, "HOST_AND_TOKEN": "host:hunter2hunter2"}
    async with workbench.serving({"box": {"bad": entry}}, env=environment) as client:
        text = error_text(await open_toolbox(client, "box"))
        assert "found an address with the port" in text and "hunter2" not in text
