"""Random JSON-RPC in both directions, on both sides: nothing breaks, nothing leaks, nothing crosses.

The real packages between clients and servers that Hypothesis plays (`tests.bridge.in_process`): no processes, no pipes, so that
thousands of conversations fit into seconds, and each that fails is shrunk to its few guilty words.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import EVERYTHING, Client, InProcessWorkbench, in_process_workbench, settled, until

Json = dict[str, Any]

# Beyond every deadline there is.
MUCH_LATER = 100_000.0
FINAL_ROUNDS = 6
# How long a question that nobody can be asked yet is kept here; it is ten seconds elsewhere.
HELD = 0.001

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
objects = st.dictionaries(st.text(max_size=6), values, max_size=3)
ids = st.integers(0, 8) | st.sampled_from(["1", "ask-1", "", "x"]) | st.just(None) | values
members = st.sampled_from(
    "name uri level cursor arguments requestId progressToken notifications ref argument requestState inputResponses _meta taskId".split()
)
params = st.dictionaries(members, values, max_size=4) | objects | values
METHODS = (
    "tools/call tools/list prompts/list prompts/get resources/list resources/read resources/templates/list "
    "resources/subscribe resources/unsubscribe completion/complete logging/setLevel subscriptions/listen "
    "server/discover ping initialize tasks/get tasks/cancel x/y"
).split()
TOLD = (
    "notifications/cancelled notifications/progress notifications/initialized notifications/message "
    "notifications/roots/list_changed notifications/tools/list_changed notifications/resources/updated "
    "notifications/subscriptions/acknowledged notifications/elicitation/complete notifications/x"
).split()
ASKED = "elicitation/create sampling/createMessage roots/list ping x/y".split()
strange_results = st.fixed_dictionaries(
    {},
    optional={
        "resultType": st.sampled_from(["complete", "input_required", "task", "x"]) | values,
        "inputRequests": st.dictionaries(
            st.text(max_size=3),
            st.fixed_dictionaries({"method": st.sampled_from(ASKED)}, optional={"params": values}) | values,
            max_size=3,
        )
        | values,
        "requestState": st.text(max_size=5) | values,
        "content": st.lists(values, max_size=2) | values,
        "_meta": objects | values,
        "task": objects | values,
    },
)
garbage = st.binary(max_size=30) | st.sampled_from(
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"id":1}',
        b'{"method":5}',
        b'{"id":1,"result":{},"error":{}}',
        b"\xff",
        b'{"a":"\\ud800"}',
    ]
)

# What one of the clients, or one of the servers, does next. The number says which.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(0, 2), st.sampled_from(["tool", "prompt", "resource"])),
        st.tuples(st.just("request"), st.integers(0, 2), st.tuples(st.sampled_from(METHODS), params)),
        st.tuples(st.just("tell"), st.integers(0, 2), st.tuples(st.sampled_from(TOLD), params)),
        st.tuples(st.just("cancel"), st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.just("retry"), st.integers(0, 2), values),
        st.tuples(st.just("respond"), st.integers(0, 2), st.tuples(ids, values)),
        st.tuples(st.just("garbage"), st.integers(0, 2), garbage),
        st.tuples(st.just("server replies"), st.integers(0, 5), st.none()),
        st.tuples(st.just("server progresses"), st.integers(0, 5), st.none()),
        st.tuples(st.just("server replies strangely"), st.integers(0, 5), strange_results | values),
        st.tuples(st.just("server fails"), st.integers(0, 5), values),
        st.tuples(st.just("server answers"), st.integers(0, 5), st.tuples(ids, values)),
        st.tuples(st.just("server asks"), st.integers(0, 5), st.tuples(ids, st.sampled_from(ASKED), params)),
        st.tuples(st.just("server tells"), st.integers(0, 5), st.tuples(st.sampled_from(TOLD), params)),
        st.tuples(st.just("server garbles"), st.integers(0, 5), garbage),
        st.tuples(st.just("server crashes"), st.integers(0, 5), st.none()),
        st.tuples(st.just("time passes"), st.integers(0, 5), st.sampled_from([0.1, 61.0])),
        st.tuples(st.just("turns"), st.integers(0, 3), st.none()),
    ),
    max_size=25,
)


class Play:
    """One conversation."""

    def __init__(self, workbench: InProcessWorkbench) -> None:
        self.workbench = workbench
        # Two share a principal, and so may share servers; the third must never share any with them.
        self.clients = [
            workbench.client("legacy", EVERYTHING, "us"),
            workbench.client("modern", EVERYTHING, "us"),
            workbench.client("legacy", EVERYTHING, "them"),
        ]
        self.asked: list[set[int]] = [set(), set(), set()]
        self.cancelled: list[set[object]] = [set(), set(), set()]

    def _servers(self) -> list[FakeServer]:
        found = [fake for fake in self.workbench.gateway.fake_servers if not fake.is_stopped]
        for fake in found:
            fake.traffic.questions.held_seconds = HELD
        return found

    async def step(self, what: str, which: int, detail: Any) -> None:
        if what == "turns":
            await settled()
        elif what.startswith("server") or what == "time passes":
            servers = self._servers()
            if servers:
                self._server_does(what, servers[which % len(servers)], detail)
        else:
            self._client_does(what, which, detail)

    def _client_does(self, what: str, which: int, detail: Any) -> None:
        client = self.clients[which]
        match what:
            case "call":
                mine = {"who": which, "n": len(self.asked[which])}
                token = f"token of {which}"
                request = client.call(
                    detail, meta={"progressToken": token}, **({} if detail == "resource" else {"arguments": mine})
                )
                self.asked[which].add(request.id)
            case "request":
                method, given = detail
                id = next(client._ids)
                self.asked[which].add(id)
                if client.era == "modern" and isinstance(given, dict):
                    given = {**given, "_meta": {**client.stamp(), **_object(given.get("_meta"))}}
                client.send_raw({"id": id, "method": method, "params": given})
            case "tell":
                method, given = detail
                if method == "notifications/cancelled" and isinstance(given, dict):
                    self.cancelled[which].add(json.dumps(given.get("requestId")))
                client.send_raw({"method": method, "params": given})
            case "cancel":
                known = sorted(self.asked[which])
                if known:
                    id = known[detail % len(known)]
                    self.cancelled[which].add(json.dumps(id))
                    client.notify("notifications/cancelled", {"requestId": id})
            case "retry":
                self._retry(client, which, detail)
            case "respond":
                id, value = detail
                client.send_raw({"id": id, "result": value})
            case "garbage":
                before = list(client.received)
                client.session.on_message(detail)
                self._take_complaints(which, before)

    def _take_complaints(self, which: int, before: list[Json]) -> None:
        """What is said about garbage may name an id that was found in it, but none that a call waits under."""
        client = self.clients[which]
        answered = {json.dumps(message.get("id")) for message in before if "method" not in message}
        for message in client.received[len(before) :]:
            if "error" in message and message.get("id") is not None:
                id = message["id"]
                assert id not in self.asked[which] or json.dumps(id) in answered, f"client {which} got {message}"
                client.received.remove(message)

    def _retry(self, client: Client, which: int, given: Any) -> None:
        """Come back with a state that was given out, and answers of any kind."""
        for message in client.received:
            result = message.get("result")
            if isinstance(result, dict) and isinstance(result.get("requestState"), str) and client.era == "modern":
                answers = dict.fromkeys(result.get("inputRequests", {}), given) if isinstance(given, dict) else given
                request = client.call(requestState=result["requestState"], inputResponses=answers)
                self.asked[which].add(request.id)
                return

    def _server_does(self, what: str, server: FakeServer, detail: Any) -> None:
        calls = server.open_calls()
        match what:
            case "server replies" if calls:
                reply_truly(server, calls[0])
            case "server progresses":
                for call in calls:
                    token = _object(call["params"].get("_meta")).get("progressToken")
                    server.notify("notifications/progress", {"progressToken": token, "progress": 1})
            case "server replies strangely" if calls:
                server.reply(calls[0], detail)
            case "server fails" if calls:
                server._answered.add(calls[0]["id"])
                server.say({"id": calls[0]["id"], "error": detail})
            case "server answers":
                id, value = detail
                # Whoever answers with the id of a call answers that call; this one invents ids.
                if id not in [call["id"] for call in calls]:
                    server.say({"id": id, "result": value})
            case "server asks":
                id, method, given = detail
                server.say({"id": id, "method": method, "params": given})
            case "server tells":
                method, given = detail
                server.say({"method": method, "params": given})
            case "server garbles":
                server.traffic.on_message(detail)
            case "server crashes":
                server.crash()
                server.is_stopped = True
            case "time passes":
                server.advance(detail)

    async def finish(self) -> None:
        """Everybody is well again and answers whatever is open; then time runs out for the rest."""
        for _ in range(FINAL_ROUNDS):
            await settled()
            for server in self._servers():
                for call in server.open_calls():
                    reply_truly(server, call)
            for client in self.clients:
                for question in client.questions():
                    client.answer(question, {"action": "cancel"})
            await settled()
        for server in self._servers():
            server.advance(MUCH_LATER)
        await until(lambda: not any(server.traffic.questions.held for server in self._servers()))
        await settled()

    def judge(self) -> None:
        for which, client in enumerate(self.clients):
            answers = Counter(json.dumps(message.get("id")) for message in client.received if "method" not in message)
            for id in self.asked[which]:
                written = json.dumps(id)
                assert answers[written] <= 1, f"client {which} has {answers[written]} answers to {id}"
                open_streams = {stream.decode() for stream in client.session.streams}
                assert answers[written] == 1 or written in self.cancelled[which] or written in open_streams, (
                    f"client {which} has no answer to {id}"
                )
            for message in client.received:
                self._is_own(which, message)

    def _is_own(self, which: int, message: Json) -> None:
        content = _object(_object(message.get("result")).get("structuredContent"))
        assert content.get("who", which) == which, f"client {which} got {message}"
        if message.get("method") == "notifications/progress":
            token = _object(message.get("params")).get("progressToken")
            assert token == f"token of {which}", f"client {which} was told {message}"

    def leave(self) -> None:
        for client in self.clients:
            client.session.leave()
        self.workbench.parking.close()


def reply_truly(server: FakeServer, call: Json) -> None:
    """The answer of a healthy server: whose call it was is in it."""
    result = {"content": [], "structuredContent": call["params"].get("arguments", {})}
    server.reply(call, {"messages": [], **result} if call["method"] == "prompts/get" else {"contents": [], **result})


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


class _Complaints(logging.Handler):
    """What was logged as a defect of ours, which is contained, and a defect all the same."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


