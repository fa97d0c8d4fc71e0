"""The page as browsers reach it: who gets in, what other sites cannot do, and what each user sees."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app.gateway import Gateway
from mcp_workbench.app.page_serving import PAGE_PORT_LIFETIME, OwnPage
from mcp_workbench.app.page_workbench import WorkbenchOnPage
from mcp_workbench.cli.engine import Engine
from mcp_workbench.cli.token_report import measure
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.engine.economy.tokens import tokens as tokens_of
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.transport.http.server.pages import MAX_SITE_BODY
from mcp_workbench.seeing.page import sign_in
from mcp_workbench.seeing.page.sign_in import PageUser
from mcp_workbench.seeing.page.site import MAX_REQUESTS_OF_ONE
from mcp_workbench.seeing.page.streams import MAX_STREAMS_OF_ONE
from mcp_workbench.team.lock.lock_file import LOCK_FILE_MODE
from tests.app.page_client_of_tests import KEYS, TOKENS, Browser, endpoint, key_in, own_page
from tests.engine.transport.http.server.raw_client import Response, raw_client
from tests.support.client import Json
from tests.support.in_process_workbench import Server, tool, workbench_with

pytestmark = pytest.mark.processes

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
ASKING = [{"tools": ["box/two"], "then": "ask"}, {"then": "allow"}]


def boxes() -> dict[str, dict[str, Server]]:
    return {"box": {"one": Server(tool("read", HOSTILE)), "two": Server(tool("write", "Writes.", text_="string"))}}


async def event(stream: Response, name: str) -> Any:
    while (found := await stream.event()).type != name:
        pass
    return json.loads(found.data)


async def ended_call(stream: Response) -> Json:
    while True:
        calls: list[Json] = await event(stream, "calls")
        for call in calls:
            if call["state"] == "ended":
                return call


async def rows(browser: Browser) -> dict[str, Json]:
    return {row["server"]: row for row in (await browser.state())["servers"]}


def test_nothing_of_the_page_is_loaded_before_the_first_request_for_it() -> None:
    script = (
        "import sys\n"
        "import mcp_workbench.app.serving, mcp_workbench.app.http_callers, mcp_workbench.app.page_serving as serving\n"
        "import mcp_workbench.app.watching, mcp_workbench.sharing.workbench\n"
        "site = serving.endpoint_page(None, is_tls=False, takes_keys=True, connect=list)\n"
        "assert site.takes('/') and site.takes('/api/state') and not site.takes('/mcp')\n"
        "print([name for name in sys.modules if 'seeing' in name or name.endswith('page_workbench')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ── signing in ──


async def test_a_code_signs_in_once_and_the_cookie_is_for_this_page_alone(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        (code,) = [*browser.cookie.split("=")[1:]]
        name = browser.cookie.partition("=")[0]
        assert name == f"wb_page_{browser.host.partition(':')[2]}" and len(code) >= 43
        assert (await browser.get("/")).status == 200
        browser.cookie = f"{name}=x{code}"
        refused = await browser.get("/")
        assert refused.status == 401 and b"mcp-workbench page" in refused.body
        assert (await browser.get("/api/state")).json["error"].startswith("you are not signed in")
        assert (await browser.get("/login?code=" + code)).status == 401, "a cookie is no code"


async def test_a_key_signs_in_by_a_form_and_never_by_an_address(tmp_path: Path) -> None:
    async with endpoint(tmp_path, boxes()) as browser:
        assert (await browser.get("/login?key=token")).status == 401
        assert (await browser.get("/api/state", authorization="Bearer token")).status == 401
        wrong = await browser.post("/login", b"key=guess")
        assert wrong.status == 401 and b"this token is not valid" in wrong.body and "set-cookie" not in wrong.headers
        right = await browser.post("/login", b"key=token")
        assert right.status == 303 and right.headers["location"] == "/"
        assert "HttpOnly; SameSite=Strict; Path=/" in right.headers["set-cookie"]


async def test_a_session_that_was_ended_is_over(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        assert (await browser.post("/logout", {})).status == 200
        assert (await browser.get("/api/state")).status == 401


async def test_workbench_listens_at_the_port_of_its_predecessors_page_and_signs_in_no_session(tmp_path: Path) -> None:
    file = tmp_path / "shared.page"
    async with workbench_with(tmp_path, boxes()) as agent:
        pages = [OwnPage(agent.gateway.runtime, lambda: [agent.gateway], str(file)) for _ in range(4)]
        try:
            await pages[0].reopen()
            assert pages[0].address is None, "no page was open before"
            address = await pages[0].open(0, [], by="ada", may_decide=True)
            assert file.stat().st_mode & 0o777 == 0o600
            await pages[1].reopen()
            assert pages[1].address is None, "somebody listens there"
            await pages[0].close()
            await pages[1].reopen()
            assert pages[1].address == address.partition("login")[0]
            port = int(file.read_text())
            async with raw_client(port) as client:
                browser = Browser(client, port)
                told = await browser.get("/api/state")
                assert told.status == 401 and "mcp-workbench page" in told.json["error"]
                assert (await browser.get("/login" + address.partition("/login")[2])).status == 401
            await pages[1].close()
            for written in ("0", "99999", "-1", "nonsense", ""):
                file.write_text(written)
                await pages[2].reopen()
            file.write_text(str(port))
            os.utime(file, (0, time.time() - PAGE_PORT_LIFETIME - 1))
            await pages[2].reopen()
            assert pages[2].address is None, "its tabs have ended"
        finally:
            for page in pages:
                await page.close()


# ── other sites ──


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": None}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": None}, 403),
        ({"x_csrf": None}, 403),
        ({"x_csrf": "of another session"}, 403),
        ({"host": "rebound.example", "origin": "http://rebound.example"}, 403),
        ({"cookie": ""}, 401),
        ({}, 200),
    ],
)
async def test_only_our_own_page_may_act(tmp_path: Path, headers: dict[str, Any], status: int) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        wanted = {"toolbox": "box", "server": "two", "do": "start"}
        assert (await browser.post("/api/server", wanted, **headers)).status == status
        started = (await rows(browser))["two"]["starts"]
        assert bool(started) == (status == 200)


async def test_a_cookie_without_the_key_of_the_page_is_worth_nothing(tmp_path: Path) -> None:
    """Whatever listens on another port of this host is sent the cookie by the browser."""
    async with own_page(tmp_path, boxes()) as browser:
        again = await browser.get("/")
        assert again.status == 200 and key_in(again) == "" and browser.csrf.encode() not in again.body
        state = await browser.get("/api/state")
        assert state.status == 200 and browser.csrf.encode() not in state.body
        for path in ("/api/state", "/api/tools", "/api/events", "/api/audit", "/api/nothing"):
            for key in (None, "guess"):
                assert (await browser.get(path, x_csrf=key)).status == 401
        wanted = {"toolbox": "box", "server": "two", "do": "start"}
        assert (await browser.post("/api/server", wanted, x_csrf=None)).status == 403
        assert (await rows(browser))["two"]["starts"] == 0


async def test_another_site_can_neither_read_nor_frame_the_page(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        for path in ("/", "/web/style.css", "/api/state", "/api/nothing"):
            found = await browser.get(path)
            assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
            assert "unsafe" not in found.headers["content-security-policy"]
            assert found.headers["x-frame-options"] == "DENY" and found.headers["x-content-type-options"] == "nosniff"
            assert not [name for name in found.headers if name.startswith("access-control")]
        assert (await browser.get("/api/state", sec_fetch_site="cross-site")).status == 403
        assert (await browser.get("/api/state", host="rebound.example")).status == 403


async def test_the_port_of_the_page_serves_no_mcp(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        assert (await browser.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"})).status == 401


# ── bad input ──


@pytest.mark.parametrize("path", ["/api/nothing", "/api/calls/7", "/api/calls/x", "/web/../site.py", "/web/nothing.js"])
async def test_unknown_path_is_404(tmp_path: Path, path: str) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        found = await browser.get(path)
        assert found.status == 404 and found.json["error"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"toolbox": 1}', b"[" * 100_000])
async def test_a_malformed_body_is_400(tmp_path: Path, body: bytes) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        for path in ("/api/server", "/api/call", "/api/approve", "/api/sign-in", "/api/lock/accept"):
            assert (await browser.post(path, body)).status == 400, path


async def test_a_body_that_is_too_large_is_413(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        assert (await browser.post("/api/call", b" " * (MAX_SITE_BODY + 1))).status == 413
        assert (await browser.post("/api/call", b" " * MAX_SITE_BODY)).status == 400


# ── what our own user sees and does ──


async def test_a_call_of_a_client_appears_with_its_arguments_and_without_secrets(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        stream = await browser.get("/api/events")
        assert stream.headers["content-type"] == "text/event-stream"
        assert [row["server"] for row in (await event(stream, "state"))["servers"]] == ["one", "two"]
        await browser.agent.use(
            {"toolbox": "box", "server": "two", "tool": "write"}, {"text": "x", "password": "hunter2"}
        )
        ended = await ended_call(stream)
        assert (ended["server"], ended["item"], ended["end"]) == ("two", "write", "ok")
        assert ended["principal"] == "local"
        found = (await browser.get(f"/api/calls/{ended['id']}")).json
        assert '"text": "x"' in found["arguments"] and "hunter2" not in found["arguments"]
        assert "content" in found["result"]
        row = (await rows(browser))["two"]
        assert row["calls"] == 1 and row["errors"] == 0 and row["p50"] is not None
        day = (await browser.get("/api/server?toolbox=box&server=two")).json["dayTimes"]
        assert 0 < day["p50"] == day["p95"]
        assert row["profile"] == "guard"


async def test_nothing_is_kept_of_calls_while_no_page_is_open(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        await browser.agent.use({"toolbox": "box", "server": "two", "tool": "write"}, {"text": "x"})
        stream = await browser.get("/api/events")
        await browser.agent.use({"toolbox": "box", "server": "one", "tool": "read"})
        assert (await ended_call(stream))["item"] == "read"
        assert (await rows(browser))["two"]["calls"] == 1, "but it was counted"


async def test_nothing_of_content_is_kept_with_capture_none(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes(), page={"capture": "none"}) as browser:
        stream = await browser.get("/api/events")
        await browser.agent.use({"toolbox": "box", "server": "two", "tool": "write"}, {"text": "x"})
        found = (await browser.get(f"/api/calls/{(await ended_call(stream))['id']}")).json
        assert found["arguments"] is None and found["result"] is None and found["item"] == "write"


async def test_tokens_are_the_same_in_every_view_and_at_the_command_line(tmp_path: Path) -> None:
    every = boxes()
    # As some servers write their definitions.
    for server in every["box"].values():
        server.tools = [{**each, "annotations": {"title": "Ein schöner Titel"}} for each in server.tools]
    async with own_page(tmp_path, every) as browser:
        for name in ("one", "two"):
            assert (await browser.post("/api/server", {"toolbox": "box", "server": name, "do": "start"})).status == 200
        items: list[Json] = []
        while len(items) < 2:
            items = (await browser.get("/api/tools")).json["items"]
        tokens = (await browser.get("/api/tokens")).json
        config, engine = browser.agent.gateway.config, Engine(browser.agent.gateway.config, use_cache=False)
        for box, servers in browser.agent.gateway.catalog.toolboxes.items():
            for name, entry in servers.items():
                assert entry.offer is not None
                engine.face.catalog.toolboxes[box][name].learn(entry.offer, remember=False)
        report = measure(config, engine)
        assert sum(each["tokens"] for each in items) == tokens["full"] == report.flat
        # Here not all instructions may be known yet.
        face = browser.agent.gateway.face
        assert tokens["shown"] == report.listed + tokens_of(face.instructions(View(OWN_USER)))


async def test_every_item_is_listed_with_its_tokens_and_hostile_text_as_it_is(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        for name in ("one", "two"):
            assert (await browser.post("/api/server", {"toolbox": "box", "server": name, "do": "start"})).status == 200
        items: list[Json] = []
        while len(items) < 2:
            items = (await browser.get("/api/tools")).json["items"]
        assert [(each["kind"], each["server"], each["name"]) for each in items] == [
            ("tool", "one", "read"),
            ("tool", "two", "write"),
        ]
        assert items[0]["description"] == HOSTILE and all(each["tokens"] > 0 for each in items)
        assert items[1]["inputSchema"]["required"] == ["text"]


async def test_a_call_from_the_page_passes_all_steps_and_is_in_the_audit(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with own_page(tmp_path, boxes(), audit={"file": str(audit)}) as browser:
        wanted = {"kind": "tool", "toolbox": "box", "server": "two", "name": "write", "arguments": {"text": "hello"}}
        done = (await browser.post("/api/call", wanted)).json
        assert "hello" in json.dumps(done["result"]) and done["id"] and done["seconds"] > 0
        lines: list[Json] = []
        while not lines:
            lines = [
                each for each in (await browser.get("/api/audit?q=write")).json["lines"] if each.get("item") == "write"
            ]
        assert lines[0]["peer"] == "page" and lines[0]["decision"] == "passed"
        whole = (await browser.get("/api/audit")).json
        assert whole["verified"] is True and (await browser.get("/api/audit?limit=1")).json["more"]
        seen = (await browser.get("/api/audit?limit=1")).json["from"]
        older = (await browser.get(f"/api/audit?limit=1&from={seen}")).json["lines"]
        assert [str(each["number"]) for each in older] == [str(int(seen) - 1)]
        for wrong in ("limit=x", "from=x", "from=1,", "from=" + "1" * 20):
            assert (await browser.get(f"/api/audit?{wrong}")).status == 400


async def test_a_resource_is_read_from_the_server_that_was_chosen(tmp_path: Path) -> None:
    servers = boxes()["box"]
    for server in servers.values():
        server.resources = [{"uri": "file:///notes", "name": "notes"}]
    async with own_page(tmp_path, {"box": servers}) as browser:
        for name in servers:
            assert (await browser.post("/api/server", {"toolbox": "box", "server": name, "do": "start"})).status == 200
        while len((await browser.get("/api/tools")).json["items"]) < 4:
            pass
        wanted = {"kind": "resource", "toolbox": "box", "server": "two", "uri": "file:///notes"}
        done = (await browser.post("/api/call", wanted)).json
        assert done["result"]["contents"][0]["uri"] == "file:///notes", done
        assert ("resources/read", "file:///notes") in servers["two"].asked
        assert ("resources/read", "file:///notes") not in servers["one"].asked


async def test_a_destructive_tool_is_called_only_after_it_was_confirmed(tmp_path: Path) -> None:
    erase = {**tool("erase"), "annotations": {"destructiveHint": True}}
    called: list[str] = []

    def answer(name: str, arguments: Json) -> Json:
        called.append(name)
        return {"content": []}

    async with own_page(
        tmp_path, {"box": {"one": Server(tool("read")), "two": Server(erase, answer=answer)}}
    ) as browser:
        wanted = {"kind": "tool", "toolbox": "box", "server": "two", "name": "erase", "arguments": {}}
        await browser.agent.open(toolbox_name="box")
        refused = await browser.post("/api/call", wanted)
        assert (refused.status, refused.json["confirm"], called) == (428, True, [])
        assert (await browser.post("/api/call", {**wanted, "confirmed": True})).status == 200
        assert called == ["erase"]


@pytest.mark.parametrize("decision", ["once", "hour", "deny"])
async def test_a_waiting_call_is_decided_once(tmp_path: Path, decision: str) -> None:
    async with own_page(tmp_path, boxes(), policy=ASKING) as browser:
        place = {"toolbox": "box", "server": "two", "tool": "write"}
        refused = await browser.agent.use(place, {"text": "x"})
        assert "mcp-workbench team approve" in json.dumps(refused)
        (waiting,) = (await browser.state())["waiting"]
        assert (waiting["kind"], waiting["tool"], waiting["rule"]) == ("approval", "write", "policy[0]")
        assert '"text":"x"' in waiting["arguments"].replace(" ", "") and waiting["expires"] > waiting["at"]
        wanted = {"id": waiting["id"], "decision": decision}
        assert (await browser.post("/api/approve", {**wanted, "decision": "maybe"})).status == 400
        assert (await browser.post("/api/approve", {**wanted, "id": "0" * 10})).status == 404
        assert (await browser.post("/api/approve", wanted)).status == 200
        again = await browser.post("/api/approve", {**wanted, "decision": "once"})
        assert again.status == 409 and again.json["by"] == "ada on the page"
        answered = json.dumps(await browser.agent.use(place, {"text": "x"}))
        assert ("denied by ada on the page" in answered) == (decision == "deny")
        assert (await browser.state())["waiting"] == []


@pytest.mark.parametrize(("size", "rest"), [(1000, ""), (100_000, "kept"), (300_000, "lost")])
async def test_a_waiting_call_is_reported_whole_or_the_page_learns_that_it_cannot_be(
    tmp_path: Path, size: int, rest: str
) -> None:
    async with own_page(tmp_path, boxes(), policy=ASKING) as browser:
        text = "x" * size + "the end\u202e"
        await browser.agent.use({"toolbox": "box", "server": "two", "tool": "write"}, {"text": text})
        (waiting,) = (await browser.state())["waiting"]
        assert waiting["rest"] == rest and ("the end" in waiting["arguments"]) == (rest == "")
        whole = await browser.get(f"/api/approval?id={waiting['id']}")
        assert whole.status == (404 if rest == "lost" else 200)
        assert rest == "lost" or "the end\\\\u202e" in json.dumps(whole.json["arguments"])
        assert len(json.dumps(await browser.state())) < 40_000
        assert (await browser.get("/api/approval?id=0")).status == 404
        assert (await browser.get("/api/approval")).status == 400


async def test_a_page_that_a_server_may_have_opened_decides_nothing(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes(), may_decide=False, policy=ASKING) as browser:
        await browser.agent.use({"toolbox": "box", "server": "two", "tool": "write"}, {"text": "x"})
        (waiting,) = (await browser.state())["waiting"]
        refused = await browser.post("/api/approve", {"id": waiting["id"], "decision": "once"})
        assert refused.status == 403 and "no_new_privs" in refused.json["error"]
        assert [each["id"] for each in (await browser.state())["waiting"]] == [waiting["id"]]


async def test_servers_are_started_stopped_and_shown_with_why_they_failed(tmp_path: Path) -> None:
    served = boxes()
    served["box"]["two"].failing = "it is broken"
    async with own_page(tmp_path, served) as browser:
        for name in ("one", "two"):
            assert (await browser.post("/api/server", {"toolbox": "box", "server": name, "do": "start"})).status == 200
        found: dict[str, Json] = {}
        while found.get("two", {}).get("state") not in ("backoff", "failed") or found["one"]["state"] != "ready":
            found = await rows(browser)
        assert "it is broken" in found["two"]["why"] and found["two"]["next"]
        (crashed,) = (await browser.state())["waiting"]
        assert (crashed["kind"], crashed["server"]) == ("crashed", "two")
        assert (await browser.post("/api/server", {"toolbox": "box", "server": "one", "do": "stop"})).status == 200
        assert (await rows(browser))["one"]["state"] != "ready"
        detail = (await browser.get("/api/server?toolbox=box&server=one")).json
        assert len(detail["histogram"]["counts"]) == len(detail["histogram"]["bounds"]) + 1
        assert detail["dayTimes"] == {"p50": None, "p95": None}
        for wrong, status in (({"server": "none"}, 404), ({"do": "explode"}, 400)):
            wanted = {"toolbox": "box", "server": "one", "do": "stop", **wrong}
            assert (await browser.post("/api/server", wanted)).status == status
        assert (await browser.get("/api/server?toolbox=box&server=none")).status == 404


async def test_a_server_that_lacks_a_variable_is_shown_with_why_before_and_after_a_call(tmp_path: Path) -> None:
    served = boxes()
    served["box"]["two"].settings["env"] = {"KEY": "${SURELY_NOT_SET}"}
    async with own_page(tmp_path, served) as browser:
        for _ in range(2):
            found = (await rows(browser))["two"]
            assert found["state"] == "failed" and "the variable `SURELY_NOT_SET` is not set" in found["why"]
            assert "SURELY_NOT_SET" in found["next"]
            await browser.agent.use({"toolbox": "box", "server": "two", "tool": "write"}, {"text": "x"})


async def test_decision_about_a_host_needs_one_that_was_refused_and_a_person(tmp_path: Path) -> None:
    wanted = {"toolbox": "box", "server": "one", "host": "a.com", "decision": "allow"}
    async with own_page(tmp_path, boxes()) as browser:
        await browser.agent.use({"toolbox": "box", "server": "one", "tool": "read"})
        assert (await browser.post("/api/host", wanted)).status == 404
        (connection,) = browser.agent.gateway.runtime.pool.connections()
        connection.refused_hosts |= {"a.com": 1, "*.com:443": 1}
        for wrong, status in (({"server": "none"}, 404), ({"decision": "maybe"}, 400), ({"host": "*.com:443"}, 400)):
            assert (await browser.post("/api/host", {**wanted, **wrong})).status == status
        assert connection.entry.host_decisions == {}
        assert (await browser.post("/api/host", wanted)).json == {"host": "a.com", "decision": "allow"}
        assert (await browser.post("/api/host", {**wanted, "decision": "refuse"})).status == 200
        assert connection.entry.host_decisions == {"a.com": False}
    async with own_page(tmp_path, boxes(), may_decide=False) as browser:
        refused = await browser.post("/api/host", wanted)
        assert refused.status == 403 and "no_new_privs" in refused.json["error"]


async def test_tokens_lock_and_ways_to_connect_are_reported(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        await browser.agent.open(toolbox_name="box")
        tokens = (await browser.get("/api/tokens")).json
        assert tokens["full"] == sum(each["full"] for each in tokens["perToolbox"]) > 0 and tokens["shown"] > 0
        (box,) = tokens["perToolbox"]
        # Opened, a toolbox takes about what its definitions do.
        assert 0 < box["shown"] < 2 * box["full"]
        (box,), (shown,) = (await browser.get("/api/tokens")).json["perToolbox"], (await browser.state())["toolboxes"]
        assert box["saved"] == shown["saved"]
        assert (await browser.get("/api/lock")).json == {"changes": [], "isLocked": False}
        assert (await browser.get("/api/connect")).body == b'[{"client":"x"}]'
        assert (await browser.get("/api/audit")).json["why"] == "there is no `audit` in the configuration"


async def test_a_changed_definition_is_shown_and_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with own_page(tmp_path, boxes(), lock="enforce") as browser:
        for name in ("one", "two"):
            await browser.post("/api/server", {"toolbox": "box", "server": name, "do": "start"})
        changes: list[Json] = []
        while len(changes) < 2:
            changes = (await browser.get("/api/lock")).json["changes"]
        assert [(each["server"], each["item"], each["what"]) for each in changes] == [
            ("one", "read", "new"),
            ("two", "write", "new"),
        ]
        assert "Writes." in changes[1]["after"] and changes[1]["before"] is None
        assert all(each["isKnown"] for each in changes), "nothing was accepted before"
        wanted = {"toolbox": "box", "server": "two", "item": "write", "seen": changes[1]["hash"]}
        assert (await browser.post("/api/lock/accept", {**wanted, "item": "none"})).status == 404
        for seen in (None, changes[0]["hash"]):
            assert (await browser.post("/api/lock/accept", {**wanted, "seen": seen})).status == 409
        assert len((await browser.get("/api/lock")).json["changes"]) == 2, "nothing that was not seen is accepted"
        assert (await browser.post("/api/lock/accept", wanted)).json == {"accepted": ["write"]}
        assert [each["item"] for each in (await browser.get("/api/lock")).json["changes"]] == ["read"]
        lock = tmp_path / "workbench.lock"
        assert "write" in lock.read_text()
        assert stat.S_IMODE(lock.stat().st_mode) == LOCK_FILE_MODE, "others who check it out read it, too"
        lock.write_text(lock.read_text().replace(wanted["seen"], "sha256:" + "0" * 64))
        changed = (await browser.get("/api/lock")).json["changes"][-1]
        assert (changed["item"], changed["before"], changed["isKnown"]) == ("write", None, False)


async def test_definition_before_and_after_differs_only_in_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    two = Server(tool("write", "Writes.", text_="string"))
    async with own_page(tmp_path, {"box": {"two": two}}, lock="warn") as browser:
        place = {"toolbox": "box", "server": "two"}

        async def changes_after(do: str) -> list[Json]:
            await browser.post("/api/server", {**place, "do": do})
            found: list[Json] = []
            while not found:
                found = (await browser.get("/api/lock")).json["changes"]
            return found

        (new,) = await changes_after("start")
        await browser.post("/api/lock/accept", {**place, "item": "write", "seen": new["hash"]})
        two.tools[0] = {**dict(reversed(two.tools[0].items())), "description": "Writes everywhere."}
        (changed,) = await changes_after("restart")

        assert changed["after"] == changed["before"].replace("Writes.", "Writes everywhere.")


async def test_items_a_lock_only_warns_of_wait_for_a_person_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "workbench.lock").write_text('{"version": 1, "config": "workbench-config.json", "toolboxes": {}}')
    async with own_page(tmp_path, boxes(), lock="warn") as browser:
        for name in ("one", "two"):
            await browser.post("/api/server", {"toolbox": "box", "server": name, "do": "start"})
        waiting: list[Json] = []
        async with asyncio.timeout(30):
            while len(waiting) < 2:
                waiting = (await browser.state())["waiting"]
        assert [(each["kind"], each["server"], each["item"], each["what"]) for each in waiting] == [
            ("definition", "one", "read", "tool: it is not in the lock file"),
            ("definition", "two", "write", "tool: it is not in the lock file"),
        ]
        assert "error" not in await browser.agent.use({"toolbox": "box", "server": "one", "tool": "read"}, {})
        (_, change) = (await browser.get("/api/lock")).json["changes"]
        wanted = {"toolbox": "box", "server": "two", "item": "write", "seen": change["hash"]}
        assert (await browser.post("/api/lock/accept", wanted)).status == 200


async def test_rejected_configuration_and_missing_lock_wait_for_a_person(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes(), lock="warn") as browser:
        browser.agent.gateway.reloads.rejected = "config.json: 1 problem\n  $.policy: wrong"
        waiting = (await browser.state())["waiting"]
        assert [(each["kind"], each["what"]) for each in waiting] == [("notice", "Not in force"), ("notice", "No lock")]
        assert waiting[0]["lines"] == ["config.json: 1 problem", "  $.policy: wrong"]
        assert "no lock file yet" in waiting[1]["why"] and "team lock" in waiting[1]["next"]
        assert all(each["server"] == browser.agent.gateway.config.path for each in waiting)
        # As for clients in two folders.
        gateway = browser.agent.gateway
        both = WorkbenchOnPage(gateway.runtime, lambda: [gateway, gateway])
        assert both.state(PageUser("", is_owner=True, name="ada"))["waiting"] == waiting


async def test_the_folder_in_which_most_is_listed_is_counted(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    owner = PageUser("", is_owner=True, name="ada")
    async with (
        workbench_with(tmp_path / "elsewhere", boxes()) as few,
        own_page(tmp_path, boxes()) as browser,
    ):
        await few.use({"toolbox": "box", "server": "one", "tool": "read"})
        await browser.agent.open(toolbox_name="box")
        state, tokens = await browser.state(), (await browser.get("/api/tokens")).json
        assert (state["toolboxes"][0]["tools"], state["toolboxes"][0]["unlisted"], tokens["unlisted"]) == (2, 0, 0)
        both: list[Gateway] = [few.gateway, browser.agent.gateway]
        page = WorkbenchOnPage(browser.agent.gateway.runtime, lambda: both)
        assert page.state(owner)["toolboxes"][0]["tools"] == 2
        seen = await page.tokens(owner)
        assert (seen["full"], seen["unlisted"]) == (tokens["full"], 0)
        assert seen["perToolbox"][0]["shown"] == tokens["perToolbox"][0]["shown"]


async def test_two_hundred_servers_fit_into_a_small_state(tmp_path: Path) -> None:
    many = {"box": {f"server-{number:03}": Server(tool("read", "Reads.")) for number in range(200)}}
    async with own_page(tmp_path, many) as browser:
        assert len((await browser.get("/api/state")).body) <= 100_000


async def test_at_most_eight_pages_are_open_and_a_closed_one_makes_room(tmp_path: Path) -> None:
    async with own_page(tmp_path, boxes()) as browser:
        streams = [await browser.get("/api/events") for _ in range(8)]
        assert [each.status for each in streams] == [200] * 8
        assert (await browser.get("/api/events")).status == 503
        streams[0]._connection.close()
        while (again := await browser.get("/api/events")).status != 200:
            await asyncio.sleep(0)
        assert again.is_stream


# ── other users ──


async def test_others_see_their_own_calls_and_no_controls(tmp_path: Path) -> None:
    hidden = [{"who": ["ada", "bob"], "tools": ["box/one"], "then": "hide"}, {"then": "allow"}]
    async with endpoint(tmp_path, boxes(), policy=hidden, audit={"file": str(tmp_path / "audit.jsonl")}) as browser:
        await browser.sign_in("key-of-bob")
        state = await browser.state()
        assert state["you"] == {"principal": "bob", "isOwner": False, "mayDecide": False} and state["waiting"] == []
        assert state["servers"][-1]["calls"] is None, "of all users, so not measured for one"
        machine = (state["workbench"]["pid"], state["workbench"]["config"], state["toolboxes"][0]["saved"])
        # Nothing was listed for this user yet, which is not the same as nothing.
        assert (state["toolboxes"][0]["tools"], state["toolboxes"][0]["tokens"]) == (None, None)
        assert state["toolboxes"][0]["unlisted"] == 1
        assert machine == (None, None, None) and str(tmp_path) not in json.dumps(state)
        tokens = (await browser.get("/api/tokens")).json
        assert (tokens["full"], tokens["saved"], tokens["unlisted"]) == (None, None, 1)
        assert [(each["full"], each["shown"]) for each in tokens["perToolbox"]] == [(None, None)]
        theirs = await browser.get("/api/events")
        await event(theirs, "state")
        bobs = browser.cookie, browser.csrf
        await browser.sign_in("key-of-ada")
        own = await browser.get("/api/events")
        await browser.agent.use({"toolbox": "box", "server": "two", "tool": "write"}, {"text": "of ada"})
        id = (await ended_call(own))["id"]
        assert (await browser.get(f"/api/calls/{id}")).status == 200
        browser.cookie, browser.csrf = bobs
        assert (await browser.get(f"/api/calls/{id}")).status == 404
        assert all(each["server"] == "two" for each in (await browser.get("/api/tools")).json["items"])
        assert [each["server"] for each in (await browser.state())["servers"]] == ["two"]
        server = {"toolbox": "box", "server": "two"}
        about = (await browser.get("/api/server?toolbox=box&server=two")).json
        assert about["log"] == [] and about["calls"] is None and about["memory"] is None
        assert about["histogram"] is None and about["day"] is None and about["dayTimes"] is None
        assert all((each["client"], each["folder"], each["pid"]) == ("", None, None) for each in about["copies"])
        assert (await browser.get("/api/server?toolbox=box&server=one")).status == 404
        assert (await browser.post("/api/server", {**server, "do": "stop"})).status == 403
        assert (await browser.post("/api/approve", {"id": "x", "decision": "deny"})).status == 403
        assert (await browser.get("/api/approval?id=x")).status == 403
        assert (await browser.post("/api/lock/accept", {**server, "item": "write"})).status == 403
        assert (await browser.get("/api/lock")).status == 403
        assert (await browser.post("/api/host", {**server, "host": "a.com", "decision": "allow"})).status == 403
        assert (await browser.get("/api/connect")).body == b"[]"
        browser.agent.gateway.serve_at("http://127.0.0.1:8420/mcp")
        (way,) = json.loads((await browser.get("/api/connect")).body)
        entry = json.loads(way["text"])["mcpServers"]["workbench"]
        assert (way["how"], entry["url"]) == ("http", "http://127.0.0.1:8420/mcp") and "<your key" in str(entry)
        audit = (await browser.get("/api/audit")).json
        assert audit["verified"] is None and all(each["principal"] == "bob" for each in audit["lines"])
        assert "your own lines" in audit["why"] and str(tmp_path) not in audit["why"]


async def test_offers_to_a_user_survive_a_restart(tmp_path: Path, cache_folder: Path) -> None:
    async with endpoint(tmp_path, boxes()) as browser:
        await browser.agent.open(toolbox_name="box")
        # Lists are written in a thread.
        while len(list(cache_folder.rglob("*.json"))) < 2:
            await asyncio.sleep(0.01)
    async with endpoint(tmp_path, boxes()) as browser:
        await browser.sign_in("key-of-ada")
        (box,) = (await browser.state())["toolboxes"]
        assert box["tools"] == 2 and box["tokens"] > 0
        tokens = (await browser.get("/api/tokens")).json
        assert (tokens["full"], tokens["unlisted"]) == (box["tokens"], 0)
        await browser.sign_in("key-of-bob")
        (box,) = (await browser.state())["toolboxes"]
        assert box["tools"] is None, "another user's"


async def test_other_users_see_why_a_server_failed_without_its_output(tmp_path: Path) -> None:
    served = boxes()
    served["box"]["one"].failing = "it ended\nlast lines of its stderr:\n  of somebody else"
    async with endpoint(tmp_path, served) as browser:
        await browser.agent.use({"toolbox": "box", "server": "one", "tool": "read"})
        for key, is_told in (("token", True), ("key-of-ada", False)):
            await browser.sign_in(key)
            state = await browser.state()
            (crashed,) = state["waiting"]
            why = [crashed["why"], (await rows(browser))["one"]["why"]]
            why.append((await browser.get("/api/server?toolbox=box&server=one")).json["why"])
            assert all(each.startswith("it ended") for each in why)
            assert ["of somebody else" in each for each in why] == [is_told] * 3


async def test_user_of_an_identity_provider_sees_tools_allowed_to_token_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = [
        {"who": ["group:dev"], "tools": ["box/two/*"], "then": "hide"},
        {"who": ["group:ops"], "tools": ["box/one/*"], "then": "hide"},
        {"then": "allow"},
    ]
    async with endpoint(tmp_path, boxes(), policy=policy) as browser:
        await browser.agent.use({"toolbox": "box", "server": "one", "tool": "read"})
        await browser.agent.use({"toolbox": "box", "server": "two", "tool": "write"}, {"text": "x"})
        sessions = {}
        for group in ("dev", "ops"):
            await browser.sign_in(f"token-of-{group}")
            sessions[group] = browser.cookie, browser.csrf
        # What another token of the same user proves in between changes nothing here.
        browser.agent.gateway.gate.identities().remember(TOKENS["token-of-ops"])
        for group, server, other in (("dev", "one", "two"), ("ops", "two", "one")):
            browser.cookie, browser.csrf = sessions[group]
            state = await browser.state()
            assert state["groups"] == [group] and state["you"]["principal"] == "https://id.example.com#eve"
            assert [each["server"] for each in state["servers"]] == [server]
            stream = await browser.get("/api/events")
            assert [each["server"] for each in (await event(stream, "state"))["servers"]] == [server]
            assert (await browser.get(f"/api/server?toolbox=box&server={other}")).status == 404
            name = "read" if server == "one" else "write"
            called = {"kind": "tool", "toolbox": "box", "server": server, "name": name}
            answer = (await browser.post("/api/call", {**called, "arguments": {"text": "x"}})).json
            assert "result" in answer and not answer["result"].get("isError"), answer
            assert {each["server"] for each in (await browser.get("/api/tools")).json["items"]} == {server}
            hidden = await browser.post("/api/call", {**called, "server": other})
            assert hidden.status == 404
        # The token is looked at again, and proves other groups now.
        monkeypatch.setattr(sign_in, "CHECK_INTERVAL", 0.0)
        monkeypatch.setitem(TOKENS, "token-of-ops", TOKENS["token-of-dev"])
        assert [each["server"] for each in (await browser.state())["servers"]] == ["one"]


async def test_the_holder_of_the_token_sees_everything_and_approves_nothing(tmp_path: Path) -> None:
    async with endpoint(tmp_path, boxes(), policy=ASKING) as browser:
        await browser.sign_in("token")
        assert (await browser.state())["you"]["isOwner"]
        await browser.agent.use({"toolbox": "box", "server": "two", "tool": "write"}, {"text": "x"})
        (waiting,) = (await browser.state())["waiting"]
        assert waiting["principal"] == "ada"
        refused = await browser.post("/api/approve", {"id": waiting["id"], "decision": "once"})
        assert refused.status == 403 and "mcp-workbench page" in refused.json["error"]
        assert (await browser.state())["you"]["mayDecide"] is False


async def test_rules_for_the_token_hold_for_calls_from_its_page(tmp_path: Path) -> None:
    denied = [{"who": ["default"], "tools": ["box/two"], "then": "deny"}, {"then": "allow"}]
    audit = tmp_path / "audit.jsonl"
    async with endpoint(tmp_path, boxes(), policy=denied, audit={"file": str(audit)}) as browser:
        await browser.sign_in("token")
        wanted = {"kind": "tool", "toolbox": "box", "name": "read", "arguments": {}}
        assert "result" in (await browser.post("/api/call", {**wanted, "server": "one"})).json
        wanted |= {"server": "two", "name": "write", "arguments": {"text": "written"}}
        assert "policy[0]" in (await browser.post("/api/call", wanted)).body.decode()


async def test_a_session_and_its_stream_end_when_its_key_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "CHECK_INTERVAL", 0.0)
    async with endpoint(tmp_path, boxes()) as browser:
        await browser.sign_in("key-of-ada")
        adas = browser.cookie, browser.csrf
        await browser.sign_in("key-of-bob")
        stream = await browser.get("/api/events")
        await event(stream, "state")
        monkeypatch.delitem(KEYS, "key-of-bob")
        assert (await browser.get("/api/state")).status == 401
        # What has changed meanwhile may still be told.
        while await stream._connection.chunk() is not None:
            pass
        browser.cookie, browser.csrf = adas
        assert (await browser.get("/api/state")).status == 200


async def test_pages_of_one_user_take_no_room_from_others(tmp_path: Path) -> None:
    async with endpoint(tmp_path, boxes()) as browser:
        await browser.sign_in("key-of-bob")
        found = [(await browser.get("/api/events")).status for _ in range(MAX_STREAMS_OF_ONE + 1)]
        assert found == [200] * MAX_STREAMS_OF_ONE + [503]
        await browser.sign_in("token")
        assert (await browser.get("/api/events")).status == 200


async def test_requests_of_one_user_that_are_not_answered_yet_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()

    async def wait(*_: object) -> list[Json]:
        await held.wait()
        return []

    async with endpoint(tmp_path, boxes()) as browser:
        await browser.sign_in("key-of-ada")
        adas = browser.cookie, browser.csrf
        await browser.sign_in("key-of-bob")
        with monkeypatch.context() as patched:
            patched.setattr(WorkbenchOnPage, "tools", wait)
            asked = [asyncio.create_task(browser.get("/api/tools")) for _ in range(MAX_REQUESTS_OF_ONE + 1)]
            (refused,), _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert (await refused).status == 429
        bobs = browser.cookie, browser.csrf
        browser.cookie, browser.csrf = adas
        assert (await browser.get("/api/tools")).status == 200
        held.set()
        browser.cookie, browser.csrf = bobs
        assert sorted([(await each).status for each in asked]) == [200] * MAX_REQUESTS_OF_ONE + [429]
        assert (await browser.get("/api/tools")).status == 200
