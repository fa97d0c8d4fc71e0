"""Which era a server belongs to is found out once, whatever it makes of the question, and remembered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.end_to_end.harness import ERAS, Workbench, error_text, open_toolbox, tool_names, unavailable
from tests.support.client import Json
from tests.support.scripted_tools import TOOLS
from tests.support.workbench import logged, scripted_entry


def methods(log: Path) -> list[str]:
    """What a server was asked and told, from its first message to the end of the handshake."""
    found = [message["method"] for message in logged(log) if "method" in message]
    return found[: found.index("tools/list")] if "tools/list" in found else found


SHAKEN = ["initialize", "notifications/initialized"]


@pytest.mark.requirement("eras.servers")
@pytest.mark.parametrize(
    ("flags", "asked_for_legacy", "asked_for_modern"),
    [
        (("--era", "modern"), ["initialize", "server/discover"], ["server/discover"]),
        (("--era", "dual"), SHAKEN, ["server/discover"]),
        (("--era", "legacy"), SHAKEN, ["server/discover", *SHAKEN]),
        (("--era", "legacy", "--discover-error", "-32600"), SHAKEN, ["server/discover", *SHAKEN]),
        (("--era", "legacy", "--discover-error", "-32602"), SHAKEN, ["server/discover", *SHAKEN]),
        (("--era", "legacy", "--discover-error", "-32022"), SHAKEN, ["server/discover", *SHAKEN]),
        (("--era", "legacy", "--discover-error", "7"), SHAKEN, ["server/discover", *SHAKEN]),
    ],
)
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_is_spoken_to_in_its_clients_era_where_it_speaks_that(
    workbench: Workbench, flags: tuple[str, ...], asked_for_legacy: list[str], asked_for_modern: list[str], era: str
) -> None:
    log = workbench.path("log")
    async with workbench.serving({"box": {"server": scripted_entry(*flags, "--log", log)}}, era=era) as client:
        assert tool_names(await open_toolbox(client, "box")) == sorted(TOOLS)
        assert (await client.use_tool("box", "server", "echo", {"a": 1}))["structuredContent"] == {"a": 1}
    asked = asked_for_legacy if era == "legacy" else asked_for_modern
    assert [method for method in methods(log) if method != "subscriptions/listen"] == asked


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_an_older_revision_is_agreed_to(workbench: Workbench, version: str) -> None:
    box = {"server": scripted_entry("--era", "legacy", "--versions", version)}
    async with workbench.serving({"box": box}) as client:
        assert (await client.use_tool("box", "server", "echo", {"a": 1}))["structuredContent"] == {"a": 1}


@pytest.mark.requirement("eras.servers")
async def test_a_server_that_never_answers_the_probe_is_sent_initialize(workbench: Workbench) -> None:
    log = workbench.path("log")
    boxes = {"box": {"server": scripted_entry("--era", "silent", "--log", log)}}
    async with workbench.serving(boxes, era="modern") as client:
        assert tool_names(await open_toolbox(client, "box")) == sorted(TOOLS)
    assert methods(log)[:2] == ["server/discover", "initialize"]
    log.unlink()
    async with workbench.serving(boxes, era="modern") as client:
        await client.use_tool("box", "server", "count")
    assert methods(log)[:2] == ["initialize", "notifications/initialized"]


async def test_a_server_that_dies_of_the_probe_is_started_again_without_it(workbench: Workbench) -> None:
    log = workbench.path("log")
    flags = ("--era", "legacy", "--die-on-discover", "--log", log, "--starts", workbench.path("starts"))
    boxes = {"box": {"server": scripted_entry(*flags)}}
    for starts in (2, 3):
        async with workbench.serving(boxes, era="modern") as client:
            result = await open_toolbox(client, "box")
            assert (tool_names(result), unavailable(result)) == (sorted(TOOLS), {})
            assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}
        assert len(workbench.starts()) == starts, "the second time it is remembered"
    assert len(logged(log, "server/discover")) == 1


def shell_server(script: str, **settings: object) -> Json:
    return {"command": "/bin/sh", "args": ["-c", script], **settings}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is left in a pipe")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("stderr_lines", ["echo 'the key is not set' >&2; exit 3", "exit 3", "sleep 0.3; exit 3"])
async def test_a_server_that_ends_without_having_read_the_probe_is_not_started_again(
    workbench: Workbench, stderr_lines: str, era: str
) -> None:
    """For a modern client the probe comes first, and only what may have died of it is worth another start."""
    starts = workbench.path("starts")
    boxes = {"box": {"bad": shell_server(f"echo $$ >> {starts}; {stderr_lines}"), "good": scripted_entry()}}
    async with workbench.serving(boxes, era=era) as client:
        reason = unavailable(await open_toolbox(client, "box"))["bad"]["reason"]
    assert reason.startswith("the server exited with status 3")
    assert ("the key is not set" in reason) is ("key" in stderr_lines)
    assert len(workbench.starts()) == 1


async def test_why_a_server_ended_is_said_though_its_second_start_takes_too_long(workbench: Workbench) -> None:
    starts = workbench.path("starts")
    script = (
        f"read probe; echo $$ >> {starts}; [ $(wc -l < {starts}) = 1 ] || exec sleep 60; echo 'bad key' >&2; exit 3"
    )
    boxes = {"box": {"bad": shell_server(script, startupTimeout=2), "good": scripted_entry()}}
    async with workbench.serving(boxes, era="modern") as client:
        reason = unavailable(await open_toolbox(client, "box"))["bad"]["reason"]
    assert reason == "the server exited with status 3\nlast lines of its stderr:\n  bad key"
    assert len(workbench.starts()) == 2


async def test_stdout_of_a_silent_server_is_quoted(workbench: Workbench) -> None:
    script = 'for n in 1 2 3 4; do echo "line $n, listening on port 3000"; done; echo on stderr >&2; exec sleep 60'
    boxes = {"box": {"bad": shell_server(script, startupTimeout=1), "good": scripted_entry()}}
    async with workbench.serving(boxes) as client:
        reason = unavailable(await open_toolbox(client, "box"))["bad"]["reason"]
    quoted = [line.strip() for line in reason.splitlines() if line.startswith("  ")]
    assert quoted == ["on stderr", *(f"line {number}, listening on port 3000" for number in (1, 2, 3))]


@pytest.mark.requirement("eras.servers")
@pytest.mark.parametrize(
    ("flags", "first", "again"),
    [
        (("--era", "legacy"), ["server/discover", "initialize"], ["initialize", "notifications/initialized"]),
        (("--era", "modern"), ["server/discover"], ["server/discover"]),
    ],
)
async def test_the_era_is_remembered_from_one_run_to_the_next(
    workbench: Workbench, flags: tuple[str, ...], first: list[str], again: list[str]
) -> None:
    log = workbench.path("log")
    boxes = {"box": {"server": scripted_entry(*flags, "--log", log)}}
    for options, expected in (((), first), ((), again), (("--no-cache",), first)):
        log.unlink(missing_ok=True)
        async with workbench.serving(boxes, *options, era="modern") as client:
            await client.use_tool("box", "server", "count")
        assert methods(log)[: len(expected)] == expected


async def test_a_server_that_has_changed_its_era_since_is_connected_all_the_same(workbench: Workbench) -> None:
    """Updated under the same command line, from legacy to modern and back."""
    era = workbench.path("era")
    entry = scripted_entry()
    script = f"exec {entry['command']} {entry['args'][0]} --era $(cat {era})"
    boxes = {"box": {"server": {"command": "/bin/sh", "args": ["-c", script]}}}
    for name in ("legacy", "modern", "legacy"):
        era.write_text(name)
        async with workbench.serving(boxes) as client:
            result = await client.use_tool("box", "server", "echo", {"era": name})
            assert result.get("structuredContent") == {"era": name}, result


@pytest.mark.requirement("eras.chosen")
@pytest.mark.parametrize(
    ("protocol", "flags", "asked"),
    [
        ("legacy", ("--era", "dual"), ["initialize", "notifications/initialized"]),
        ("2025-03-26", ("--era", "dual"), ["initialize", "notifications/initialized"]),
        ("modern", ("--era", "dual"), ["server/discover"]),
        ("2026-07-28", ("--era", "modern"), ["server/discover"]),
    ],
)
async def test_the_configuration_can_choose_the_era(
    workbench: Workbench, protocol: str, flags: tuple[str, ...], asked: list[str]
) -> None:
    log = workbench.path("log")
    box = {"server": scripted_entry(*flags, "--log", log, protocol=protocol)}
    async with workbench.serving({"box": box}) as client:
        await client.use_tool("box", "server", "count")
    assert methods(log)[: len(asked)] == asked
    if protocol == "2025-03-26":
        assert logged(log, "initialize")[0]["params"]["protocolVersion"] == protocol


@pytest.mark.parametrize(("protocol", "server_era"), [("modern", "legacy"), ("legacy", "modern")])
async def test_a_server_that_does_not_speak_the_chosen_era_says_so(
    workbench: Workbench, protocol: str, server_era: str
) -> None:
    box = {"server": scripted_entry("--era", server_era, protocol=protocol)}
    async with workbench.serving({"box": box}) as client:
        result = await open_toolbox(client, "box")
        assert result["isError"] is True
        assert unavailable(result)["server"]["reason"]
        assert error_text(await client.use_tool("box", "server", "count")).startswith("[box/server")


@pytest.mark.requirement("eras.clients")
async def test_both_eras_may_speak_on_one_connection(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        plain = await client.use_tool("box", "server", "echo", {"a": 1})
        client.stamp()
        stamped = await client.use_tool("box", "server", "echo", {"a": 1})
        assert "resultType" not in plain or plain["resultType"] == "complete"
        assert stamped["resultType"] == "complete"
        assert plain["structuredContent"] == stamped["structuredContent"] == {"a": 1}
