"""One call between what its server says and what its client hears, with everything around it written down."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.face.decisions import Forward
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR
from mcp_workbench.engine.protocol.constants import HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, SERVER_INFO
from mcp_workbench.engine.protocol.revisions import newest
from mcp_workbench.engine.session import signing_in
from mcp_workbench.engine.session.client_call import progress_in
from mcp_workbench.engine.session.questions import BadQuestion
from mcp_workbench.engine.steps import Denial
from mcp_workbench.errors import DownstreamError, DownstreamTimeout, SignInNeeded
from tests.engine.session.call_stage import (
    ASKABLE,
    ENTRY,
    INFO,
    LEGACY,
    MODERN,
    Passage,
    Traffic,
    a_call,
    error,
    parked,
)
from tests.support.client import Json
from tests.support.parts import joined

# ── errors and failures ──


@pytest.mark.parametrize("shows_errors", [False, True])
@pytest.mark.parametrize("code", [-32050, HEADER_MISMATCH, -32042])
def test_errors_are_for_agents_unless_the_client_handles_them_itself(shows_errors: bool, code: int) -> None:
    call, session = a_call(shows_errors=shows_errors)
    call.route.passage = Passage()
    call.on_error(error(code))
    ((kind, answer),) = session.answers
    if shows_errors and code == -32050:
        assert kind == "result" and answer["content"][0]["text"] == "[box/server/work] no"
    else:
        assert (kind, answer["code"]) == ("error", code)
    assert (call.route.passage.failure, call.route.passage.failure_code) == ("error", code)


def test_the_first_failure_of_a_call_is_the_one_that_counts() -> None:
    call, _ = a_call()
    call.route.passage = Passage()
    call.on_failure(DownstreamTimeout("too long"))
    assert (call.route.passage.failure, call.route.passage.failure_code) == ("timeout", None)
    call.on_error(error(-32050))
    assert (call.route.passage.failure, call.route.passage.failure_code) == ("timeout", None)


@pytest.mark.parametrize(("method", "kind"), [("tools/call", "result"), ("prompts/get", "error")])
def test_failure_of_a_server_is_readable_for_a_tool_and_an_error_otherwise(method: str, kind: str) -> None:
    call, session = a_call(method=method)
    call.is_success, call.route.passage = True, Passage()
    ended: list[int] = []
    call.round = SimpleNamespace(cancel=lambda: ended.append(1))
    call.on_failure(DownstreamError("it exited", hint="start it"))
    ((found, answer),) = session.answers
    assert found == kind and "it exited" in str(answer) and "start it" in str(answer)
    if kind == "error":
        assert answer["code"] == INTERNAL_ERROR
    else:
        assert answer["isError"]
    assert call.route.passage.ends[0][2] is False and ended == [1]


@pytest.mark.parametrize(
    ("change", "is_mended"),
    [
        ({}, True),
        ({"was_resent": True}, False),
        ({"method": "prompts/get"}, False),
        ({"decision": None}, False),
        ({"traffic": None}, False),
        ({"server": "legacy"}, False),
        ({"url": None}, False),
        ({"code": -32050}, False),
    ],
    ids=str,
)
def test_refused_headers_are_made_again_once_where_they_come_from_arguments(change: Json, is_mended: bool) -> None:
    server = Traffic(newest(change.get("server", "modern")))
    call, session = a_call(MODERN, change.get("method", "tools/call"), server=server)
    call.was_resent = change.get("was_resent", False)
    if "traffic" in change:
        call.route.traffic = change["traffic"]
    if "decision" in change:
        call.route.decision = None
    elif "url" in change:
        entry: Any = SimpleNamespace(toolbox="box", name="server", config=SimpleNamespace(url=None))
        call.route.decision = Forward(entry, "work", b'"tools/call"', b"{")
    call.on_error(error(change.get("code", HEADER_MISMATCH)))
    assert (session.names == ["send_after_listing"]) is is_mended
    assert len(session.answers) == (0 if is_mended else 1)
    if is_mended:
        call.on_error(error(HEADER_MISMATCH))
        assert session.names == ["send_after_listing"] and session.answers[0][1]["code"] == HEADER_MISMATCH


NEEDS_TASK: Json = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@pytest.mark.parametrize(
    ("code", "data", "method", "is_task", "has_decision", "becomes"),
    [
        (MISSING_CLIENT_CAPABILITY, NEEDS_TASK, "tools/call", False, True, True),
        (MISSING_CLIENT_CAPABILITY, NEEDS_TASK, "tools/call", True, True, False),
        (MISSING_CLIENT_CAPABILITY, NEEDS_TASK, "prompts/get", False, True, False),
        (MISSING_CLIENT_CAPABILITY, NEEDS_TASK, "tools/call", False, False, False),
        (MISSING_CLIENT_CAPABILITY, {"requiredCapabilities": {"sampling": {}}}, "tools/call", False, True, False),
        (MISSING_CLIENT_CAPABILITY, None, "tools/call", False, True, False),
        (-32050, NEEDS_TASK, "tools/call", False, True, False),
    ],
)
def test_a_call_becomes_a_task_where_its_server_takes_it_no_other_way(
    code: int, data: Any, method: str, is_task: bool, has_decision: bool, becomes: bool
) -> None:
    call, session = a_call(MODERN, method, server=Traffic(MODERN))
    call.route.is_task = is_task
    if not has_decision:
        call.route.decision = None
    call.on_error(error(code, data))
    assert (session.names == ["run_refused_as_task"]) is becomes and len(session.answers) == (not becomes)


def test_a_call_whose_session_was_lost_is_sent_again_once() -> None:
    call, session = a_call()
    call.send_again()
    assert session.heard == [("send_again", b'{"name":"work"')] and session.answers == []
    call.send_again()
    assert len(session.heard) == 1 and session.answers[0][1]["isError"]
    for change in ({"is_task": True}, {"decision": None}):
        call, session = a_call()
        for name, value in change.items():
            setattr(call.route, name, value)
        call.send_again()
        assert session.heard == [] and len(session.answers) == 1


@pytest.mark.parametrize("shows_errors", [False, True])
def test_a_denied_call_is_answered_like_any_error(shows_errors: bool) -> None:
    call, session = a_call(MODERN, "resources/read", shows_errors=shows_errors)
    ended: list[int] = []
    call.round = SimpleNamespace(cancel=lambda: ended.append(1))
    call.refuse(Denial(-32002, "not today", {"rule": 1}))
    ((kind, answer),) = session.answers
    if shows_errors:
        assert kind == "result" and answer["content"][0]["text"] == "[box/server/work] not today"
    else:
        # A hidden item gets the error of the client's revision for one that does not exist.
        assert answer == {"code": -32602, "message": "not today", "data": {"rule": 1}}
    assert ended == [1]


@pytest.mark.parametrize(
    ("has_sign_ins", "asked_before", "has_entry"), [(False, False, True), (True, True, True), (True, False, False)]
)
def test_a_user_is_asked_to_sign_in_only_once_and_where_it_helps(
    has_sign_ins: bool, asked_before: bool, has_entry: bool
) -> None:
    call, session = a_call(capabilities=ASKABLE)
    session.sign_ins = object() if has_sign_ins else None
    call.was_asked_to_sign_in = asked_before
    if not has_entry:
        call.route.entry = None
    call.on_failure(SignInNeeded("the server wants you to sign in"))
    assert session.work == [] and "sign in" in str(session.answers)


@pytest.mark.parametrize(
    ("how", "method", "is_asked"),
    [
        ("ask", "tools/call", True),
        ("link", "prompts/get", True),
        ("ask", "tools/list", False),
        ("command", "tools/call", False),
    ],
)
async def test_a_user_is_shown_the_page_as_the_client_can(
    monkeypatch: pytest.MonkeyPatch, how: str, method: str, is_asked: bool
) -> None:
    begun: list[str] = []

    async def note(name: str) -> None:
        begun.append(name)

    monkeypatch.setattr(signing_in, "how_to_ask", lambda call: how)
    monkeypatch.setattr(signing_in, "sign_in", lambda *_: note("ask"))
    monkeypatch.setattr(signing_in, "show_link", lambda *_: note("link"))
    call, session = a_call(method=method)
    session.sign_ins = object()
    for _ in range(2):
        call.on_failure(SignInNeeded("the server wants you to sign in"))
    await asyncio.gather(*session.work)
    assert begun == ([how] if is_asked else [])
    assert len(session.answers) == (1 if is_asked else 2), "the second time it fails"


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
def test_pages_to_visit_that_are_refused_are_not_shown(monkeypatch: pytest.MonkeyPatch, revision: Any) -> None:
    call, session = a_call(revision)

    def refuse(*_: object) -> Raw:
        raise BadQuestion("a page in plain text")

    monkeypatch.setattr(signing_in, "attributed", refuse)
    call.on_error(error(-32042, {"elicitations": [{"url": "http://evil.example"}]}))
    ((kind, answer),) = session.answers
    assert kind == "result" and "a page in plain text" in str(answer) and "evil" not in str(answer)


@pytest.mark.parametrize(("revision", "is_asked"), [(LEGACY, False), (MODERN, True)])
def test_pages_to_visit_are_a_question_only_for_clients_that_retry(
    monkeypatch: pytest.MonkeyPatch, revision: Any, is_asked: bool
) -> None:
    monkeypatch.setattr(signing_in, "attributed", lambda call, error, read: error)
    monkeypatch.setattr(signing_in, "asks_for_visit", lambda call, error: True)
    call, session = a_call(revision)
    call.on_error(error(-32042, {"elicitations": []}))
    assert len(session.answers) == (not is_asked)


def test_our_own_errors_carry_their_data_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    call, session = a_call(method="prompts/get")
    call.finish_error(INTERNAL_ERROR, "a defect")
    assert caplog.messages == [], "it is logged with its traceback"
    call.finish_error(-32602, "no such prompt", {"name": "x"})
    assert session.answers == [
        ("error", {"code": INTERNAL_ERROR, "message": "a defect"}),
        ("error", {"code": -32602, "message": "no such prompt", "data": {"name": "x"}}),
    ]
    assert len(caplog.messages) == 1 and "no such prompt" in caplog.messages[0]


def test_a_denied_call_without_a_destination_is_an_error() -> None:
    call, session = a_call()
    call.route.decision = None
    call.refuse(Denial(-32000, "not today"))
    assert session.answers == [("error", {"code": -32000, "message": "not today"})]


@pytest.mark.parametrize(
    ("kind", "takes", "is_counted"), [("result", True, True), ("result", False, False), ("error", True, False)]
)
def test_a_call_that_is_only_counted_has_a_passage_if_there_is_more_to_tell(
    kind: Any, takes: bool, is_counted: bool
) -> None:
    call, session = a_call()
    counted: list[bytes] = []
    ended: list[str] = []

    def counts(call: object, parts: Any) -> bool:
        counted.append(joined(parts))
        return takes

    call.route.tracker = SimpleNamespace(
        counts_result=counts,
        note_running=lambda passage: None,
        on_counted_end=lambda passage, kind, payload: ended.append(kind),
    )
    call.route.arrived = 1.0
    call.emit(kind, b"{}")
    assert counted == ([b"{}"] if kind == "result" else [])
    assert ended == ([] if is_counted else [kind]) and len(session.answers) == 1


# ── what comes before the answer ──


@pytest.mark.parametrize(("token", "is_away"), [(b'"mine"', False), (b'"mine"', True), (None, False)])
def test_progress_has_the_clients_token_and_reaches_it_while_it_waits(token: bytes | None, is_away: bool) -> None:
    call, session = a_call(token=token)
    call.parked = parked(is_away=is_away) if is_away else None
    call.on_progress(Raw(b'{"progressToken":9,"progress":0.5,"message":"half"}'))
    call.progress_within(Raw(b'"inside"'))
    call.progress_within(None)
    call.report(1, 2, "one")
    call.report(1, 0)
    if token is None or is_away:
        assert session.told == []
        return
    assert {method for method, _ in session.told} == {"notifications/progress"}
    first, *others = [fields for _, fields in session.told]
    assert first == {"progressToken": "mine", "progress": 0.5, "message": "half"}
    values = [fields.pop("progress") for fields in others]
    assert values == sorted(set(values)) and 0.5 < values[0] < values[1] < 1 == values[2] < values[3] < 1.01
    mine = {"progressToken": "mine"}
    assert others == [{**mine, "message": "inside"}, mine, {**mine, "total": 2, "message": "one"}, mine]


@pytest.mark.parametrize(
    ("token", "extends", "is_away", "is_told"),
    [
        (b'"mine"', True, False, True),
        (b'"mine"', False, False, False),
        (None, True, False, False),
        (b'"mine"', True, True, False),
    ],
)
def test_a_client_that_waits_longer_with_progress_is_told_that_its_call_goes_on(
    token: bytes | None, extends: bool, is_away: bool, is_told: bool
) -> None:
    call, session = a_call(token=token)
    call.view.face.recognise = lambda info: SimpleNamespace(progress_extends=extends)
    call.parked = parked(is_away=is_away) if is_away else None
    call.progress = 4.0
    call.keep_waiting()
    call.keep_waiting()
    assert len(session.told) == (2 if is_told else 0)
    if is_told:
        (_, first), (_, second) = session.told
        assert first["message"] == "[box/server/work] still running"
        # The server's next value should still be higher.
        assert 4.0 < first["progress"] < second["progress"] < 4.00001


def test_a_call_is_one_of_its_client() -> None:
    call, _ = a_call()
    assert call.is_inner is False and call._asked is call


def test_progress_that_is_none_counts_as_none() -> None:
    assert [progress_in({"progress": Raw(value)}) for value in (b"2.5", b'"x"', b"null", b"")] == [2.5, 0, 0, 0]
    assert progress_in({}) == 0.0


@pytest.mark.parametrize(
    ("revision", "method", "question", "capabilities", "can"),
    [
        (LEGACY, "tools/call", "elicitation/create", ASKABLE, True),
        (LEGACY, "tools/list", "elicitation/create", ASKABLE, True),
        (LEGACY, "tools/call", "roots/list", ASKABLE, False),
        (LEGACY, "tools/call", "x/other", b"{}", True),
        (MODERN, "tools/call", "elicitation/create", ASKABLE, True),
        (MODERN, "tools/call", "elicitation/create", b"{}", False),
        (MODERN, "tools/list", "elicitation/create", ASKABLE, False),
        (MODERN, "tools/call", "x/other", ASKABLE, False),
    ],
)
def test_a_question_can_belong_to_a_call_that_its_client_can_answer_within(
    revision: Any, method: str, question: str, capabilities: bytes, can: bool
) -> None:
    call, _ = a_call(revision, method, capabilities=capabilities)
    assert call.can_be_asked(question) is can


@pytest.mark.parametrize(
    ("revision", "heard"), [(LEGACY, ["ask", "cancelled_by_server"]), (MODERN, ["question", "withdraw"])]
)
def test_questions_and_their_end_go_the_way_of_the_clients_era(revision: Any, heard: list[str]) -> None:
    call, session = a_call(revision)
    assert call.relay_request(call.route.traffic, b"1", "elicitation/create", None)
    call.relay_cancel(call.route.traffic, b"1", Raw(b"{}"))
    assert session.names == heard


@pytest.mark.parametrize(
    ("revision", "in_call", "in_session", "level", "is_passed_on"),
    [
        (LEGACY, None, None, "debug", True),
        (LEGACY, None, "warning", "error", True),
        (LEGACY, None, "warning", "info", False),
        (LEGACY, "debug", "warning", "info", False),
        (MODERN, None, None, "error", False),
        (MODERN, None, "debug", "error", False),
        (MODERN, "warning", None, "error", True),
        (MODERN, "warning", "debug", "info", False),
    ],
)
def test_logs_are_those_that_the_client_asked_for(
    revision: Any, in_call: str | None, in_session: str | None, level: str, is_passed_on: bool
) -> None:
    call, session = a_call(revision)
    call.log_level, session.log_level = in_call, in_session
    call.relay_notification(call.route.traffic, "notifications/message", Raw(b'{"level":"%b"}' % level.encode()))
    assert len(session.told) == is_passed_on


@pytest.mark.parametrize(
    ("revision", "method", "is_away", "is_bad", "told"),
    [
        (LEGACY, "notifications/x", False, False, {"taskId": "theirs"}),
        (LEGACY, "notifications/x", True, False, None),
        (LEGACY, "notifications/elicitation/complete", False, False, {"taskId": "theirs"}),
        (MODERN, "notifications/elicitation/complete", False, False, None),
        (MODERN, "notifications/tasks", False, False, {"taskId": "ours"}),
        (MODERN, "notifications/tasks", False, True, None),
    ],
)
def test_notifications_reach_a_client_that_can_use_them(
    revision: Any, method: str, is_away: bool, is_bad: bool, told: Json | None
) -> None:
    call, session = a_call(revision)
    call.parked = parked(is_away=is_away)
    session.is_bad_question = is_bad
    call.relay_notification(call.route.traffic, method, Raw(b'{"taskId":"theirs"}'))
    assert session.told == ([] if told is None else [(method, told)])


# ── calls whose client comes back ──


@pytest.mark.parametrize(
    ("is_parked", "is_away", "heard"), [(False, False, []), (True, True, ["keep"]), (True, False, ["leave"])]
)
def test_an_answer_is_kept_while_its_client_is_away(is_parked: bool, is_away: bool, heard: list[str]) -> None:
    call, session = a_call(MODERN)
    call.parked = parked(is_away=is_away) if is_parked else None
    call.route.passage = Passage()
    call.emit("result", b"{}")
    assert session.names == heard and len(session.answers) == (not is_away)
    assert [kind for kind, *_ in call.route.passage.ends] == ["result"]


def test_a_cancelled_call_leaves_the_parking_and_its_round() -> None:
    call, session = a_call(MODERN)
    ended: list[int] = []
    call.round, call.parked = SimpleNamespace(cancel=lambda: ended.append(1)), parked(is_away=True)
    call.cancel({})
    assert ended == [1] and session.names == ["leave", "cancel"] and session.answers == []
    call, session = a_call()
    call.cancel({})
    assert session.names == ["cancel"]


@pytest.mark.parametrize("has_passage", [False, True])
def test_of_a_call_that_may_wait_for_long_little_is_kept(has_passage: bool) -> None:
    whole = b'{"token":"mine","answers":{"a":1},"rest":"' + b"x" * 1000 + b'"}'
    call, session = a_call(MODERN, arguments=Raw(whole), inputResponses=Raw(memoryview(whole)[26:33]))
    call.progress_token = Raw(memoryview(whole)[9:15])
    call.meta = Raw(b"{}")
    call.route.passage = Passage() if has_passage else None
    assert call.slim() == 7 + (10 if has_passage else 0)
    assert session.names == ["forget_body"] and call.meta is None and call.was_resent
    assert {name: bytes(value) for name, value in call.params.items()} == {"inputResponses": b'{"a":1}'}
    assert bytes(call.progress_token) == b'"mine"'
    call, _ = a_call(MODERN, arguments=Raw(whole))
    assert call.slim() == 0 and call.params == {} and call.progress_token is None


def test_a_call_goes_on_as_the_retry_of_its_client() -> None:
    call, session = a_call(MODERN, token=b'"first"')
    retry, others = a_call(MODERN, token=b'"second"', capabilities=ASKABLE)
    retry.id, retry.log_level = b"8", "debug"
    call.continue_as(retry)
    assert others.calls == {b"8": call} and session.calls == {}
    assert (call.id, call.session, call.client, call.caller) == (b"8", others, others, retry.caller)
    assert (bytes(call.progress_token), call.log_level) == (b'"second"', "debug")
    retry.progress_token = None
    call.continue_as(retry)
    assert call.progress_token is None


def test_a_retry_that_nothing_waits_for_is_made_as_a_new_call() -> None:
    state = Raw(b'"ours"')
    for is_retry, sent in ((False, ["name"]), (True, ["inputResponses", "name", "requestState"])):
        call, session = a_call(MODERN, name=Raw(b'"work"'), requestState=state, inputResponses=Raw(b"{}"))
        call.is_retry = is_retry
        call.route_again()
        assert session.heard == [("dispatch", sent)]
    call, session = a_call(MODERN, name=Raw(b'"work"'), inputResponses=Raw(b"{}"))
    call.route_again()
    assert session.heard == [("dispatch", ["inputResponses", "name"])]


def test_retry_of_a_parked_call_has_the_digest_of_the_first() -> None:
    call, _ = a_call(MODERN, name=Raw(b'"work"'))
    other, _ = a_call(MODERN, name=Raw(b'"other"'))
    assert call.digest() != other.digest()
    call.parked = parked(is_away=False)
    assert call.digest() == "digest of the first"


def test_each_round_sends_the_answers_to_its_own_questions() -> None:
    call, session = a_call()
    call.route.decision = Forward(ENTRY, "work", b'"tools/call"', b'{"name":"work","inputResponses":{"old":1}')
    call.round = object()
    call.next_round({"inputResponses": {"new": 2}, "requestState": "s"})
    ((name, body),) = session.heard
    assert name == "send_again" and call.round is None
    assert json.loads(body + b"}") == {"name": "work", "inputResponses": {"new": 2}, "requestState": "s"}


def test_a_question_says_which_server_asks() -> None:
    for info, shown in ((INFO, "server"), (None, "workbench")):
        call, _ = a_call(MODERN)
        call.route.traffic.server_info = info
        assert json.loads(call.made_by()) == {SERVER_INFO: {"name": shown}}
    call, _ = a_call(MODERN)
    call.route.traffic = None
    assert json.loads(call.made_by()) == {SERVER_INFO: {"name": "workbench"}}


def test_where_names_what_is_known() -> None:
    call, _ = a_call()
    assert (call.where, call.introduction) == ("box/server/work", (b"{}", "stdio"))
    call.route.decision, call.route.item = None, "wanted"
    assert call.where == "box/server/wanted"
    call.route.item = ""
    assert call.where == "box/server"
    call.route.entry = None
    assert call.where == "tools/call"
