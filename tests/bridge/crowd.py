"""A crowd: many clients of several users on servers of every kind, which crash, stall, ask and are reconfigured.

A script is a list of numbers that chooses among what is possible, so that each part of a script is one as well. Every
call, question and answer carries a token of its own. `Crowd` notes what each side did, and from that alone says what
every message may be: who gets an answer, which one, and when a call may fail. It knows nothing of how the workbench
does it.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from msgspec.structs import replace

from mcp_workbench.app.gateway import Options
from mcp_workbench.engine.config.model import FaceName, ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.lifecycle import CRASH_WINDOW, MAX_CRASHES
from mcp_workbench.engine.downstream.server_link import ServerLink
from mcp_workbench.engine.transport.link import Receiver
from mcp_workbench.errors import DownstreamError
from tests.bridge.conversation import FORM, input_required
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import EVERYTHING, MODERN_VERSION, Client, GatewayToFakeServers, InProcessWorkbench, Json

TIMEOUT = 60.0
STARTUP_TIMEOUT = 30.0
# A deadline is looked at so often that a call fails this long after it at the latest, and an answer is there by then.
SOON = 1.0
# Longer than a parked call, a question and every timeout.
MUCH_LATER = 3000.0
USERS = ("ann", "bob", "ann", "eve")
TOKEN = re.compile(r"\b[cq]\d+\b")

Step = tuple[str, int, int]


@dataclass(eq=False)
class Call:
    """One call of a client, with its retries."""

    token: str
    who: Client
    server: str
    began: float
    # The ids of its requests: the first, and one for each retry.
    ids: list[int] = field(default_factory=list)
    # Where it was sent, and when it last came or was heard of there.
    at: FakeServer | None = None
    heard: float = 0.0
    sent: list[Json] = field(default_factory=list)
    # What its server said to it; what it may fail with besides.
    replies: list[str] = field(default_factory=list)
    excuses: set[str] = field(default_factory=set)
    is_over: bool = False
    is_cancelled: bool = False
    # Questions were asked while it was under way: its deadline moved.
    was_asked: bool = False
    # What a modern client was asked last, and whether it has come back with it.
    asked: Json | None = None


@dataclass(eq=False)
class Question:
    token: str
    at: FakeServer
    # The id at a legacy server, or the state and call at a modern one.
    id: str
    call: Call | None
    # Who has seen it, and whether somebody answered.
    seen_by: Client | None = None
    answered: bool = False
    withdrawn: bool = False


class Noted(list[Json]):
    """What somebody received; each message goes to the common log too, with its time."""

    def __init__(self, log: Callable[[Any, Json], None], owner: Any) -> None:
        super().__init__(owner.received)
        self._log = log
        self._owner = owner

    def append(self, message: Json) -> None:
        super().append(message)
        self._log(self._owner, message)


class CrowdGateway(GatewayToFakeServers):
    """Whose servers may fail to start, or take their time."""

    def __init__(self, config: WorkbenchConfig, face: FaceName, eras: dict[str, str]) -> None:
        super().__init__(config, Options(face=face, use_cache=False), eras, (MODERN_VERSION,), {})
        # By server, what the next start does: how long it takes, and whether it fails then.
        self.next_start: dict[str, tuple[float, bool]] = {}
        self.on_failed_start: Callable[[str], None] = lambda name: None
        # Everything that anybody received and nobody has judged yet: when, who and what.
        self.log: list[tuple[float, Any, Json]] = []

    def note(self, owner: Any, message: Json) -> None:
        self.log.append((asyncio.get_running_loop().time(), owner, message))

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        name = connection.config.name
        seconds, fails = self.next_start.pop(name, (0.0, False))
        await asyncio.sleep(seconds)
        if fails:
            self.on_failed_start(name)
            raise DownstreamError("the server does not start")
        link = await super()._open_link(connection, receiver)
        fake = self.fake_servers[-1]
        fake.received = Noted(self.note, fake)
        return link


def crowd_config() -> tuple[WorkbenchConfig, dict[str, str]]:
    """Two servers of each kind of sharing, one of each era, and two that may not ask."""
    eras, servers = {}, {}
    kinds: list[tuple[str, Json]] = [
        ("user", {"share": "user"}),
        ("own", {"share": "session"}),
        ("all", {"share": "everyone"}),
        ("mute", {"ask": False}),
    ]
    for kind, settings in kinds:
        for era in ("legacy", "modern"):
            name = f"{kind}-{era}"
            eras[name] = era
            servers[name] = ServerConfig(
                name=name, command="fake", timeout=TIMEOUT, startup_timeout=STARTUP_TIMEOUT, **settings
            )
    box = ToolboxConfig(name="box", description="The box.", servers=servers)
    return WorkbenchConfig(path="fake.json", toolboxes={"box": box}), eras


class Crowd:
    """Plays a script and judges what comes of it."""

    def __init__(self, gateway: CrowdGateway, face: FaceName, seed: int) -> None:
        self.gateway = gateway
        # The first one has most calls. Where clients of one user share a legacy server, most can go wrong.
        first = "user-legacy" if seed % 2 else sorted(gateway._eras)[seed // 2 % len(gateway._eras)]
        self._names = sorted(gateway._eras, key=lambda name: (name != first, name))
        self.workbench = InProcessWorkbench(gateway, face)
        self.face = face
        self.clients: list[Client] = []
        self.calls: dict[str, Call] = {}
        self.questions: dict[str, Question] = {}
        self.failures: dict[str, list[float]] = {}
        self.crashed: set[FakeServer] = set()
        self.done: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        # When what is judged now arrived.
        self._now = 0.0
        self._used_states: list[tuple[Call, Json]] = []
        gateway.on_failed_start = self._failed
        for number in range(8):
            self._join(number)

    # ── what may happen ──

    async def play(self, script: Sequence[Step]) -> None:
        for action, one, other in script:
            self.done.append(f"{self._loop.time():.2f} {action} {one} {other}")
            await getattr(self, f"_do_{action}")(one, other)
            self.observe()
        await self._finish()

    def _join(self, number: int) -> Client:
        era = ("legacy", "modern")[number % 2]
        capabilities: Json = EVERYTHING if number % 5 else {}
        client = self.workbench.client(era, capabilities, USERS[number % len(USERS)], lasts=number % 4 == 1)
        client.received = Noted(self.gateway.note, client)
        self.clients.append(client)
        return client

    async def _do_join(self, one: int, other: int) -> None:
        if len(self.clients) < 14:
            self._join(one)

    async def _do_leave(self, one: int, other: int) -> None:
        if len(self.clients) > 4:
            client = self.clients.pop(one % len(self.clients))
            client.session.leave()
            for call in self._open(client):
                call.is_cancelled = True

    async def _do_call(self, one: int, other: int) -> None:
        client = self.clients[one % len(self.clients)]
        call = Call(f"c{next(self._numbers)}", client, self._name(other), self._loop.time())
        self.calls[call.token] = call
        if call.server not in self._configured():
            call.excuses.add("it is not configured")
        self._send(call)

    def _name(self, number: int) -> str:
        """A server, most often one of the first."""
        return self._names[number % len(self._names) * (number // 64 % 8) // 8]

    def _send(self, call: Call, **fields: object) -> None:
        arguments = {"a": call.token}
        if self.face == "flat":
            named: Json = {"name": f"box:{call.server}:work", "arguments": arguments}
        else:
            path = {"toolbox": "box", "server": call.server, "tool": "work"}
            named = {"name": "use_tool", "arguments": {"tool": path, "arguments": arguments}}
        # Known before anything can come back.
        call.ids.append(_next_id(call.who))
        request = call.who.send_request("tools/call", {**named, **fields}, meta={"progressToken": call.token})
        assert request.id == call.ids[-1]

    async def _do_reply(self, one: int, other: int) -> None:
        found = self._at_servers()
        if found:
            server, message = found[one % len(found)]
            call = self.calls[message["params"]["arguments"]["a"]]
            call.replies.append(f"{call.token} {other}")
            if other % 5 == 0:
                server.fail(message, -32000, call.replies[-1])
            else:
                server.reply(message, {"content": [{"type": "text", "text": call.replies[-1]}]})
            if other % 7 == 0:
                # A second answer is nobody's.
                server.say({"id": message["id"], "result": {"content": [{"type": "text", "text": "c0 again"}]}})

    async def _do_progress(self, one: int, other: int) -> None:
        found = self._at_servers()
        if found:
            server, message = found[one % len(found)]
            call = self.calls[message["params"]["arguments"]["a"]]
            if not call.is_over:
                call.heard = self._loop.time()
            token = message["params"].get("_meta", {}).get("progressToken")
            server.notify("notifications/progress", {"progressToken": token, "progress": other, "message": call.token})

    async def _do_ask(self, one: int, other: int) -> None:
        servers = [server for server in self._alive() if server.open_calls()] if other % 8 else self._alive()
        if not servers:
            return
        server = servers[one % len(servers)]
        token = f"q{next(self._numbers)}"
        form = {**FORM, "message": token}
        open_calls = server.open_calls()
        for message in open_calls:
            self.calls[message["params"]["arguments"]["a"]].was_asked = True
        if server.era == "modern":
            if open_calls:
                message = open_calls[other % len(open_calls)]
                call = self.calls[message["params"]["arguments"]["a"]]
                call.excuses.add("its client may be unable to answer")
                self.questions[token] = Question(token, server, f"state of {token}", call)
                server.reply(message, input_required({"key": ("elicitation/create", form)}, f"state of {token}"))
            return
        # Known before anything can come back.
        self.questions[token] = question = Question(token, server, f"ask-{server._asked + 1}", None)
        assert server.ask("elicitation/create", form) == question.id

    async def _do_withdraw(self, one: int, other: int) -> None:
        found = [each for each in self.questions.values() if each.call is None and self._is_open(each)]
        if found:
            question = found[one % len(found)]
            question.withdrawn = True
            question.at.withdraw(question.id)

    def _is_open(self, question: Question) -> bool:
        return question.at in self._alive() and question.at.answer_to(question.id) is None and not question.withdrawn

    async def _do_answer(self, one: int, other: int) -> None:
        """A client says what it was asked; legacy ones sometimes twice."""
        waiting: list[Callable[[], None]] = []
        for client in self.clients:
            if client.era == "legacy":
                waiting += [
                    lambda client=client, asked=asked: self._say(client, asked)  # type: ignore[misc]
                    for asked in client.questions()
                    if not self.questions[_token(asked)].answered or other % 11 == 0
                ]
        waiting += [
            lambda call=call: self._come_back(call, other)  # type: ignore[misc]
            for call in self.calls.values()
            if call.asked is not None and call.who in self.clients
        ]
        if waiting:
            waiting[one % len(waiting)]()

    def _say(self, client: Client, asked: Json) -> None:
        token = _token(asked)
        self.questions[token].answered = True
        client.answer(asked, _answer(token))

    def _come_back(self, call: Call, other: int) -> None:
        asked, call.asked = call.asked, None
        assert asked is not None
        answers = {key: _answer(_token(each)) for key, each in asked["inputRequests"].items()}
        if other % 6 == 0 and len(answers) > 1:
            answers.popitem()
        for each in answers.values():
            self.questions[each["content"]["name"]].answered = True
        self._used_states.append((call, asked))
        self._send(call, requestState=asked["requestState"], inputResponses=answers)

    async def _do_steal(self, one: int, other: int) -> None:
        """Somebody else comes back with a state, or its owner does so for the second time."""
        states: list[tuple[Call, Json]] = [(each, each.asked) for each in self.calls.values() if each.asked is not None]
        thieves = [client for client in self.clients if client.era == "modern"]
        if other % 2 and self._used_states:
            call, asked = self._used_states[one % len(self._used_states)]
            thieves = [call.who] if call.who in self.clients else []
        elif states:
            call, asked = states[one % len(states)]
            thieves = [each for each in thieves if each.principal != call.who.principal]
        else:
            return
        if self.gateway._eras[call.server] == "modern" or not thieves:
            # A modern server seals its states itself.
            return
        theft = Call(call.token, thieves[other % len(thieves)], call.server, self._loop.time())
        theft.excuses.add("the state is not its own")
        self.calls[f"{call.token} stolen {next(self._numbers)}"] = theft
        answers = dict.fromkeys(asked["inputRequests"], _answer("q0"))
        self._send(theft, requestState=asked["requestState"], inputResponses=answers)

    async def _do_cancel(self, one: int, other: int) -> None:
        found = [call for client in self.clients for call in self._open(client) if call.asked is None]
        if found:
            call = found[one % len(found)]
            call.is_cancelled = True
            call.who.notify("notifications/cancelled", {"requestId": call.ids[-1], "reason": "the crowd cancels"})

    async def _do_crash(self, one: int, other: int) -> None:
        servers = self._alive()
        if servers:
            server = servers[one % len(servers)]
            self.crashed.add(server)
            self._failed(server.connection.config.name)
            for call in self.calls.values():
                if call.at is server or call.at is None:
                    call.excuses.add("its server crashed")
            server.crash()

    def _failed(self, name: str) -> None:
        self.failures.setdefault(name, []).append(self._loop.time())
        for call in self.calls.values():
            if call.server == name and call.at is None:
                call.excuses.add("its server did not start")

    async def _do_slow_start(self, one: int, other: int) -> None:
        self.gateway.next_start[self._name(one)] = (other % 12 / 2, other % 3 == 0)

    async def _do_change_list(self, one: int, other: int) -> None:
        servers = self._alive()
        if servers:
            servers[one % len(servers)].notify("notifications/tools/list_changed")

    async def _do_configure(self, one: int, other: int) -> None:
        """Change a server's settings, or take it away; others that were taken away are back."""
        config, _ = crowd_config()
        every = config.toolboxes["box"].servers
        servers = {**every, **self._configured()}
        name = self._name(one)
        if other % 4 == 0:
            del servers[name]
            for call in self.calls.values():
                if call.server == name and call.at is None:
                    call.excuses.add("it is not configured any more")
        else:
            servers[name] = replace(every[name], args=(str(other),))
        box = replace(config.toolboxes["box"], servers=servers)
        await self.gateway.apply(replace(config, toolboxes={"box": box}))

    def _configured(self) -> dict[str, ServerConfig]:
        return dict(self.gateway.config.toolboxes["box"].servers)

    async def _do_wait(self, one: int, other: int) -> None:
        await asyncio.sleep((*(0.0, 0.05, 0.3, 2.0) * 3, 11.0, 11.0, TIMEOUT + SOON, 650.0)[one % 16])

    async def _do_rest(self, one: int, other: int) -> None:
        """Long enough for everything that has happened to be known."""
        await asyncio.sleep(SOON)
        self.observe()
        self._nothing_is_lost()

    # ── who is there ──

    def _alive(self) -> list[FakeServer]:
        return [each for each in self.gateway.fake_servers if not each.is_stopped and each not in self.crashed]

    def _at_servers(self) -> list[tuple[FakeServer, Json]]:
        return [(server, message) for server in self._alive() for message in server.open_calls()]

    def _open(self, client: Client) -> list[Call]:
        return [call for call in self.calls.values() if call.who is client and not call.is_over]

    # ── what may come of it ──

    def observe(self) -> None:
        """Judge everything that has arrived since the last time."""
        log, self.gateway.log = self.gateway.log, []
        for self._now, owner, message in log:
            if isinstance(owner, FakeServer):
                self._at_server(owner, message)
            else:
                self._at_client(owner, message)
        for kind in ("all-legacy", "all-modern"):
            owners = [each for each in self._alive() if each.connection.config.name == kind and _is_in_use(each)]
            assert len({each.connection.entry for each in owners}) == len(owners), f"{kind} runs twice: {owners}"

    def _at_server(self, server: FakeServer, message: Json) -> None:
        method = message.get("method")
        if method == "tools/call":
            self._call_arrives(server, message)
        elif method is None:
            found = [each for each in self.questions.values() if each.at is server and each.id == message["id"]]
            assert len(found) == 1, f"answer to nothing: {message}"
            if message.get("result", {}).get("action") == "accept":
                assert found[0].answered and _token(message) == found[0].token, f"{found[0]} got {message}"
        elif method == "notifications/cancelled":
            self._cancel_arrives(server, message["params"]["requestId"])

    def _call_arrives(self, server: FakeServer, message: Json) -> None:
        params = message["params"]
        call = self.calls[params["arguments"]["a"]]
        name = server.connection.config.name
        assert name == call.server, f"{call} is at {name}"
        if not name.startswith("all"):
            others = {each.who.principal for each in self.calls.values() if each.at is server}
            assert others <= {call.who.principal}, f"{call} is on a connection of {others}"
        if name.startswith("own"):
            clients = {_session(each.who) for each in self.calls.values() if each.at is server}
            assert clients <= {_session(call.who)}, f"{call} is on another client's connection"
        assert not call.is_over, f"{call} is sent although it is over"
        if "requestState" in params:
            (question,) = [each for each in self.questions.values() if each.id == params["requestState"]]
            assert question.call is call, f"{call} comes back with {question}"
            assert _token(params["inputResponses"]["key"]) == question.token
            assert question.answered
            used = [each["params"].get("requestState") for each in call.sent]
            assert params["requestState"] not in used, f"{call} comes back twice"
        else:
            assert not call.sent, f"{call} is sent twice"
            assert not call.is_cancelled, f"{call} is sent although it was cancelled"
        call.sent.append(message)
        call.at, call.heard = server, self._now
        if server in self.crashed:
            call.excuses.add("its server crashed")

    def _cancel_arrives(self, server: FakeServer, id: object) -> None:
        found = [each for each in self.calls.values() for sent in each.sent if sent["id"] == id and each.at is server]
        if found:
            (call,) = found
            is_late = self._now >= call.heard + TIMEOUT
            assert call.is_cancelled or is_late or call.who not in self.clients, f"{call} is cancelled at its server"

    def _at_client(self, client: Client, message: Json) -> None:
        if "method" not in message:
            self._answer_arrives(client, message)
        elif "id" in message:
            self._asked(client, message)
        elif message["method"] == "notifications/progress":
            call = self.calls[message["params"]["progressToken"]]
            assert call.who is client, f"{call} progresses at another client"
            assert _tokens(message) <= {call.token}, f"{call} hears of another: {message}"

    def _answer_arrives(self, client: Client, message: Json) -> None:
        (call,) = [each for each in self.calls.values() if each.who is client and message["id"] in each.ids]
        assert not call.is_over, f"{call} is answered twice: {message}"
        assert not call.is_cancelled, f"{call} is answered after it was cancelled: {message}"
        assert client in self.clients, f"{call} is answered after its client left"
        assert message["id"] == call.ids[-1], f"{call}: an earlier request is answered: {message}"
        result = message.get("result", {})
        if result.get("resultType") == "input_required":
            for each in result["inputRequests"].values():
                self._asked(client, each, call)
            call.asked = result
            call.was_asked = True
            return
        call.is_over = True
        said = _tokens(message)
        if call.replies and call.replies[-1] in str(message):
            assert said == {call.token}, f"{call} is answered with {message}"
        else:
            assert "error" in message or result.get("isError"), f"{call} is answered with {message}"
            assert not said, f"{call} is answered with words of others: {message}"
            assert self._may_fail(call), f"{call} fails without a reason: {message}"

    def _may_fail(self, call: Call) -> bool:
        now = self._now
        recent = [each for each in self.failures.get(call.server, []) if now - each < CRASH_WINDOW]
        return (
            bool(call.excuses)
            or now >= (call.heard if call.sent else call.began) + (TIMEOUT if call.sent else STARTUP_TIMEOUT)
            or (not call.sent and len(recent) >= MAX_CRASHES)
        )

    def _asked(self, client: Client, asked: Json, call: Call | None = None) -> None:
        question = self.questions[_token(asked)]
        name = question.at.connection.config.name
        # What a modern server says to a modern client is between them.
        is_passed_on = question.call is not None and client.era == "modern"
        assert client.capabilities or is_passed_on, f"{question} is put to a client that cannot answer"
        assert not name.startswith(("all", "mute")), f"{question} of a server that may not ask"
        assert call is None or call.server == name, f"{question} belongs to another server than {call}"
        assert question.seen_by in (None, client), f"{question} is put to a second client"
        users = {each.who.principal for each in self.calls.values() if each.at is question.at}
        assert users <= {client.principal}, f"{question} is put to another user"
        under_way = {each.who for each in self.calls.values() if each.at is question.at and not _is_settled(each)}
        assert under_way <= {client} or question.seen_by is client or question.call is not None, (
            f"{question} may be another client's"
        )
        question.seen_by = client

    def _nothing_is_lost(self) -> None:
        """After a rest, whoever was answered knows; and so does whoever cannot be answered any more."""
        now = self._loop.time()
        for call in self.calls.values():
            if call.is_over or call.is_cancelled or call.who not in self.clients or call.asked is not None:
                continue
            is_settled = _is_settled(call)
            assert not (is_settled and call.replies), f"{call} was answered, and its client does not know"
            # One that was answered with a question may wait for the next start.
            is_lost = call.at in self.crashed and not is_settled
            assert not is_lost, f"{call} is lost with its server, and its client does not know"
            is_late = bool(call.sent) and not call.was_asked and now > call.heard + TIMEOUT + SOON
            assert not is_late, f"{call} has timed out, and its client does not know"
        for server in self._alive():
            told = {each["requestId"] for each in server.told("notifications/cancelled")}
            for message in server.open_calls():
                call = self.calls[message["params"]["arguments"]["a"]]
                if (call.is_cancelled or call.is_over) and message is call.sent[-1]:
                    assert message["id"] in told, f"{call} is over, and its server does not know"

    async def _finish(self) -> None:
        """Everybody answers what is open; then time runs out for the rest, and nothing is left."""
        self.gateway.next_start.clear()
        for _ in range(6):
            await asyncio.sleep(SOON)
            self.observe()
            self._nothing_is_lost()
            for number in range(len(self._at_servers())):
                await self._do_reply(0, number)
            for _ in range(len(self.questions)):
                await self._do_answer(0, 1)
        await asyncio.sleep(MUCH_LATER)
        self.observe()
        for call in self.calls.values():
            is_awaited = call.who in self.clients and not call.is_cancelled and call.asked is None
            assert call.is_over or not is_awaited, f"{call} has no answer"
        assert self.workbench.is_clean(), "something is kept for calls that are over"
        for client in self.clients:
            client.session.leave()