async def _play(server_era: str, script: list[tuple[str, int, Any]], *, vanishes: bool) -> None:
    complaints = _Complaints()
    logger = logging.getLogger("mcp_workbench")
    logger.addHandler(complaints)
    try:
        async with asyncio.timeout(60), in_process_workbench(server_era, face="proxy") as workbench:
            play = Play(workbench)
            for client in (play.clients[0], play.clients[2]):
                await workbench.connect(client)
            for what, which, detail in script:
                await play.step(what, which, detail)
            if not vanishes:
                await play.finish()
                play.judge()
            play.leave()
            with contextlib.suppress(TimeoutError):
                await until(workbench.is_clean)
            assert workbench.is_clean(), "something is kept for calls that are over"
    finally:
        logger.removeHandler(complaints)
    assert complaints.texts == []


PATIENT = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@PATIENT
@given(steps, st.booleans())
# What cannot be read may hold the id of a call under way.
@example([("call", 1, "tool"), ("garbage", 1, b'"id":1}')], False)
@example([("call", 1, "tool"), ("garbage", 1, b'{"id":1}')], False)
@example([("garbage", 1, b'{"id":1}'), ("call", 1, "tool")], False)
def test_around_a_legacy_server_every_request_ends_and_nothing_crosses(
    script: list[tuple[str, int, Any]], vanishes: bool
) -> None:
    asyncio.run(_play("legacy", script, vanishes=vanishes))


@PATIENT
@given(steps, st.booleans())
def test_around_a_modern_server_every_request_ends_and_nothing_crosses(
    script: list[tuple[str, int, Any]], vanishes: bool
) -> None:
    asyncio.run(_play("modern", script, vanishes=vanishes))
