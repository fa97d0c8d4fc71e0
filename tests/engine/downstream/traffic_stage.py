"""A traffic with an owner, a link and calls that note what they are told."""

from __future__ import annotations

import json
from typing import Any, cast

from msgspec import Raw

from mcp_workbench.engine.downstream.clients import ClientPeer
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.downstream.traffic import Traffic
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.engine.protocol.meta import ClientIdentity
from mcp_workbench.engine.protocol.revisions import Revision, newest
from mcp_workbench.errors import DownstreamError, WorkbenchError
from tests.support.parts import joined

LEGACY, MODERN = newest("legacy"), newest("modern")
INFO = Raw(b'{"name":"server","version":"3"}')
Json = dict[str, Any]


class Owner:
    """Notes what concerns the connection."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []
        self.tasks_have_subscribers = True
        self.secret = ""

    def conceal(self, text: str) -> str:
        return text.replace(self.secret, "***") if self.secret else text

    def on_link_closed(self, traffic: Traffic, reason: str) -> None:
        self.heard.append(("closed", reason))

    def on_trouble(self, error: DownstreamError) -> None:
        self.heard.append(("trouble", error.message))

    def on_list_changed(self, kind: str) -> None:
        self.heard.append(("list", kind))

    def on_resource_updated(self, params: Raw) -> None:
        self.heard.append(("resource", bytes(params)))

    def on_acknowledged(self, params: Raw | None) -> None:
        self.heard.append(("acknowledged", params))

    def on_task_changed(self, params: Raw) -> bool:
        self.heard.append(("task", bytes(params)))
        return self.tasks_have_subscribers

    def on_asked(self) -> None:
        self.heard.append(("asked", None))


class Link:
    """A descriptor."""

    unsent_bytes = 0

    def __init__(self) -> None:
        self.sent: list[Json] = []
        self.bytes = 0

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        text = joined(parts)
        self.bytes += len(text)
        self.sent.append(json.loads(text))

    def take(self) -> list[Json]:
        sent, self.sent = self.sent, []
        return sent


class HttpLink(Link):
    """One that is told what a call is."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, str, str | None]] = []

    def send_call(self, message: bytes, id: int, tool: str, version: str | None) -> None:
        self.calls.append((id, tool, version))
        self.send(message)


class Call:
    """A client's request; its client is itself."""

    def __init__(self, token: bytes | None = None, number: int = 1) -> None:
        self.caller = Caller("", "legacy", client=number, capabilities=b'{"roots":{}}')
        self.progress_token = None if token is None else Raw(token)
        self.log_level: str | None = None
        self.ends: list[tuple[str, object]] = []
        self.progress: list[bytes] = []
        self.told: list[tuple[str, object]] = []
        self.reminded = 0
        self.fault: Exception | None = None

    @property
    def client(self) -> ClientPeer:
        return cast("ClientPeer", self)

    def can_be_asked(self, method: str) -> bool:
        return True

    def note_question(self, is_open: bool) -> None: ...

    def send_again(self) -> None: ...

    def on_result(self, result: Raw) -> None:
        if self.fault is not None:
            raise self.fault
        self.ends.append(("result", json.loads(bytes(result))))

    def on_error(self, error: Raw) -> None:
        self.ends.append(("error", json.loads(bytes(error))))

    def on_failure(self, error: WorkbenchError) -> None:
        self.ends.append(("failure", error))

    def on_progress(self, params: Raw) -> None:
        self.progress.append(bytes(params))

    def keep_waiting(self) -> None:
        self.reminded += 1

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        self.told.append((method, id))
        return True

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        self.told.append(("cancel", id))

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        self.told.append((method, params))

    @property
    def failure(self) -> str:
        ((kind, error),) = self.ends
        assert kind == "failure" and isinstance(error, WorkbenchError)
        return error.message


class Stage:
    """A traffic with a link, and what goes over it."""

    def __init__(self, revision: Revision = LEGACY, link: Link | None = None, *, shares: bool = False) -> None:
        self.owner = Owner()
        self.traffic = Traffic("box/server", ClientIdentity(), self.owner)
        if shares:
            self.traffic.share_fairly()
        self.link = link or Link()
        self.traffic.attach(self.link)
        self.traffic.on_handshake(ServerProfile(revision.era, revision.name, server_info=INFO))
        self.received = 0

    def forward(
        self, call: Call, body: bytes = b'{"name":"work"', meta: bytes | None = None, seconds: float = 10
    ) -> int:
        return self.traffic.forward(
            call, TOOLS_CALL, "work", body, None if meta is None else Raw(meta), LEGACY, seconds
        )

    def say(self, message: Json | bytes, about: bytes | None = None) -> None:
        text = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.received += len(text)
        self.traffic.on_message(text, about)

    def end(self) -> None:
        """So that no timer is left."""
        self.traffic.end(DownstreamError("over"))


def make(revision: Revision = LEGACY, link: Link | None = None, *, shares: bool = False) -> Stage:
    return Stage(revision, link, shares=shares)