def _is_in_use(server: FakeServer) -> bool:
    return not server.connection.is_retired


def _session(client: Client) -> object:
    """Modern clients without a session cannot be told apart."""
    return client if client.era == "legacy" or client.lasts else client.principal


def _is_settled(call: Call) -> bool:
    """Whether its server works on it no longer, as far as anybody can know."""
    return call.at is not None and call.sent[-1]["id"] in call.at._answered


def _next_id(client: Client) -> int:
    # `count` tells where it is only in its text.
    return int(re.findall(r"\d+", repr(client._ids))[0])


def _answer(token: str) -> Json:
    return {"action": "accept", "content": {"name": token}}


def _tokens(message: Any) -> set[str]:
    return {each for each in TOKEN.findall(str(message)) if each != "c0"}


def _token(message: Json) -> str:
    """The only token of a question or an answer."""
    (only,) = {each for each in _tokens(message) if each[0] == "q"}
    return only


WEIGHTS = {
    "call": 32, "reply": 18, "ask": 12, "answer": 10, "wait": 14, "rest": 4, "cancel": 6, "crash": 2, "progress": 4,
    "withdraw": 2, "steal": 4, "leave": 2, "join": 3, "slow_start": 3, "change_list": 2, "configure": 3,
}  # fmt: skip


def script_of(seed: int, steps: int) -> list[Step]:
    chance = random.Random(seed)
    actions = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=steps)
    return [(action, chance.randrange(1 << 16), chance.randrange(1 << 16)) for action in actions]
