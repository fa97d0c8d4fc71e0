"""One call between what its server says and what its client hears, with everything around it written down."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.face.decisions import Forward
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR
from mcp_workbench.engine.protocol.constants import HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, SERVER_INFO
from mcp_workbench.engine.protocol.revisions import newest
from mcp_workbench.engine.router.routed_call import Route
from mcp_workbench.engine.session import client_call
from mcp_workbench.engine.session.client_call import ClientCall, progress_in
from mcp_workbench.engine.session.questions import BadQuestion
from mcp_workbench.engine.steps import Denial
from mcp_workbench.errors import DownstreamError, DownstreamTimeout, SignInNeeded
from tests.support.client import Json
from tests.support.parts import joined

LEGACY, MODERN = newest("legacy"), newest("modern")
OWN_INFO, INFO = b'{"name":"workbench"}', Raw(b'{"name":"server"}')
CONFIG = SimpleNamespace(url="http://127.0.0.1:1/mcp", idle_timeout=5)
ENTRY: Any = SimpleNamespace(toolbox="box", name="server", label="box/server", config=CONFIG)
ASKABLE = b'{"elicitation":{},"sampling":{}}'
FAILED = b'{"content":[{"type":"text","text":"no"}],"isError":true}'


class Traffic:
    """What a call looks at of the traffic with its server."""

    def __init__(self, revision: Any = LEGACY) -> None:
        self.takes_retries = revision.asks_in_results
        self.result_head = b""
        self.server_info: Raw | None = INFO
        self.profile = SimpleNamespace(revision=revision)
        self.lost: list[object] = []
        self.clients = SimpleNamespace(untold=self.lost, take_loss=self._take_loss)

    def _take_loss(self, client: object) -> bool:
        return client in self.lost


class Passage:
    """Writes down the end of a call."""

    is_waiting = False

    def __init__(self) -> None:
        self.failure, self.failure_code = "", None
        self.ends: list[tuple[str, bytes, bool]] = []
        self.body, self.tracker = b"0123456789", None

    def end_with(self, kind: str, parts: Any, is_success: bool) -> None:
        self.ends.append((kind, joined(parts), is_success))


class Session:
    """A session with its router, parking and questions, all of which write down what they are asked."""

    peer = "stdio"
    sign_ins: Any = None

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.answers: list[tuple[str, Any]] = []
        self.told: list[tuple[str, Any]] = []
        self.log_level: str | None = None
        self.calls: dict[bytes, Any] = {}
        self.welcome = SimpleNamespace(info=OWN_INFO)
        self.is_bad_question = False
        names = ("take_result", "send_again", "send_after_listing", "run_refused_as_task", "cancel", "forget_body")
        self.router: Any = SimpleNamespace(
            **{name: self._hears(name) for name in (*names, "work_done")},
            start_for=self._start_for,
            tasks=SimpleNamespace(
                remember=lambda call, result: b'{"remembered":1}',
                shown_result=lambda call, result: b'{"shown":1}',
                shown=lambda call, result: result.replace(b"theirs", b"ours"),
                tool_of=lambda call, id: f"tool of {id}",
            ),
        )
        self.parking: Any = SimpleNamespace(
            **{name: self._hears(name) for name in ("question", "withdraw", "keep", "leave")}
        )
        self.questions: Any = SimpleNamespace(cancelled_by_server=self._hears("cancelled_by_server"))
        self.work: list[asyncio.Future[None]] = []

    def _hears(self, name: str) -> Any:
        return lambda *details: self.heard.append((name, *details[1:]))

    def _start_for(self, call: Any, work: Any) -> None:
        self.work.append(asyncio.ensure_future(work))

    def finish(self, call: Any, kind: str, parts: Any) -> None:
        self.answers.append((kind, json.loads(joined(parts))))

    def notify(self, method: str, params: Any, about: bytes) -> None:
        self.told.append((method, None if params is None else json.loads(bytes(params))))

    def ask(self, *question: Any) -> bool:
        self.heard.append(("ask", *question[1:]))
        return True

    def dispatch(self, call: Any, params: Any) -> None:
        self.heard.append(("dispatch", sorted(params)))

    def attribution_in_results(self, entry: Any) -> Any:
        def input_required(result: Any) -> Any:
            if self.is_bad_question:
                raise BadQuestion("a page in plain text")
            return result

        return SimpleNamespace(input_required=input_required)

    @property
    def names(self) -> list[str]:
        return [each[0] for each in self.heard]


def a_call(
    revision: Any = LEGACY,
    method: str = "tools/call",
    *,
    server: Traffic | None = None,
    shows_errors: bool = False,
    token: bytes | None = None,
    capabilities: bytes = b"{}",
    **params: Raw,
) -> tuple[Any, Session]:
    """A call that was sent to a server, of which no face shortens the result."""
    session: Any = Session()
    caller = Caller("", revision.era, capabilities, 1)
    face = SimpleNamespace(names_failed_tools=True)
    view: Any = SimpleNamespace(face=face, changed={}, principal="", use=None)
    route = Route(caller)
    route.entry = ENTRY
    route.decision = Forward(ENTRY, "work", b'"tools/call"', b'{"name":"work"', shows_errors=shows_errors)
    traffic: Any = Traffic() if server is None else server
    route.traffic = traffic
    progress = None if token is None else Raw(token)
    call = ClientCall(
        session, session, b"7", method, view, caller, revision, route, None, progress, None, params, b"{}"
    )
    return call, session


def error(code: int, data: Any = None, message: str = "no") -> Raw:
    return Raw(json.dumps({"code": code, "message": message, **({} if data is None else {"data": data})}).encode())


# ── results ──


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
    call, session = a_call()
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
        ({"traffic": Traffic(LEGACY)}, False),
        ({"url": None}, False),
        ({"code": -32050}, False),
    ],
    ids=str,
)
def test_refused_headers_are_made_again_once_where_they_come_from_arguments(change: Json, is_mended: bool) -> None:
    call, session = a_call(MODERN, change.get("method", "tools/call"), server=Traffic(MODERN))
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


@pytest.mark.parametrize(("has_sign_ins", "asked_before", "has_entry"), [(False, False, True), (True, True, True),
                                                                        (True, False, False)])  # fmt: skip
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


# ── what comes before the answer ──


def parked(*, is_away: bool) -> Any:
    return SimpleNamespace(is_away=is_away, digest="digest of the first")


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


@pytest.mark.parametrize(("revision", "heard"), [(LEGACY, ["ask", "cancelled_by_server"]),
                                                 (MODERN, ["question", "withdraw"])])  # fmt: skip
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


@pytest.mark.parametrize(("is_parked", "is_away", "heard"), [(False, False, []), (True, True, ["keep"]),
                                                             (True, False, ["leave"])])  # fmt: skip
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
