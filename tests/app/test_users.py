"""Users other than our own: each is shown what a server lists on their own connection, and nothing that it lists to
others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.app import users
from mcp_workbench.engine.catalog import manifests
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL
from mcp_workbench.engine.transport.http.server.authentication import ANONYMOUS, DEFAULT_PRINCIPAL
from mcp_workbench.team.lock.lock_file import LockedServer, LockFile, definition_hash, written
from tests.engine.router.test_router_length_of_a_call import Steps
from tests.faces.harness import introduce
from tests.faces.memory import MemoryClient
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with
from tests.support.processes import eventually
from tests.team.test_access import everything_told

UNCACHED = {"use_cache": False}


def git(**settings: Any) -> Server:
    """Lists one tool to everybody, and one more to each of two users."""
    common = tool("status", "Show the state.")
    server = Server(common, **settings)
    for name in ("alice", "bob"):
        server.tools_of[name] = [common, tool(f"push_{name}", f"Push to the repository of {name}.")]
    return server


@asynccontextmanager
async def served_to(bench: ConnectedClient, principal: str, era: str = "legacy") -> AsyncIterator[MemoryClient]:
    async with MemoryClient.of(bench.gateway, principal) as client:
        await introduce(client, era)
        yield client


def test_our_own_user_has_these_names() -> None:
    assert {"", LOCAL_PRINCIPAL, DEFAULT_PRINCIPAL, ANONYMOUS} == OWN_PRINCIPALS


@pytest.mark.requirement("isolation.principals")
@pytest.mark.parametrize("face", ["proxy", "flat", "dynamic"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_lists_of_other_users_are_not_shown(tmp_path: Path, face: str, era: str) -> None:
    """Told in the same words as if there were nobody else."""
    told = []
    for others in (("alice", ""), ()):
        options = {"face": face, **UNCACHED}
        async with workbench_with(tmp_path, {"dev": {"git": git()}}, options=options) as bench:
            for name in others:
                async with served_to(bench, name, era) as client:
                    assert "push_alice" in json.dumps(await everything_told(client, face, era)) or not name
            async with served_to(bench, "bob", era) as client:
                told.append(await everything_told(client, face, era))
    assert "push_bob" in json.dumps(told[0]), "otherwise this test looks at nothing"
    assert "push_alice" not in json.dumps(told[0])
    assert told[0] == told[1]


@pytest.mark.requirement("isolation.principals")
async def test_a_tool_that_is_listed_to_another_cannot_be_called(tmp_path: Path) -> None:
    server = git()
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=UNCACHED) as bench:
        async with served_to(bench, "alice") as alice, served_to(bench, "bob") as bob:
            path = {"tool": "dev/git/push_alice", "arguments": {}}
            assert not (await alice.call_tool("use_tool", path)).get("isError")
            refused = await bob.call_tool("use_tool", path)
            assert refused["isError"] and "does not exist" in text_of(refused)
    assert len(server.calls) == 1


@pytest.mark.requirement("isolation.principals")
@pytest.mark.parametrize("face", ["proxy", "flat", "dynamic"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_prompts_and_resources_are_listed_to_each_as_their_server_does(
    tmp_path: Path, face: str, era: str
) -> None:
    server = Server(tool("status"))
    server.prompts, server.resources = [{"name": "common"}], [{"uri": "x://common", "name": "common"}]
    for name in ("alice", "bob"):
        server.lists_of[name, "prompts"] = [{"name": f"of-{name}"}]
        server.lists_of[name, "resources"] = [{"uri": f"x://of-{name}", "name": f"of-{name}"}]
    options = {"face": face, **UNCACHED}
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=options) as bench:
        for name, other in (("alice", "bob"), ("bob", "alice"), ("alice", "bob")):
            async with served_to(bench, name, era) as client:
                if face != "flat":
                    await client.call_tool("open_toolbox", {"toolbox_name": "dev"})
                for kind in ("prompts", "resources"):
                    listed = json.dumps(await client.request(f"{kind}/list", {}))
                    assert f"of-{name}" in listed and other not in listed and "common" not in listed
                prompt = (await client.request("prompts/list", {}))["prompts"][0]["name"]
                assert "messages" in await client.request("prompts/get", {"name": prompt})
                theirs = prompt.replace(f"of-{name}", f"of-{other}")
                refused = await (await client.start("prompts/get", {"name": theirs})).response()
                assert "error" in refused
    assert {item for method, item in server.asked if method == "prompts/get"} == {"of-alice", "of-bob"}


@pytest.mark.requirement("isolation.principals")
async def test_changes_are_told_to_those_whose_server_has_changed(tmp_path: Path) -> None:
    server = git()
    options = {"face": "flat", **UNCACHED}
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=options) as bench:
        async with served_to(bench, "alice") as alice, served_to(bench, "bob") as bob:
            for client in (alice, bob):
                await client.request("tools/list", {})
            server.tools_of["alice"] = [tool("moved", "Elsewhere.")]
            server.say_changed("alice")
            await alice.wait_notification("notifications/tools/list_changed")
            assert "moved" in json.dumps(await alice.request("tools/list", {}))
            assert "moved" not in json.dumps(await bob.request("tools/list", {}))
            assert not bob.received("notifications/tools/list_changed")


@pytest.mark.requirement("team.policy")
async def test_rules_judge_by_the_definition_listed_to_the_caller(tmp_path: Path) -> None:
    server = Server()
    for name, is_read_only in (("alice", True), ("bob", False)):
        server.tools_of[name] = [{**tool("run", "Run it."), "annotations": {"readOnlyHint": is_read_only}}]
    policy = [{"when": {"readOnly": False}, "then": "deny"}, {"then": "allow"}]
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=UNCACHED, policy=policy) as bench:
        async with served_to(bench, "alice") as alice, served_to(bench, "bob") as bob:
            for client in (alice, bob):
                await client.call_tool("open_toolbox", {"toolbox_name": "dev"})
            call = {"tool": "dev/git/run", "arguments": {}}
            assert not (await alice.call_tool("use_tool", call)).get("isError")
            assert "does not allow" in text_of(await bob.call_tool("use_tool", call))
            assert not (await alice.call_tool("use_tool", call)).get("isError"), "whoever was listed last"


async def test_a_server_shared_by_everyone_is_started_once_for_all_users(tmp_path: Path) -> None:
    server = git(share="everyone")
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=UNCACHED) as bench:
        for name in ("alice", "bob", ""):
            async with served_to(bench, name) as client:
                said = text_of(await client.call_tool("open_toolbox", {"toolbox_name": "dev"}))
                assert "status" in said and "push" not in said, "what it lists to our own user"
        assert server.starts == 1


async def test_a_users_list_is_cached_for_them_alone(tmp_path: Path) -> None:
    boxes = {"dev": {"git": git()}}
    async with workbench_with(tmp_path, boxes) as bench, served_to(bench, "alice") as alice:
        await alice.call_tool("open_toolbox", {"toolbox_name": "dev"})
    boxes["dev"]["git"].failing = "it does not start"
    async with workbench_with(tmp_path, boxes) as bench:
        for name, is_known in (("alice", True), ("bob", False), ("", False)):
            async with served_to(bench, name) as client:
                said = text_of(await client.call_tool("open_toolbox", {"toolbox_name": "dev"}))
                assert ("push_alice" in said) is is_known


async def test_manifests_of_users_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MAX_USER_MANIFESTS", 3)
    monkeypatch.setattr(manifests, "COUNTED_AFTER", 2)
    folder = Path(manifests.default_folder() or "")
    async with workbench_with(tmp_path, {"dev": {"git": git()}}) as bench:
        await bench.open(toolbox_name="dev")
        own = {each.name for each in folder.glob("*.json")}
        for number in range(8):
            async with served_to(bench, f"user {number}") as client:
                await client.call_tool("open_toolbox", {"toolbox_name": "dev"})
    kept = {each.name for each in folder.glob("*.json")}
    assert own and own <= kept, "what is remembered for our own user stays"
    assert 0 < len(kept - own) <= 5


@pytest.mark.requirement("lock.enforce")
async def test_definitions_listed_to_any_user_are_checked_against_the_lock(tmp_path: Path) -> None:
    server = git()
    hashes = {each["name"]: definition_hash(Raw(json.dumps(each).encode())) for each in server.tools_of["alice"]}
    lock = LockFile(1, "workbench-config.json", {"dev": {"git": LockedServer(tools=hashes)}})
    (tmp_path / "workbench.lock").write_bytes(written(lock))
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=UNCACHED, lock="enforce") as bench:
        for name, shown in (("alice", ["status", "push_alice"]), ("bob", ["status"])):
            async with served_to(bench, name) as client:
                await client.call_tool("open_toolbox", {"toolbox_name": "dev"})
                assert list(bench.gateway.gate.whole_face_of(name).catalog.toolboxes["dev"]["git"].tools) == shown
                answer = await client.call_tool("use_tool", {"tool": f"dev/git/push_{name}", "arguments": {}})
                assert bool(answer.get("isError")) is (name == "bob")
    assert [name for name, _ in server.calls] == ["push_alice"]


async def test_lists_that_are_the_same_are_kept_once(tmp_path: Path) -> None:
    server = Server(tool("status", "Show the state."))
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=UNCACHED) as bench:
        for name in ("alice", "bob"):
            async with served_to(bench, name) as client:
                await client.call_tool("open_toolbox", {"query": "state"})
        one, other = (bench.gateway.gate.whole_face_of(name) for name in ("alice", "bob"))
        assert one.catalog.toolboxes["dev"]["git"] is not other.catalog.toolboxes["dev"]["git"]
        assert one.catalog.toolboxes["dev"]["git"].tools is other.catalog.toolboxes["dev"]["git"].tools
        assert one.tool_index is not None and other.tool_index is not None
        assert one.tool_index.index() is other.tool_index.index()


@pytest.mark.parametrize("face", ["flat", "dynamic"])
async def test_a_list_that_several_users_are_shown_is_kept_once(tmp_path: Path, face: str) -> None:
    server = Server(tool("status", "Show the state."))
    options = {"face": face, **UNCACHED}
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=options) as bench:
        shown = []
        for name in ("alice", "bob"):
            async with served_to(bench, name) as client:
                if face == "dynamic":
                    await client.call_tool("open_toolbox", {"toolbox_name": "dev"})
                await client.request("tools/list", {})
                view = client.session.view
                shown.append(view.face.definitions(view, "tools"))
        assert len(shown[0]) and shown[0] is shown[1]


async def test_where_there_is_no_other_user_there_is_one_catalogue(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"git": git()}}, options=UNCACHED) as bench:
        for name in OWN_PRINCIPALS:
            assert bench.gateway.gate.whole_face_of(name) is bench.gateway.face
        assert bench.gateway.gate.users is None


async def test_another_configuration_is_in_force_for_everybody(tmp_path: Path) -> None:
    server = git()
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=UNCACHED) as bench:
        async with served_to(bench, "alice") as alice:
            await alice.call_tool("use_tool", {"tool": "dev/git/push_alice", "arguments": {}})
            more = Server(tool("list", "List it."))
            await bench.gateway.apply_boxes(tmp_path, {"dev": {"git": server}, "ops": {"db": more}})
            assert "list" in text_of(await alice.call_tool("open_toolbox", {"toolbox_name": "ops"}))
            await alice.call_tool("use_tool", {"tool": "dev/git/push_alice", "arguments": {}})
            assert server.starts == 1, "what was not changed goes on"
            await bench.gateway.apply_boxes(tmp_path, {"ops": {"db": more}})
            refused = await alice.call_tool("use_tool", {"tool": "dev/git/push_alice", "arguments": {}})
            assert refused["isError"]
            await eventually(
                lambda: all(each.entry.toolbox == "ops" for each in bench.gateway.runtime.pool.connections())
            )


@pytest.mark.parametrize(("before", "after"), [("user", "everyone"), ("everyone", "user")])
async def test_whether_everybody_shares_a_server_may_change(tmp_path: Path, before: str, after: str) -> None:
    server = git(share=before)
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=UNCACHED) as bench:
        async with served_to(bench, "alice") as alice, served_to(bench, "bob") as bob:

            async def listed() -> list[bool]:
                said = [text_of(await each.call_tool("open_toolbox", {"toolbox_name": "dev"})) for each in (alice, bob)]
                return ["push_alice" in said[0], "push_bob" in said[1]]

            assert await listed() == [before == "user"] * 2
            server.settings["share"] = after
            await bench.gateway.apply_boxes(tmp_path, {"dev": {"git": server}})
            assert await listed() == [after == "user"] * 2


async def test_principals_without_clients_are_forgotten_beyond_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "MAX_CACHED_USERS", 3)
    policy = [{"tools": ["*/*/nothing"], "then": "hide"}, {"then": "allow"}]
    async with workbench_with(tmp_path, {"dev": {"git": git()}}, options=UNCACHED, policy=policy) as bench:
        gateway = bench.gateway
        async with served_to(bench, "alice") as alice:
            call = {"tool": "dev/git/push_alice", "arguments": {}}
            await alice.call_tool("use_tool", call)
            kept = gateway.gate.whole_face_of("alice")
            for number in range(20):
                gateway.router.views.of_principal(f"user {number}")
            assert gateway.gate.users is not None and len(gateway.gate.users) <= 3
            assert gateway.gate.whole_face_of("alice") is kept
            assert gateway.gate.access is not None and len(list(gateway.gate.access.faces())) <= 4
            assert len(list(gateway.router.views)) <= 6
            assert not (await alice.call_tool("use_tool", {"tool": "dev/git/push_alice", "arguments": {}})).get(
                "isError"
            )


async def test_lock_reports_of_a_user_are_forgotten_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MAX_CACHED_USERS", 3)
    (tmp_path / "workbench.lock").write_bytes(written(LockFile(1, "workbench-config.json", {})))
    async with workbench_with(tmp_path, {"dev": {"git": git()}}, options=UNCACHED, lock="warn") as bench:
        for number in range(5):
            async with served_to(bench, f"user {number}") as client:
                await client.call_tool("open_toolbox", {"toolbox_name": "dev"})
            for connection in bench.gateway.runtime.pool.connections():
                connection.request_stop()
                await connection.wait_stopped()
        assert bench.gateway.gate.oversight is not None and bench.gateway.gate.oversight._lock is not None
        assert bench.gateway.gate.users is not None
        kept = {face.catalog.principal for face in bench.gateway.gate.users}
        assert "user 4" in kept and set(bench.gateway.gate.oversight._lock._said) == kept


async def test_a_new_user_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    """Of a server that lists nothing to them yet, what it lists to others decides whether they may see it."""
    annotated = {**tool("drop"), "annotations": {"readOnlyHint": False}}
    policy = [
        {"who": ["admin*"], "then": "allow"},
        {"tools": ["ops/*/*"], "when": {"readOnly": False}, "then": "hide"},
        {"then": "allow"},
    ]
    counts = []
    for others in (3, 30):
        boxes = {"dev": {"git": Server(tool("status"))}, "ops": {"db": Server(annotated)}}
        options = {"face": "flat", **UNCACHED}
        async with workbench_with(tmp_path, boxes, options=options, policy=policy) as bench:
            for number in range(others):
                for name in (f"admin {number}", f"user {number}"):
                    async with served_to(bench, name, "modern") as client:
                        listed = await client.request("tools/list", {})
                        assert ("drop" in json.dumps(listed)) is name.startswith("admin")
            with Steps() as steps:
                async with served_to(bench, "bob", "modern") as client:
                    await client.request("tools/list", {})
            counts.append(Counter(steps.names))
            assert boxes["ops"]["db"].starts == others, "what is hidden is not started for it"
    assert "catalog.elsewhere" in counts[0], "otherwise this test looks at nothing"
    assert counts[1] - counts[0] == Counter(), "done more often where there are more users"


@pytest.mark.requirement("team.hidden")
async def test_a_server_is_seen_if_any_of_its_lists_would_be(tmp_path: Path) -> None:
    """Lists of users are kept once for all who have them: until the last of these is gone, or listed something else."""
    server = Server(tool("status"))
    secret = tool("secret")
    server.tools_of = {"admin 1": [secret], "admin 2": [secret]}
    policy = [{"who": ["admin*"], "then": "allow"}, {"tools": ["*/*/secret"], "then": "hide"}, {"then": "allow"}]
    options = {"face": "flat", **UNCACHED}
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=options, policy=policy) as bench:

        def is_seen(name: str) -> bool:
            return "dev" in bench.gateway.router.views.of_principal(name).face.catalog.toolboxes

        async with served_to(bench, "admin 1") as one, served_to(bench, "admin 2") as two:
            assert is_seen("a"), "nobody knows what it lists"
            for client in (one, two):
                await client.request("tools/list", {})
            assert not is_seen("b")
            server.tools_of["admin 2"] = [tool("other")]
            server.say_changed("admin 2")
            await two.wait_notification("notifications/tools/list_changed")
            assert is_seen("c")
            server.tools_of["admin 2"] = [secret]
            server.say_changed("admin 2")
            await two.wait_notification("notifications/tools/list_changed", 2)
            assert not is_seen("d")


@pytest.mark.requirement("isolation.principals")
async def test_a_reused_key_name_starts_without_old_state(tmp_path: Path) -> None:
    server = git(resultBudget=300)
    server.answer = lambda name, arguments: {"content": [{"type": "text", "text": "secret " * 2000}]}
    async with workbench_with(tmp_path, {"dev": {"git": server}}) as bench:
        gateway, call = bench.gateway, {"tool": "dev/git/push_alice", "arguments": {}}
        for name in ("alice", "bob"):
            async with served_to(bench, name) as client:
                await client.call_tool("use_tool", {**call, "tool": f"dev/git/push_{name}"})
        results = gateway.face.kept_results()
        assert results is not None and len(results) == 2 and gateway.gate.users is not None
        starts = server.starts
        server.tools_of["alice"] = [tool("other")]
        gateway.gate.users.revoke({"alice"}, "the key was revoked")
        gateway.catalog.store.drop_users()
        assert len(results) == 1 and results.kept_bytes > 0
        async with served_to(bench, "alice") as client:
            said = text_of(await client.call_tool("open_toolbox", {"toolbox_name": "dev"}))
            assert "push_alice" not in said and "other" in said
        async with served_to(bench, "bob") as client:
            assert "push_bob" in text_of(await client.call_tool("open_toolbox", {"toolbox_name": "dev"}))
        assert server.starts == starts + 1, "its own process, and none for others"


async def test_the_owner_sees_the_connections_of_all_users(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"git": git(), "db": Server()}}, options=UNCACHED) as bench:
        for name in ("alice", "bob"):
            async with served_to(bench, name) as client:
                await client.call_tool("use_tool", {"tool": "dev/git/status", "arguments": {}})
        rows = json.loads(bench.gateway.status())["servers"]
        assert [(row["server"], row["tools"]) for row in rows] == [("git", 2), ("git", 2), ("db", None)]
        theirs = json.loads(bench.gateway.readiness("bob")[1])["servers"]
        assert [(row["server"], row["tools"]) for row in theirs] == [("git", 2), ("db", None)]
        assert json.loads(bench.gateway.status())["parkedCalls"] == 0
        assert json.loads(bench.gateway.readiness("bob")[1])["parkedCalls"] is None, "of all users"
