"""What is hidden from a principal is not found, listed, counted or hinted at, in any face: its answers are those of a
workbench that does not have it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.team.identity.identities import Identity
from tests.faces.harness import Bench, introduce
from tests.faces.memory import MemoryClient
from tests.support.client import Json, RpcError
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

SECRET = "quetzal"
HIDING = [{"who": ["bob"], "tools": [f"*/*/{SECRET}*"], "then": "hide"}, {"then": "allow"}]


def boxes(*, with_secret: bool = True) -> dict[str, dict[str, Server]]:
    """Two toolboxes: of the first one a tool is hidden, of the second one everything."""
    more = (
        [tool(f"{SECRET}_push", f"Push the {SECRET}.", ref_="string"), tool(f"{SECRET}_reset")] if with_secret else []
    )
    status = tool("status", "Show the state.", path="string")
    found = {"dev": {"git": Server(status, *more, instructions="How to git.", toolFilters=["!*_reset"])}}
    if with_secret:
        found["ops"] = {"db": Server(tool(f"{SECRET}_drop", "Drop it."), instructions=f"Use {SECRET}.")}
    else:
        found["dev"]["git"].instructions = ""
    return found


@asynccontextmanager
async def served_to(bench: ConnectedClient, principal: str, era: str = "legacy") -> AsyncIterator[MemoryClient]:
    async with MemoryClient.of(bench.gateway, principal) as client:
        await introduce(client, era)
        yield client


async def everything_told(client: MemoryClient, face: str, era: str = "legacy") -> list[object]:
    """All that a client can find out without knowing a name, and what it is told of names that it guesses."""
    told: list[object] = []

    async def ask(method: str, **params: Any) -> None:
        answer = await (await client.start(method, params)).response()
        told.append(_without_ids(answer))

    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        await ask(method)
    if era == "modern":
        await ask("server/discover")
    if face != "flat":
        for arguments in (
            {"toolbox_name": "dev"},
            {"toolbox_name": "ops"},
            *([{}, {"query": "push"}, {"query": SECRET}] if face == "proxy" else []),
            *([{"tools": [f"dev/git/{SECRET}_push", f"ops/db/{SECRET}_drop"]}] if face == "proxy" else []),
        ):
            await ask("tools/call", name="open_toolbox", arguments=arguments)
    if face == "proxy":
        for incomplete in (
            {"tool": f"{SECRET}_push"},
            {"server": "git", "tool": f"{SECRET}_push"},
            {"toolbox": "dev", "server": "git"},
            {"server": "db"},
        ):
            await ask("tools/call", name="use_tool", arguments={"tool": incomplete})
    for path in (
        f"dev/git/{SECRET}_push",
        f"dev/git/{SECRET}_reset",
        f"ops/db/{SECRET}_drop",
        f"{SECRET}_push",
        f"dev/git/{SECRET}_pusk",
        "ops/db",
    ):
        toolbox, _, rest = path.partition("/")
        server, _, name = rest.partition("/")
        if face == "proxy":
            await ask("tools/call", name="use_tool", arguments={"tool": path, "arguments": {}})
            await ask(
                "tools/call", name="use_tool", arguments={"tool": {"toolbox": toolbox, "server": server, "tool": name}}
            )
        else:
            separator = ":" if face == "flat" else "__"
            await ask(
                "tools/call", name=f"{toolbox}{separator}{server}{':' if face == 'flat' else '_'}{name}", arguments={}
            )
    return told


def _without_ids(answer: Json) -> Json:
    return {key: value for key, value in answer.items() if key != "id"}


@pytest.mark.requirement("team.hidden")
@pytest.mark.parametrize("face", ["proxy", "flat", "dynamic"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_hidden_items_leave_no_trace(tmp_path: Path, face: str, era: str) -> None:
    told = []
    for with_secret, policy in ((True, HIDING), (False, [])):
        options = {"face": face, "use_cache": False}
        served = boxes(with_secret=with_secret)
        async with workbench_with(tmp_path, served, options=options, policy=policy) as bench:
            async with served_to(bench, "alice", era) as alice:
                to_alice = await everything_told(alice, face, era)
                assert (SECRET in json.dumps(to_alice)) >= with_secret, "otherwise this test looks at nothing"
            if bench.gateway.face.tool_index is not None:
                bench.gateway.face.tool_index.summarise()
            async with served_to(bench, "bob", era) as bob:
                told.append(await everything_told(bob, face, era))
    for with_secret_hidden, without_secret in zip(*told, strict=True):
        assert with_secret_hidden == without_secret


async def test_a_role_that_hides_nothing_changes_nothing(tmp_path: Path) -> None:
    options = {"use_cache": False}
    async with workbench_with(tmp_path, boxes(), options=options, policy=HIDING) as bench:
        gateway = bench.gateway
        views = gateway.router.views
        assert views.of_principal("alice").face is gateway.gate.whole_face_of("alice")
        assert views.of_principal("bob").face is not gateway.gate.whole_face_of("bob")
        assert views.of_principal("bob").face is views.begin_session("bob").face, "one face for a role"


@pytest.mark.requirement("team.hidden")
@pytest.mark.parametrize("face", ["proxy", "flat", "dynamic"])
@pytest.mark.parametrize("globs", [["ops"], ["ops/*"], ["ops/db/*"], ["*/db"], ["ops/*/*"]])
async def test_a_toolbox_without_any_tool_to_be_seen_is_hidden_before_anybody_knows_its_servers(
    tmp_path: Path, face: str, globs: list[str]
) -> None:
    served = boxes()
    policy = [{"tools": globs, "then": "hide"}, {"then": "allow"}]
    async with workbench_with(tmp_path, served, options={"face": face, "use_cache": False}, policy=policy) as bench:
        told = json.dumps(await everything_told(bench.client, face))
        assert '"ops"' not in told and "Toolbox ops" not in told and "dev" in told
        assert served["ops"]["db"].starts == 0


async def test_a_toolbox_with_prompts_to_be_seen_is_there_once_somebody_knows_of_them(tmp_path: Path) -> None:
    served = boxes()
    served["ops"]["db"].prompts = [{"name": "explain"}]
    policy = [{"who": ["bob"], "tools": ["ops"], "then": "hide"}, {"then": "allow"}]
    async with workbench_with(tmp_path, served, options={"use_cache": False}, policy=policy) as bench:
        async with served_to(bench, "bob") as bob:
            assert "ops" not in json.dumps(await bob.call_tool("open_toolbox", {}))
            await bench.open(toolbox_name="ops")
            assert "ops" in json.dumps(await bob.call_tool("open_toolbox", {}))
            await bob.call_tool("open_toolbox", {"toolbox_name": "ops"})
            assert "explain" in json.dumps(await bob.request("prompts/list", {}))


async def test_the_toolboxes_of_a_key_hide_all_others_without_any_policy(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), options={"use_cache": False}) as bench:
        assert bench.gateway.gate.access is None
        async with served_to(bench, "ci") as client:
            assert "ops" in json.dumps(await client.call_tool("open_toolbox", {}))
            bench.gateway.gate.identities().remember(Identity(principal="ci", toolboxes=("dev",)))
            assert "ops" not in json.dumps(await client.call_tool("open_toolbox", {})), "in force at once"
            refused = await client.call_tool("open_toolbox", {"toolbox_name": "ops"})
            assert refused["isError"] and "`ops`" in text_of(refused)
        async with served_to(bench, "alice") as client:
            assert "ops" in json.dumps(await client.call_tool("open_toolbox", {}))


async def test_a_denied_tool_is_listed_and_refused_with_its_rule(tmp_path: Path) -> None:
    served = boxes()
    denying = [{"tools": [f"dev/git/{SECRET}*"], "then": "deny"}, {"then": "allow"}]
    async with workbench_with(tmp_path, served, options={"use_cache": False}, policy=denying) as bench:
        assert SECRET in await bench.said(toolbox_name="dev")
        refused = await bench.use(f"dev/git/{SECRET}_push", {"ref": "main"})
        assert refused["isError"]
        assert "the policy of this workbench does not allow" in text_of(refused) and "policy[0]" in text_of(refused)
        assert not served["dev"]["git"].calls
        assert "isError" not in await bench.use("dev/git/status")


async def test_a_changed_policy_applies_at_once_and_notifies_affected_clients(tmp_path: Path) -> None:
    served = boxes()
    options = {"face": "flat", "use_cache": False}
    async with workbench_with(tmp_path, served, options=options, policy=HIDING) as bench:
        async with served_to(bench, "alice") as alice, served_to(bench, "bob") as bob:
            assert SECRET in json.dumps(await alice.request("tools/list"))
            assert SECRET not in json.dumps(await bob.request("tools/list"))
            await bench.gateway.apply_boxes(tmp_path, served, policy=[{"then": "allow"}])
            assert SECRET in json.dumps(await bob.request("tools/list"))
            assert [each["method"] for each in bob.notifications] == ["notifications/tools/list_changed"]
            assert not alice.notifications, "nothing has changed for her"
            await bench.gateway.apply_boxes(tmp_path, served)
            assert bench.gateway.gate.access is None and bench.gateway.gate.steps() == ()


async def test_changes_of_hidden_items_are_not_announced(tmp_path: Path) -> None:
    served = boxes()
    options = {"face": "flat", "use_cache": False}
    async with workbench_with(tmp_path, served, options=options, policy=HIDING) as bench:
        async with served_to(bench, "alice") as alice, served_to(bench, "bob") as bob:
            for client in (alice, bob):
                await client.request("tools/list")
            git = served["dev"]["git"]
            git.tools.append(tool(f"{SECRET}_fetch", "Another one."))
            git.say_changed()
            await alice.wait_notification("notifications/tools/list_changed")
            await bob.request("ping")
            assert not bob.notifications
            git.tools.append(tool("log", "Show the log."))
            git.say_changed()
            await bob.wait_notification("notifications/tools/list_changed")


async def test_the_status_does_not_count_hidden_items(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), options={"use_cache": False}, policy=HIDING) as bench:
        async with served_to(bench, "alice") as alice, served_to(bench, "bob") as bob:
            for client in (alice, bob):
                await client.call_tool("open_toolbox", {"query": "push"})
            seen = {}
            for name, client in (("alice", alice), ("bob", bob)):
                answer = await client.request("resources/read", {"uri": "workbench://status"})
                status = json.loads(answer["contents"][0]["text"])
                seen[name] = {f"{row['toolbox']}/{row['server']}": row["tools"] for row in status["servers"]}
            assert seen == {"alice": {"dev/git": 2, "ops/db": 1}, "bob": {"dev/git": 1}}
            ready, report = bench.gateway.readiness("bob")
            assert ready and SECRET not in report.decode() and "ops" not in report.decode()


async def test_a_kept_result_of_a_tool_denied_since_is_unavailable(tmp_path: Path) -> None:
    large = Server(
        tool("read"),
        answer=lambda name, arguments: {"content": [{"type": "text", "text": "word " * 20_000}]},
        resultBudget=500,
    )
    served = {"dev": {"git": large}}
    async with workbench_with(tmp_path, served, options={"use_cache": False}, policy=[{"then": "allow"}]) as bench:
        head = text_of(await bench.use("dev/git/read"))
        uri = head.split('"tool": "')[1].split('"')[0]
        assert "word" in text_of(await bench.use(uri, {"start": 0}))
        await bench.gateway.apply_boxes(
            tmp_path, served, policy=[{"tools": ["dev"], "then": "deny"}, {"then": "allow"}]
        )
        gone = await bench.use(uri, {"start": 0})
        assert text_of(gone) == f"`{uri}` is no longer kept; make the call again", "as of one that never was"
        missing = await (await bench.client.start("resources/read", {"uri": uri})).response()
        assert missing["error"]["code"] == -32002


async def test_the_headers_of_a_hidden_tool_are_those_of_one_that_does_not_exist(tmp_path: Path) -> None:
    region = {"type": "string", "x-mcp-header": "Region"}
    served = {"dev": {"git": Server(tool(f"{SECRET}_push", "Push.", region_=region), tool("status"))}}
    options = {"face": "flat", "use_cache": False}
    async with workbench_with(tmp_path, served, options=options, policy=HIDING) as bench:
        mirrored = bench.gateway.mirrored_parameters()
        assert mirrored(f"dev:git:{SECRET}_push", "alice") is None, "it is not listed to her yet"
        for name in ("alice", "bob"):
            async with served_to(bench, name) as client:
                await client.request("tools/list")
        assert mirrored(f"dev:git:{SECRET}_push", "alice") == {("region",): "Region"}
        assert mirrored(f"dev:git:{SECRET}_push", "bob") is None
        await bench.gateway.apply_boxes(tmp_path, served)
        assert mirrored(f"dev:git:{SECRET}_push", "bob") == {("region",): "Region"}


@pytest.mark.requirement("team.hidden")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_hidden_address_that_fits_a_template_is_answered_as_one_that_is_not_there(
    tmp_path: Path, era: str
) -> None:
    hiding = [{"resources": [f"*/*/test:///item/{SECRET}"], "then": "hide"}, {"then": "allow"}]
    boxes = {"box": {"server": ("--offers", "test")}}
    async with Bench(tmp_path).within(boxes, "proxy", era, settings={"policy": hiding}) as seen:
        await seen.open()
        assert (await seen.client.request("resources/read", {"uri": "test:///item/7"}))["contents"]
        refused = []
        for uri in ("test:///item/missing", f"test:///item/{SECRET}", f"TEST:///item/./{SECRET}?x#y"):
            with pytest.raises(RpcError) as error:
                await seen.client.request("resources/read", {"uri": uri})
            refused.append((error.value.code, error.value.data["uri"] == uri))
        assert refused == [(-32002 if era == "legacy" else -32602, True)] * 3
