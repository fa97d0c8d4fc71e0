"""One link to a server, message by message: what each changes, and that it changes nothing else."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from msgspec import Raw

from mcp_workbench.engine.downstream.clients import ClientPeer
from mcp_workbench.engine.downstream.sharing import EVERYTHING, SHARED
from mcp_workbench.engine.downstream.traffic import BACKGROUND_TIMEOUT, PROGRESS_STRETCH, Traffic
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.jsonrpc.messages import Malformed
from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.protocol.handshake import NO_MEMBERS, ServerProfile
from mcp_workbench.engine.protocol.meta import ClientIdentity
from mcp_workbench.engine.protocol.revisions import Revision
from mcp_workbench.errors import DownstreamError, DownstreamTimeout, WorkbenchError
from tests.engine.downstream.traffic_stage import INFO, LEGACY, MODERN, Call, HttpLink, Json, Owner, make

# ── requests ──


async def test_a_request_and_its_answers_are_counted_by_their_bytes() -> None:
    at = make()
    one, other = Call(), Call()
    first, second = at.forward(one), at.forward(other, b"{", b'{"a":1}')
    assert at.link.take() == [
        {"jsonrpc": "2.0", "id": first, "method": "tools/call", "params": {"name": "work"}},
        {"jsonrpc": "2.0", "id": second, "method": "tools/call", "params": {"_meta": {"a": 1}}},
    ]
    assert at.traffic.call_count == 2 and at.traffic.calls() == [one, other]
    at.say({"id": second, "error": {"code": 1, "message": "no"}})
    at.say({"id": first, "result": {"b": 2}})
    at.say({"id": first, "result": {"late": 2}})
    assert one.ends == [("result", {"b": 2})] and other.ends == [("error", {"code": 1, "message": "no"})]
    assert at.traffic.bytes_sent == at.link.bytes and at.traffic.bytes_received == at.received
    assert at.traffic.call_count == 0 and at.traffic.calls() == [] and at.traffic.pending.unmatched == 1
    at.end()


@pytest.mark.parametrize("revision", [LEGACY, MODERN], ids=["legacy", "modern"])
@pytest.mark.parametrize("size", [1, 200_000])
@pytest.mark.parametrize("meta", [None, b'{"a":1}'])
async def test_a_link_of_calls_is_told_which_it_is(revision: Revision, size: int, meta: bytes | None) -> None:
    link = HttpLink()
    at = make(revision, link)
    id = at.forward(Call(), b'{"name":"work","arguments":{"x":"%b"}' % (b"x" * size), meta)
    version = None if revision is LEGACY else revision.name
    assert link.calls == [(id, "work", version)]
    (sent,) = link.sent
    assert sent["params"]["arguments"] == {"x": "x" * size}
    assert ("_meta" in sent["params"]) == (revision is MODERN or meta is not None)
    other = at.traffic.forward(Call(), b'"prompts/get"', "work", b'{"name":"p"', None, LEGACY, 1.0)
    assert link.sent[1]["id"] == other and len(link.calls) == 1
    assert at.traffic.bytes_sent == link.bytes
    at.end()


async def test_capabilities_are_withheld_from_a_shared_server() -> None:
    at = make(MODERN)
    at.forward(Call(), meta=b'{"a":1}')
    at.traffic.withheld = EVERYTHING
    at.forward(Call(), meta=b'{"a":1}')
    at.forward(Call())
    declared = [each["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] for each in at.link.take()]
    assert declared == [{"roots": {}}, {}, {}]
    at.end()


async def test_progress_token_is_the_id_and_only_sent_if_progress_is_wanted() -> None:
    at = make()
    id = at.forward(Call(b'"mine"'), meta=b'{"progressToken":"mine"}')
    at.forward(Call())
    first, second = at.link.take()
    assert first["params"]["_meta"] == {"progressToken": id} and second["params"] == {"name": "work"}
    at.end()


async def test_after_its_end_a_link_gets_nothing_and_everybody_is_told_why() -> None:
    at = make()
    call, asked = Call(), asyncio.ensure_future(at.traffic.ask("ping", b"{}"))
    await asyncio.sleep(0)
    at.forward(call)
    at.link.take()
    at.traffic.end(DownstreamError("it crashed"))
    at.traffic.end(DownstreamError("another reason"))
    assert call.failure == "it crashed"
    with pytest.raises(DownstreamError, match="it crashed"):
        await asked
    later = Call()
    assert at.forward(later) == 0 and later.failure == "the server stopped before the request could be sent"
    with pytest.raises(DownstreamError, match="it crashed"):
        await at.traffic.ask("ping", b"{}")
    at.traffic.ask_in_background("ping", b"{}")
    at.traffic.notify("notifications/x")
    at.say({"id": 1, "method": "ping"})
    assert at.link.sent == [] and len(at.traffic.pending) == 0 and not at.traffic.deadlines.is_running


async def test_before_its_link_nothing_can_be_asked() -> None:
    traffic = Traffic("box/server", ClientIdentity(), Owner())
    with pytest.raises(DownstreamError, match="the server is not running"):
        await traffic.ask("ping", b"{}")


async def test_requests_made_on_the_end_are_not_sent() -> None:
    at = make()
    call, sent = Call(), at.link.sent

    def ask_again(error: WorkbenchError) -> None:
        at.traffic.notify("notifications/again")

    call.on_failure = ask_again  # type: ignore[method-assign]
    at.forward(call)
    del sent[:]
    at.end()
    assert sent == []


async def test_the_calls_of_a_link_are_taken_with_those_that_wait() -> None:
    at = make(shares=True)
    calls = [Call() for _ in range(70)]
    for call in calls:
        at.forward(call)
    asked = asyncio.ensure_future(at.traffic.ask("ping", b"{}"))
    await asyncio.sleep(0)
    sent = len(at.link.take())
    assert sent == 65 and at.traffic.call_count == 70 and at.traffic.calls() == calls
    taken = [each.call for each in at.traffic.take_calls()]
    assert taken == calls and at.traffic.call_count == 0 and at.link.sent == []
    assert len(at.traffic.pending) == 1, "ours stays"
    at.end()
    with pytest.raises(DownstreamError):
        await asked
    assert all(call.ends == [] for call in calls)


async def test_clients_without_a_session_do_not_wait_for_each_other() -> None:
    at = make(shares=True)
    for _ in range(70):
        at.forward(Call(number=SHARED))
    assert len(at.link.sent) == 70
    at.end()


@pytest.mark.parametrize("revision", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_queued_request_is_sent_like_any_other(revision: Revision) -> None:
    link = HttpLink()
    at = make(revision, link, shares=True)
    calls = [Call() for _ in range(66)]
    ids = [at.forward(call) for call in calls]
    assert len(link.calls) == 64 and at.traffic.bytes_sent == link.bytes
    at.traffic.last_used = 0.0
    at.say({"id": ids[0], "result": {}})
    version = None if revision is LEGACY else revision.name
    assert link.calls[64:] == [(ids[64], "work", version)] and at.traffic.bytes_sent == link.bytes
    assert at.traffic.last_used > 0
    at.say({"id": ids[64], "result": {}})
    assert calls[64].ends and link.calls[-1][0] == ids[65]
    at.end()


async def test_request_queued_beyond_its_timeout_fails_unsent() -> None:
    at = make(shares=True)
    calls = [Call() for _ in range(65)]
    for call in calls:
        at.forward(call, seconds=100)
    waiting = Call()
    at.forward(waiting, seconds=1)
    sent = len(at.link.take())
    assert at.traffic._check_deadlines(asyncio.get_running_loop().time() + 50, 0.0) is True
    assert "1 s" in waiting.failure and at.link.sent == [] and sent == 64
    at.end()


# ── our own requests ──


async def test_our_own_request_that_is_no_longer_needed_is_cancelled() -> None:
    at = make()
    for method, cancels in (("tools/list", True), ("initialize", False)):
        asked = asyncio.ensure_future(at.traffic.ask(method, b"{}"))
        await asyncio.sleep(0)
        (sent,) = at.link.take()
        asked.cancel()
        await asyncio.wait({asked})
        wanted = {"requestId": sent["id"], "reason": "no longer needed"}
        assert [each["params"] for each in at.link.take()] == ([wanted] if cancels else [])
        assert len(at.traffic.pending) == 0
    asked = asyncio.ensure_future(at.traffic.ask("tools/list", b"{}", 4711))
    await asyncio.sleep(0)
    assert at.link.take()[0]["id"] == 4711
    at.say({"id": 4711, "result": {"tools": []}})
    assert bytes(await asked) == b'{"tools": []}' and at.link.sent == []
    at.end()


async def test_our_own_request_has_no_deadline_but_its_callers() -> None:
    at = make()
    asked = asyncio.ensure_future(at.traffic.ask("tools/list", b"{}"))
    await asyncio.sleep(0)
    at.traffic._check_deadlines(1e12, 0.0)
    assert not asked.done()
    with pytest.raises(DownstreamTimeout, match=r"did not answer within 0\.01 s"):
        await at.traffic.ask_within(0.01, "tools/list", b"{}")
    at.end()
    await asyncio.wait({asked})


async def test_a_request_in_the_background_ends_with_its_timeout() -> None:
    at = make()
    at.traffic.ask_in_background("resources/subscribe", b'{"uri":"x"}')
    now = asyncio.get_running_loop().time()
    (sent,) = at.link.take()
    assert sent["method"] == "resources/subscribe" and at.traffic.deadlines.is_running
    assert at.traffic._check_deadlines(now + BACKGROUND_TIMEOUT - 1, 0.0) is True and at.link.sent == []
    assert at.traffic._check_deadlines(now + BACKGROUND_TIMEOUT + 1, 0.0) is False
    assert at.link.take()[0]["params"] == {"requestId": sent["id"], "reason": "timeout"}
    assert not at.traffic.questions.cancelled_calls.is_anothers(None), "it belongs to no client"
    at.end()


@pytest.mark.parametrize("revision", [LEGACY, MODERN], ids=["legacy", "modern"])
@pytest.mark.parametrize("members", [b"", b'"cursor":"c"'])
async def test_our_own_requests_are_stamped_as_the_era_requires(revision: Revision, members: bytes) -> None:
    at = make(revision)
    for capabilities in (None, b'{"roots":{}}'):
        asked = asyncio.ensure_future(at.traffic.ask_as_era("tools/list", members, capabilities, 99))
        await asyncio.sleep(0)
        (sent,) = at.link.take()
        meta = sent["params"].pop("_meta", None)
        assert sent == {
            "jsonrpc": "2.0", "id": 99, "method": "tools/list", "params": {"cursor": "c"} if members else {},
        }  # fmt: skip
        assert (meta is None) == (revision is LEGACY)
        if meta is not None:
            declared: Json = {} if capabilities is None else {"roots": {}}
            assert meta["io.modelcontextprotocol/clientCapabilities"] == declared
        at.say({"id": 99, "result": {}})
        await asked
    at.end()


# ── ends that are no answer ──


async def test_a_cancelled_call_is_dropped_and_the_server_told() -> None:
    at = make()
    call, other = Call(), Call()
    id = at.forward(call)
    at.link.take()
    at.traffic.cancel(id, {"reason": Raw(b'"enough"'), "requestId": Raw(b'"theirs"')})
    (sent,) = at.link.take()
    assert sent["method"] == "notifications/cancelled" and sent["params"] == {"reason": "enough", "requestId": id}
    cancelled = at.traffic.questions.cancelled_calls
    assert cancelled.is_anothers(cast("ClientPeer", other)) and not cancelled.is_anothers(call.client)
    at.traffic.cancel(id, {})
    assert at.link.sent == []
    at.say({"id": id, "result": {}})
    assert call.ends == [] and not cancelled.is_anothers(cast("ClientPeer", other)), "the server is done with it"
    at.end()


async def test_a_cancelled_call_that_waits_is_never_sent() -> None:
    at = make(shares=True)
    ids = [at.forward(Call()) for _ in range(66)]
    at.link.take()
    at.traffic.cancel(ids[64], {})
    assert at.link.sent == []
    at.say({"id": ids[0], "result": {}})
    assert [each["id"] for each in at.link.take()] == [ids[65]]
    at.end()


async def test_calls_that_time_out_are_cancelled_and_one_that_cannot_end_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = make()
    now = asyncio.get_running_loop().time()
    late, broken, other, later = Call(), Call(), Call(), Call()

    def fail(error: WorkbenchError) -> None:
        raise RuntimeError("a bug of ours")

    broken.on_failure = fail  # type: ignore[method-assign]
    ids = [at.forward(call, seconds=5) for call in (late, broken, other)]
    at.forward(later, seconds=50)
    at.link.take()
    assert at.traffic._check_deadlines(now + 6, 0.0) is True
    assert [each["params"] for each in at.link.take()] == [{"requestId": id, "reason": "timeout"} for id in ids]
    assert late.failure == other.failure == "the server did not answer within 5 s; the call was cancelled"
    assert later.ends == [] and "could not be ended" in caplog.text
    assert at.traffic.questions.cancelled_calls.is_anothers(later.client)
    at.end()


async def test_time_while_the_process_was_stopped_does_not_count() -> None:
    at = make()
    now = asyncio.get_running_loop().time()
    call = Call()
    at.forward(call, seconds=5)
    at.traffic._check_deadlines(now + 100, 99.0)
    assert call.ends == []
    at.traffic._check_deadlines(now + 110, 0.0)
    assert call.ends
    at.end()


async def test_progress_restarts_the_timeout_up_to_a_limit() -> None:
    at = make()
    call = Call(b"1")
    loop = asyncio.get_running_loop()
    began = loop.time()
    id = at.forward(call, meta=b'{"progressToken":1}', seconds=10)
    exchange = at.traffic.pending.find(id)
    assert exchange is not None
    assert exchange.deadline - began == pytest.approx(10, abs=1)
    assert exchange.latest - began == pytest.approx(10 * PROGRESS_STRETCH, abs=1)
    exchange.deadline = 0.0
    for token in (id, id + 1, f'"{id}"', "[1]", "1.5"):
        at.say(
            b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b}}' % str(token).encode()
        )
    at.say({"method": "notifications/progress", "params": {}})
    at.say({"method": "notifications/progress", "params": []})
    at.say({"method": "notifications/progress"})
    assert call.progress == [b'{"progressToken":%d}' % id] and exchange.deadline > began
    at.end()


async def test_a_server_that_says_nothing_for_a_while_lets_us_remind() -> None:
    at = make()
    silent, careless = Call(b"1"), Call()
    for call in (silent, careless):
        exchange = at.traffic.pending.find(at.forward(call, seconds=100))
        assert exchange is not None
        exchange.deadline -= 30
    at.traffic._check_deadlines(asyncio.get_running_loop().time(), 0.0)
    assert (silent.reminded, careless.reminded) == (1, 0)
    at.end()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"jsonrpc":"2.0","id":%d}', "the server's answer cannot be read: not a JSON-RPC message"),
        (b'{"jsonrpc":"2.0","id":%d,"result":', "the server's answer cannot be read"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":\xff}}', "the server's answer cannot be read"),
    ],
)
async def test_an_answer_that_cannot_be_read_ends_its_call(line: bytes, words: str) -> None:
    at = make()
    call, other = Call(), Call()
    id = at.forward(call)
    at.forward(other)
    at.say(line % id)
    assert words in call.failure and other.ends == [] and at.traffic.noise.count == 0
    assert at.traffic.bytes_received == at.received
    at.end()


@pytest.mark.parametrize(
    "line", [b'{"id":%d}', b'{"level":"info","msg":"ready","id":%d}', b"listening on %d", b'{"a":1}']
)
async def test_other_output_is_noise_and_ends_no_call(line: bytes) -> None:
    at = make()
    at.owner.secret = "ready"
    call = Call()
    id = at.forward(call)
    said = line % id if b"%d" in line else line
    at.say(said)
    at.say(b"  ")
    assert call.ends == [] and at.traffic.noise.count == 1
    assert at.traffic.noise.lines == [said.decode().replace("ready", "***")]
    assert at.traffic.bytes_received == at.received
    at.end()


@pytest.mark.parametrize("kind", ["answer", "question", "late", "noise"])
async def test_a_line_that_is_too_long_ends_the_call_it_answers(kind: str) -> None:
    at = make()
    call = Call()
    id = at.forward(call)
    head = {
        "answer": b'{"jsonrpc":"2.0","id":%d,"result":{"text":"xxx' % id,
        "question": b'{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"' % id,
        "late": b'{"jsonrpc":"2.0","id":999999,"result":{"text":"xxx',
        "noise": b"x" * 50,
    }[kind]
    at.traffic.on_oversized(Oversized(head, b'xxx"}}', 5000))
    assert at.traffic.bytes_received == 5000
    if kind == "answer":
        assert call.failure == "the server's answer has 5000 bytes, more than the limit"
    else:
        assert call.ends == [] and at.traffic.call_count == 1
    at.end()


async def test_a_request_without_a_response_fails_alone_and_its_error_is_redacted() -> None:
    at = make()
    at.owner.secret = "secret"
    call, other = Call(), Call()
    id = at.forward(call)
    at.forward(other)
    at.traffic.on_request_failed(b"%d" % id, DownstreamError("status 500: secret"))
    at.traffic.on_request_failed(b"%d" % id, DownstreamError("again"))
    assert call.failure == "status 500: ***" and other.ends == []
    assert at.owner.heard == [("trouble", "status 500: ***")]
    at.traffic.on_closed("it went away")
    assert at.owner.heard[1:] == [("closed", "it went away")]
    at.end()


async def test_a_defect_of_ours_ends_the_request(caplog: pytest.LogCaptureFixture) -> None:
    at = make()
    call = Call()
    call.fault = RuntimeError("a bug of ours")
    at.say({"id": at.forward(call), "result": {}})
    assert call.failure == "the answer could not be passed on: a bug of ours" and "please report this" in caplog.text
    at.end()


# ── what servers say by themselves ──


async def test_notifications_reach_their_recipient() -> None:
    at = make()
    call = Call()
    at.forward(call)
    for kind in ("tools", "prompts", "resources"):
        at.say({"method": f"notifications/{kind}/list_changed"})
    at.say({"method": "notifications/resources/updated", "params": {"uri": "x"}})
    at.say({"method": "notifications/subscriptions/acknowledged"})
    at.say({"method": "notifications/tasks", "params": {"taskId": "t"}})
    assert at.owner.heard == [
        ("list", "tools"),
        ("list", "prompts"),
        ("list", "resources"),
        ("resource", b'{"uri": "x"}'),
        ("acknowledged", None),
        ("task", b'{"taskId": "t"}'),
    ]
    assert call.told == []
    at.owner.tasks_have_subscribers = False
    at.say({"method": "notifications/tasks", "params": {"taskId": "t"}})
    at.say({"method": "notifications/message", "params": {"data": 1}})
    at.say({"method": "notifications/unknown"})
    assert [method for method, _ in call.told] == [
        "notifications/tasks",
        "notifications/message",
        "notifications/unknown",
    ]
    assert at.traffic.bytes_received == at.received
    at.end()


async def test_notifications_without_params_go_to_the_client() -> None:
    at = make()
    call = Call()
    at.forward(call)
    methods = ["notifications/resources/updated", "notifications/tasks", "notifications/cancelled"]
    for method in methods:
        at.say({"method": method})
    assert [method for method, _ in call.told] == methods and at.owner.heard == []
    at.end()


async def test_a_message_on_the_stream_of_a_request_is_about_its_call() -> None:
    at = make()
    one, other = Call(), Call()
    first = at.forward(one)
    at.forward(other)
    at.traffic.on_related_message(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}', b"%d" % first)
    assert [method for method, _ in one.told] == ["notifications/message"] and other.told == []
    assert at.traffic.call_about(None) is None and at.traffic.call_about(b"999999") is None
    assert [each.call for each in at.traffic.calls_youngest_first()] == [other, one]
    at.end()


async def test_a_ping_is_answered_and_a_question_asked() -> None:
    at = make()
    call = Call()
    at.forward(call)
    at.link.take()
    at.say({"id": "p", "method": "ping"})
    assert at.link.take() == [{"jsonrpc": "2.0", "id": "p", "result": {}}]
    at.say({"id": 5, "method": "sampling/createMessage", "params": {}})
    assert call.told == [("sampling/createMessage", b"5")] and at.link.sent == []
    at.say({"method": "notifications/cancelled", "params": {"requestId": 6}})
    at.say({"method": "notifications/cancelled", "params": {}})
    at.say({"method": "notifications/cancelled", "params": [5]})
    assert len(call.told) == 1
    at.traffic.answer(b"6", b'"result":{}')
    assert at.link.sent == []
    at.traffic.answer(b"5", b'"result":{"ok":1}')
    at.traffic.answer(b"5", b'"result":{"twice":1}')
    assert at.link.take() == [{"jsonrpc": "2.0", "id": 5, "result": {"ok": 1}}]
    at.end()


async def test_a_question_that_its_server_withdraws_is_withdrawn_at_the_client() -> None:
    at = make()
    call = Call()
    at.forward(call)
    at.say({"id": 5, "method": "sampling/createMessage", "params": {}})
    at.say({"method": "notifications/cancelled", "params": {"requestId": 5}})
    assert call.told[1:] == [("cancel", b"5")]
    at.end()


async def test_while_its_question_is_open_progress_moves_no_deadline() -> None:
    at = make()
    call = Call(b"1")
    id = at.forward(call, meta=b'{"progressToken":1}', seconds=1)
    exchange = at.traffic.pending.find(id)
    assert exchange is not None
    at.say({"id": 5, "method": "sampling/createMessage", "params": {}})
    suspended = exchange.deadline
    at.say({"method": "notifications/progress", "params": {"progressToken": id}})
    assert exchange.deadline == suspended and len(call.progress) == 1
    at.end()


async def test_a_program_that_repeats_its_input_is_no_server() -> None:
    at = make()
    at.traffic.profile = None
    asked = asyncio.ensure_future(at.traffic.ask("server/discover", b"{}"))
    other = asyncio.ensure_future(at.traffic.ask("initialize", b"{}"))
    await asyncio.sleep(0)
    for sent in at.link.take():
        at.say(sent)
    for each in (asked, other):
        with pytest.raises(DownstreamError, match="echoes its input"):
            await each
    assert at.link.sent == [] and len(at.traffic.pending) == 0
    # Once it has introduced itself, the same is a question like others.
    again = make()
    again.say({"id": 1, "method": "initialize"})
    assert again.link.take()[0]["error"]["code"]
    again.end()


@pytest.mark.parametrize("revision", [LEGACY, MODERN], ids=["legacy", "modern"])
@pytest.mark.parametrize("info", [INFO, NO_MEMBERS])
async def test_profile_after_the_handshake(revision: Revision, info: Raw) -> None:
    traffic = Traffic("box/server", ClientIdentity(), Owner())
    traffic.on_handshake(ServerProfile(revision.era, revision.name, server_info=info))
    assert traffic.revision is revision and traffic.takes_retries is (revision is MODERN)
    assert traffic.server_info == (None if info is NO_MEMBERS else INFO)
    assert bool(traffic.result_head) is (revision is LEGACY and info is INFO)
    assert info is NO_MEMBERS or revision is MODERN or bytes(INFO) in traffic.result_head


async def test_question_before_the_call_is_asked_with_it() -> None:
    """Many servers ask for roots right after their handshake, moments before the call that they were started for."""
    at = make()
    at.traffic.identity = ClientIdentity(capabilities=b'{"roots":{}}')
    at.say({"id": 7, "method": "roots/list"})
    assert len(at.traffic.questions.held) == 1
    call = Call()
    at.forward(call)
    assert call.told == [("roots/list", b"7")] and not at.traffic.questions.held
    assert at.traffic.deadlines.is_running
    at.end()
    assert call.told[1:] == [("cancel", b"7")], "its question ends with the server"


async def test_owner_learns_of_questions_that_name_no_request() -> None:
    at = make()
    call = Call()
    id = at.forward(call)
    at.say({"id": 5, "method": "sampling/createMessage"}, b"%d" % id)
    assert at.owner.heard == []
    at.say({"id": 6, "method": "sampling/createMessage"})
    assert at.owner.heard == [("asked", None)] and len(call.told) == 2
    at.end()


async def test_a_server_of_everyone_learns_nothing_that_a_modern_client_stamps() -> None:
    at = make(MODERN)
    at.traffic.withheld = EVERYTHING
    meta = MODERN.stamp(b'{"name":"c"}', b'{"sampling":{}}') + b',"mine":1}'
    at.traffic.forward(Call(), TOOLS_CALL, "work", b'{"name":"work"', Raw(meta), MODERN, 10)
    (sent,) = at.link.take()
    assert sent["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {}
    assert sent["params"]["_meta"]["mine"] == 1
    at.end()


async def test_requests_that_wait_are_looked_after_too() -> None:
    link = HttpLink()
    at = make(LEGACY, link, shares=True)
    ids = [at.forward(Call()) for _ in range(64)]
    at.traffic.deadlines.stop()
    prompt = at.traffic.forward(Call(), b'"prompts/get"', "p", b'{"name":"p"', None, LEGACY, 10)
    assert at.traffic.deadlines.is_running and len(link.sent) == 64
    at.say({"id": 7, "method": "roots/list"}, b"%d" % ids[0])
    at.say({"id": ids[0], "result": {}})
    assert link.sent[-1]["method"] == "prompts/get" and link.sent[-1]["id"] == prompt and len(link.calls) == 64
    at.end()


async def test_everything_that_is_sent_is_counted() -> None:
    at = make()
    at.traffic.notify("notifications/x", b'{"a":1}')
    at.traffic.ask_in_background("ping", b"{}")
    assert at.traffic.bytes_sent == at.link.bytes > 0
    at.end()


async def test_messages_that_were_read_in_a_thread_are_the_same_messages() -> None:
    at = make()
    call, broken = Call(), Call()
    line = b'{"jsonrpc":"2.0","id":%d,"result":{"a":1}}' % at.forward(call)
    at.traffic.on_read_message(line, messages.read(line))
    assert call.ends == [("result", {"a": 1})] and at.traffic.bytes_received == len(line)
    half = b'{"jsonrpc":"2.0","id":%d,"result":' % (id := at.forward(broken))
    at.traffic.on_read_message(half, Malformed("it is cut off", b"%d" % id))
    assert broken.failure == "the server's answer cannot be read: it is cut off"
    at.end()


@pytest.mark.parametrize("line", [b'{"jsonrpc":"2.0","result":{}}', b'{"jsonrpc":"2.0"}'])
async def test_unmatched_answer_is_noise(line: bytes) -> None:
    at = make()
    call = Call()
    at.forward(call)
    at.say(line)
    assert call.ends == [] and at.traffic.noise.count == 1 and at.traffic.call_count == 1
    at.end()


async def test_a_question_that_cannot_be_read_ends_no_call_with_its_number() -> None:
    at = make()
    call = Call()
    id = at.forward(call)
    at.say(b'{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"a":\xff}}' % id)
    assert call.ends == [] and at.traffic.call_count == 1 and at.traffic.noise.count == 1
    at.end()


async def test_a_server_may_ping_before_it_has_introduced_itself() -> None:
    at = make()
    at.traffic.profile = None
    asked = asyncio.ensure_future(at.traffic.ask("initialize", b"{}"))
    await asyncio.sleep(0)
    at.link.take()
    at.say({"id": 1, "method": "ping"})
    assert at.link.take() == [{"jsonrpc": "2.0", "id": 1, "result": {}}] and not asked.done()
    at.end()
    await asyncio.wait({asked})
