"""A call with a session, a router and a server that write down what they are asked."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from msgspec import Raw

from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.face.decisions import Forward
from mcp_workbench.engine.protocol.revisions import newest
from mcp_workbench.engine.router.routed_call import Route
from mcp_workbench.engine.session.client_call import ClientCall
from mcp_workbench.engine.session.questions import BadQuestion
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


def parked(*, is_away: bool) -> Any:
    return SimpleNamespace(is_away=is_away, digest="digest of the first")
