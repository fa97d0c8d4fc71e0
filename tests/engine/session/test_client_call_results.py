"""What becomes of results between a server and a client: translated, named, noted, whatever their size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.protocol.constants import SERVER_INFO
from mcp_workbench.engine.session import client_call
from tests.engine.session.call_stage import (
    FAILED,
    INFO,
    LEGACY,
    MODERN,
    Passage,
    Traffic,
    a_call,
)
from tests.support.client import Json


def test_result_goes_to_the_router_and_a_question_to_a_legacy_client() -> None:
    asking = Raw(b'{"resultType":"input_required","inputRequests":{}}')
    for revision, server, asks in ((LEGACY, MODERN, True), (LEGACY, LEGACY, False), (MODERN, MODERN, False)):
        call, session = a_call(revision, server=Traffic(server))
        call.on_result(Raw(b'{"content":[]}'))
        assert session.names == ["take_result"] and call.rounds == 0
        if not asks:
            call.on_result(asking)
            assert session.names == ["take_result"] * 2 and call.rounds == 0


@pytest.mark.parametrize("shows_errors", [False, True])
def test_a_tool_that_failed_is_named_where_agents_read_errors(shows_errors: bool) -> None:
    call, session = a_call(shows_errors=shows_errors)
    call.route.passage = Passage()
    call.pass_on(Raw(FAILED))
    ((kind, result),) = session.answers
    assert kind == "result" and result["isError"]
    assert ("box/server/work" in str(result)) is shows_errors
    assert call.route.passage.ends[0][2] is False


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
@pytest.mark.parametrize("has_head", [False, True])
def test_an_ordinary_result_is_answered_as_it_is(revision: Any, has_head: bool) -> None:
    call, session = a_call(revision)
    call.route.passage = Passage()
    if has_head:
        meta = b'{"%b":%b}' % (SERVER_INFO.encode(), bytes(INFO))
        call.route.traffic.result_head = b'{"resultType":"complete","_meta":%b,' % meta
    call.pass_on(Raw(b'{"content":[]}'))
    extra: Json = {"resultType": "complete", "_meta": {SERVER_INFO: {"name": "server"}}}
    assert session.answers == [("result", {"content": [], **({} if revision is LEGACY else extra)})]
    ((kind, _, is_success),) = call.route.passage.ends
    assert kind == "result" and is_success is (revision is LEGACY or has_head)


def test_only_the_client_that_had_it_open_is_told_that_a_server_lost_its_state() -> None:
    for shows_errors in (False, True):
        call, session = a_call(shows_errors=shows_errors)
        call.route.traffic.lost.append("another client")
        call.pass_on(Raw(b'{"content":[]}'))
        assert session.answers == [("result", {"content": []})]
    for revision in (LEGACY, MODERN):
        call, session = a_call(revision)
        call.route.traffic.lost += ["another client", call.client]
        call.pass_on(Raw(b'{"content":[]}'))
        assert len(session.answers[0][1]["content"]) == 1
        prompt, session = a_call(revision, "prompts/get")
        prompt.route.traffic.lost.append(prompt.client)
        prompt.pass_on(Raw(b'{"messages":[]}'))
        assert session.answers[0][1]["messages"] == [] and "content" not in session.answers[0][1]


def test_a_question_carries_no_notes_for_the_agent() -> None:
    call, session = a_call(MODERN, server=Traffic(MODERN))
    call.route.traffic.lost.append(call.client)
    call.pass_on(Raw(b'{"resultType":"input_required","inputRequests":{}}'))
    assert session.answers[0][1]["resultType"] == "input_required" and "content" not in session.answers[0][1]


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_members_of_the_servers_era_are_translated_whatever_the_size(
    monkeypatch: pytest.MonkeyPatch, revision: Any, is_large: bool
) -> None:
    monkeypatch.setattr(client_call, "LARGE_RESULT", 10 if is_large else 1000)
    server = Traffic(MODERN if revision is LEGACY else LEGACY)
    call, session = a_call(revision, "prompts/get", server=server)
    call.finish_result(Raw(b'{"resultType":"complete","messages":[]}' if revision is LEGACY else b'{"messages":[ ]}'))
    await asyncio.gather(*session.work)
    ((_, result),) = session.answers
    own: Json = {"resultType": "complete", "_meta": {SERVER_INFO: {"name": "workbench"}}}
    assert result == {"messages": [], **({} if revision is LEGACY else own)}
    assert session.names == (["work_done"] if is_large else [])


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_question_that_cannot_be_asked_is_a_failure(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    monkeypatch.setattr(client_call, "LARGE_RESULT", 10 if is_large else 1000)
    call, session = a_call(MODERN)
    session.is_bad_question = True
    monkeypatch.setattr(client_call, "LARGE_RESULT", 10 if is_large else 1000)
    call.finish_result(Raw(b'{"resultType":"input_required","a":1}'))
    monkeypatch.setattr(client_call, "LARGE_RESULT", 1000)
    await asyncio.gather(*session.work)
    ((kind, result),) = session.answers
    assert kind == "result" and result["isError"] and "cannot be asked: a page in plain text" in str(result)


@pytest.mark.parametrize(
    ("revision", "method", "result", "shown"),
    [
        (MODERN, "tools/call", b'{"resultType":"task","taskId":"theirs"}', {"remembered": 1}),
        (MODERN, "tasks/get", b'{"taskId":"theirs"}', {"taskId": "ours"}),
        (MODERN, "tools/call", b'{"taskId":"theirs"}', {"taskId": "theirs"}),
        (LEGACY, "tasks/get", b'{"taskId":"theirs"}', {"shown": 1}),
        (LEGACY, "tools/call", b'{"taskId":"theirs"}', {"taskId": "theirs"}),
    ],
)
def test_ids_of_tasks_are_those_that_the_client_knows(revision: Any, method: str, result: bytes, shown: Json) -> None:
    call, session = a_call(revision, method)
    call.finish_result(Raw(result))
    ((_, found),) = session.answers
    assert {name: value for name, value in found.items() if name not in ("resultType", "_meta")} == shown


def test_a_call_made_as_a_task_is_remembered() -> None:
    call, session = a_call(LEGACY, task=Raw(b"{}"))
    call.pass_on(Raw(b'{"task":{"taskId":"theirs"}}'))
    assert session.answers == [("result", {"remembered": 1})]


@pytest.mark.parametrize("is_large", [False, True])
async def test_failures_and_notes_are_added_whatever_the_size(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    monkeypatch.setattr(client_call, "LARGE_RESULT", 10 if is_large else 1000)
    call, session = a_call(shows_errors=True)
    call.view.changed["other"] = "changed"
    call.route.traffic.lost.append(call.client)
    call.pass_on(Raw(FAILED))
    await asyncio.gather(*session.work)
    ((_, result),) = session.answers
    text = str(result["content"])
    assert result["isError"] and "box/server/work" in text
    assert "the tools of other have changed" in text and "box/server was stopped" in text
    assert call.view.changed == {} and session.names == (["work_done"] if is_large else [])


@pytest.mark.parametrize("is_large", [False, True])
async def test_notes_are_added_where_no_error_has_to_be_named(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    monkeypatch.setattr(client_call, "LARGE_RESULT", 10 if is_large else 1000)
    call, session = a_call()
    call.view.changed["other"] = "changed"
    call.route.traffic.lost.append(call.client)
    call.pass_on(Raw(FAILED))
    await asyncio.gather(*session.work)
    text = str(session.answers[0][1]["content"])
    assert "box/server was stopped" in text and "box/server/work" not in text
    assert "have changed" not in text and call.view.changed, "this face does not show toolboxes"


def test_a_result_of_ours_has_the_notes_as_well() -> None:
    for traffic in (None, Traffic()):
        call, session = a_call(shows_errors=True)
        call.route.traffic, call.view.changed["other"] = traffic, "new"
        call.pass_on(Raw(b'{"content":[]}'))
        assert "these toolboxes are new: other" in str(session.answers) and call.view.changed == {}
    call, session = a_call()
    call.route.traffic = call.route.decision = None
    call.view.changed["other"] = "new"
    call.pass_on(Raw(b'{"content":[]}'))
    assert session.answers == [("result", {"content": []})]


@pytest.mark.parametrize(
    ("method", "names_tools", "named"),
    [
        ("tasks/result", True, True),
        ("tasks/get", True, True),
        ("tasks/result", False, False),
        ("tasks/list", True, False),
    ],
)
def test_a_tool_that_failed_as_a_task_is_named(method: str, names_tools: bool, named: bool) -> None:
    call, session = a_call(method=method)
    call.view.face.names_failed_tools = names_tools
    shown: list[bytes] = []

    def show(call: object, result: bytes) -> bytes:
        shown.append(result)
        return result

    session.router.tasks.shown_result = show
    result = FAILED if method == "tasks/result" else b'{"taskId":"t","result":%b}' % FAILED
    call.pass_on(Raw(result))
    assert (b"box/server/tool of work" in shown[0]) is named


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
@pytest.mark.parametrize("method", ["tools/call", "tasks/get"])
def test_what_no_server_said_is_answered_unchanged(revision: Any, method: str) -> None:
    call, session = a_call(revision, method, task=Raw(b"{}"))
    call.route.traffic = call.route.entry = None
    call.finish_result(b'{"taskId":"theirs"}')
    assert session.answers[0][1]["taskId"] == "theirs"
