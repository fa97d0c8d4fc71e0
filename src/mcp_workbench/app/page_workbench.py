"""What the page shows of the gateways of this process, and does with them (`seeing.page.shown_workbench`).

Our own user sees all servers and calls. Another principal sees what its face shows, its own connections and calls, and
no output, controls, approvals or audit of others. Loaded with the first request for the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import MsgspecError, Raw
from msgspec.json import decode, encode
from msgspec.json import format as json_format

from mcp_workbench.app.gateway import Gateway
from mcp_workbench.app.page_client import PageClient
from mcp_workbench.app.page_hosts import can_be_listed, refused_hosts
from mcp_workbench.app.runtime import Runtime
from mcp_workbench.app.saved_tokens import SavedTokens, fullest
from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.offer import SINGULAR
from mcp_workbench.engine.config.page_settings import CAPTURES, Capture
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.server_status import (
    SIGN_IN_NEEDED,
    configured_sandbox,
    failure_of,
    state_of,
    unused_state,
)
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS, OWN_USER, Caller
from mcp_workbench.engine.economy.costs import definition_tokens
from mcp_workbench.engine.economy.tokens import tokens
from mcp_workbench.engine.face.base import Face
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.observe.call_figures import BUCKET_BOUNDS, ServerTotals
from mcp_workbench.engine.observe.call_record import CallRecord
from mcp_workbench.engine.observe.ended_calls import EndedCalls
from mcp_workbench.engine.printable import one_line
from mcp_workbench.engine.session.client_name import client_names
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL, AnyPassage
from mcp_workbench.engine.transport.http.server.authentication import DEFAULT_PRINCIPAL
from mcp_workbench.engine.version import full_version
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.seeing.page.shown_workbench import Json, LogPlace, Unavailable
from mcp_workbench.seeing.page.sign_in import PageUser
from mcp_workbench.signin.flow_io import SignInFailed

if TYPE_CHECKING:
    from mcp_workbench.team.policy.approval import WaitingCall
    from mcp_workbench.team.policy.shared_approvals import CallElsewhere

# The lines of a server that has failed, and of a server that is looked at.
MAX_FAILURE_LINES: Final = 20
MAX_SHOWN_LOG_LINES: Final = 200
# Of a call that waits for approval, unasked: the state is sent again whenever something changes.
MAX_SHOWN_CALL: Final = 16 * 1024
# Stopping a server is bounded by its sequence of signals; this is somewhat more.
PAGE_STOP_TIMEOUT: Final = 10.0
CALL_TIMEOUT: Final = 600.0
SIGN_IN_TIMEOUT: Final = 30.0
APPROVAL_HOUR: Final = 3600.0
MEMORY_STEP: Final = 1024 * 1024
# A longer audit takes seconds to verify, and is not verified for a page.
MAX_VERIFIED_BYTES: Final = 64 * 1024 * 1024
_KIND_NAMES: Final = {"tools": "tool", "prompts": "prompt", "resources": "resource", "resourceTemplates": "template"}
# The files of skills are resources.
_SHOWN_KINDS: Final = tuple(_KIND_NAMES)
NOT_WAITING: Final = "no call waits under this id: it has expired, or its client has answered"
NOT_YOURS: Final = "only the user who runs the workbench may do that"
OWN_LINES: Final = "you see your own lines; whoever runs the workbench can verify all of them"
NOT_A_PERSON: Final = (
    "this page was opened by a process that cannot be told from a server's (it runs with no_new_privs), and servers "
    "must not approve"
)
# Clients have it in their files, where servers may read it.
NOT_BY_TOKEN: Final = (
    "whoever has the token sees everything and decides nothing; run `mcp-workbench page` where the workbench runs"
)
CHANGE_NOT_IN_FORCE: Final = "the configuration has changed, but the change has not taken effect"
REJECTED_ADVICE: Final = "what was in force before still is; correct the file, and it takes effect when you save it"
LOCK_ADVICE: Final = "`mcp-workbench team lock` creates the lock file; review it before you commit it"
# What to do about a server in this state, if its error does not say.
_NEXT: Final = {
    "failed": "look at its last lines, then restart it",
    "backoff": "it is started again by the next call; look at its last lines",
    SIGN_IN_NEEDED: "sign in",
}


class _Place(NamedTuple):
    """One server, with all of its copies."""

    entries: list[ServerEntry]
    connections: list[Connection]


class _Noticed:
    """Finds the id of the call that a client makes (`CallListener`)."""

    def __init__(self, client: PageClient) -> None:
        self._client = client
        self.id: int | None = None

    def begun(self, call: CallRecord) -> None:
        if call.peer == PageClient.peer and call.session == self._client.session and call.server:
            self.id = call.id

    def changed(self, call: CallRecord) -> None:
        """It has begun before."""

    def ended(self, call: CallRecord) -> None:
        # A call that was refused at once has not begun.
        self.begun(call)


class WorkbenchOnPage:
    def __init__(
        self,
        runtime: Runtime,
        gateways: Callable[[], list[Gateway]],
        *,
        address: str | None = None,
        connect: Callable[[], list[Json]] = list,
    ) -> None:
        """`connect`: how to connect each client, which other programs' files decide."""
        self._runtime = runtime
        self._gateways = gateways
        self._address = address
        self._connect = connect
        # From now on at the latest, and until the process ends: figures that begin anew with each look say little.
        self._figures = runtime.count_calls()
        # The wall clock at zero of the loop's, read once: times must not differ between two looks.
        self._epoch = time.time() - asyncio.get_running_loop().time()
        # By catalogue: its revision, and the tokens of its definitions.
        self._tokens = SavedTokens()
        # As last measured, in bytes, rounded: small changes are no news.
        self._memory: dict[tuple[str, str], int] = {}

    @property
    def capture(self) -> Capture:
        """The least that any of the configurations allows."""
        return min((each.config.page_in_force.capture for each in self._gateways()), key=CAPTURES.index, default="none")

    def redact(self, text: str) -> str:
        return self._runtime.redactor.text(text)

    def collect(self, collector: EndedCalls) -> Callable[[], None]:
        return self._figures.collect(collector)

    def running(self) -> list[AnyPassage]:
        return self._figures.running_passages()

    def measure(self) -> None:
        _ = self._runtime.start_task(self._measure())

    async def _measure(self) -> None:
        from mcp_workbench.engine.observe.process_memory import memory_of

        groups: dict[tuple[str, str], list[int]] = {}
        for each in self._runtime.pool.connections():
            pid = None if each.run is None else each.run.process_id
            if pid is not None:
                groups.setdefault((each.entry.toolbox, each.config.name), []).append(pid)
        sizes = await aside(partial(memory_of, [pid for pids in groups.values() for pid in pids]))
        found = {place: sum(sizes.get(pid, 0) for pid in pids) for place, pids in groups.items()}
        self._memory = {place: size // MEMORY_STEP * MEMORY_STEP for place, size in found.items() if size}
        for place, size in found.items():
            if size:
                self._figures.note_memory(*place, size)

    # ── what is there ──

    def state(self, user: PageUser) -> Json:
        gateways = self._gateways()
        totals = self._figures.totals()
        by_server = totals.by_server()
        places = self._places(user)
        servers = [self._row(user, place, found, by_server.get(place)) for place, found in places.items()]
        # The machine is no business of other users.
        is_owner = user.is_owner
        return {
            "now": time.time(),
            "since": totals.since,
            "workbench": {
                "version": full_version(),
                "pid": os.getpid() if is_owner else None,
                "config": ", ".join(dict.fromkeys(each.config.path for each in gateways)) if is_owner else None,
                "face": ", ".join(dict.fromkeys(each.face.name for each in gateways)),
                "address": self._address,
                "uptimeSeconds": round(asyncio.get_running_loop().time() - self._runtime.started_at),
            },
            "servers": servers,
            "toolboxes": self._toolboxes(user),
            "waiting": [
                *self._approvals(user),
                *self._notices(user),
                *self._troubles(user, places),
                *self._definitions(user, places),
            ],
            "capture": self.capture,
            "groups": sorted(getattr(user.identity, "groups", ())),
        }

    def _catalogs(self, user: PageUser) -> list[Catalog]:
        """What this user is shown."""
        if not user.is_owner:
            return [_face(each, user).catalog for each in self._gateways()]
        return [face.catalog for each in self._gateways() for face in each.gate.whole_faces()]

    def _places(self, user: PageUser) -> dict[tuple[str, str], _Place]:
        found: dict[tuple[str, str], _Place] = {}
        for catalog in self._catalogs(user):
            for entry in catalog.entries():
                found.setdefault((entry.toolbox, entry.name), _Place([], [])).entries.append(entry)
        for connection in self._runtime.pool.connections():
            place = found.get((connection.entry.toolbox, connection.config.name))
            if place is not None and (user.is_owner or connection.is_seen_by(user.principal)):
                place.connections.append(connection)
        return found

    def _row(self, user: PageUser, place: tuple[str, str], found: _Place, totals: ServerTotals | None) -> Json:
        state, why, advice = self._condition(user, found)
        times = totals.durations if totals is not None and totals.durations.total else None
        up = [each.started_at for each in found.connections if each.state.value == "ready"]
        row = {
            "toolbox": place[0],
            "server": place[1],
            "state": state,
            "why": why,
            "next": advice,
            "copies": [self._copy(each) for each in found.connections],
            "calls": 0 if totals is None else totals.calls,
            "errors": 0 if totals is None else totals.errors,
            # Of these, those that we refused, so that the server has not seen them.
            "denied": 0 if totals is None else totals.refused,
            "running": 0 if totals is None else totals.running + totals.waiting,
            "p50": None if times is None else times.quantile(0.5),
            "p95": None if times is None else times.quantile(0.95),
            "memory": self._memory.get(place),
            "starts": sum(each.starts for each in found.connections),
            "since": round(self._epoch + min(up), 1) if up else None,
            "profile": _profile(found),
            "refused": self._refused(user, found),
        }
        if not user.is_owner:
            # These are of all users, and so are the clients of a server that they share.
            row |= dict.fromkeys(("calls", "errors", "denied", "running", "p50", "p95", "memory"))
            row["copies"] = [
                self._copy(each) | {"client": "", "folder": None, "pid": None} for each in found.connections
            ]
        return row

    def _condition(self, user: PageUser, found: _Place) -> tuple[str, str, str | None]:
        """Its state, why it is in it, and what to do. Of several copies, one that cannot be used counts."""
        state, why, advice = self._whole_condition(found)
        # Further lines quote what a process wrote, perhaps another user's.
        return state, why if user.is_owner else why.partition("\n")[0], advice

    def _whole_condition(self, found: _Place) -> tuple[str, str, str | None]:
        states = [(state_of(each), each) for each in found.connections]
        for name in (SIGN_IN_NEEDED, "failed", "backoff"):
            for state, each in states:
                if state == name:
                    error = failure_of(each)
                    text = "" if error is None else self.redact(error.message)
                    return state, text, (None if error is None else error.hint) or _NEXT[name]
        if states:
            order = ("ready", "starting")
            return (
                min((state for state, _ in states), key=lambda each: order.index(each) if each in order else 2),
                "",
                None,
            )
        entry = found.entries[0]
        trouble = entry.trouble
        text = "" if trouble is None else self.redact(entry.trouble_for_all or "")
        is_failed = unused_state(entry) is State.FAILED
        return "failed" if is_failed else "unused", text, None if trouble is None else trouble.hint

    def _refused(self, user: PageUser, found: _Place) -> Json | None:
        return refused_hosts(found.entries[0].config, found.connections) if user.is_owner else None

    def _copy(self, each: Connection) -> Json:
        return {
            "user": LOCAL_PRINCIPAL if each.principal in OWN_PRINCIPALS else each.principal,
            "client": ", ".join(client_names(each.traffic.clients.sessions())),
            "folder": each.entry.context.folder,
            "state": state_of(each),
            "pid": None if each.run is None else each.run.process_id,
        }

    def _toolboxes(self, user: PageUser) -> list[Json]:
        found: dict[str, Json] = {}
        # Saved for all users.
        saved = self._figures.saved if user.is_owner else {}
        described = {name: box.description for each in self._gateways() for name, box in each.config.toolboxes.items()}
        for name, catalog in fullest(self._catalogs(user)).items():
            # None: no server of it has been listed.
            servers = catalog.toolboxes[name].values()
            listed = [entry for entry in servers if entry.offer is not None]
            found[name] = {
                "name": name,
                "description": described.get(name) or "",
                "tools": sum(len(entry.tools) for entry in listed) if listed else None,
                "tokens": self._tokens.of_toolboxes(catalog)[name] if listed else None,
                "unlisted": len(servers) - len(listed),
                "saved": saved.get(name),
            }
        return list(found.values())

    # ── what waits for a person ──

    def _approvals(self, user: PageUser) -> Iterable[Json]:
        for call, place, client, until in self._waiting_calls(user):
            is_short = call.whole is not None and len(call.whole) <= MAX_SHOWN_CALL
            yield {
                "kind": "approval",
                "id": call.id,
                **place,
                "arguments": _as_sent(call.whole) if call.whole is not None and is_short else call.arguments,
                # What `arguments` leaves out: nothing, what is told on request, or what was too large to be kept.
                "rest": "" if is_short else "kept" if call.whole is not None else "lost",
                "principal": call.principal or LOCAL_PRINCIPAL,
                "client": _client(client),
                "at": call.at,
                "rule": call.rule,
                "expires": round(until, 1),
            }

    def _waiting_calls(
        self, user: PageUser
    ) -> Iterable[tuple[WaitingCall | CallElsewhere, dict[str, str], bytes, float]]:
        """Each with its place, its client, and until when it waits by the wall clock."""
        if not user.is_owner:
            return
        for gateway in self._gateways():
            access = gateway.gate.access
            for each in () if access is None else access.approvals.waiting_calls():
                request, until = each.request, each.at + each.expires - each.began
                if request is None:
                    yield each, _place_of("", "", each.place), b"", until
                else:
                    yield each, _place_of(request.toolbox, request.server, request.item), request.client, until
            shared = gateway.gate.shared_approvals
            for call in () if shared is None else shared.calls():
                yield call, _place_of(call.toolbox, call.server, call.item), call.client, call.until

    def approval(self, user: PageUser, id: str) -> Json:
        self._owner_only(user)
        for call, *_ in self._waiting_calls(user):
            if call.id == id and call.whole is not None:
                return {"arguments": _as_sent(call.whole)}
        raise Unavailable(404, NOT_WAITING)

    def _troubles(self, user: PageUser, places: dict[tuple[str, str], _Place]) -> Iterable[Json]:
        for (toolbox, server), found in places.items():
            state, why, advice = self._condition(user, found)
            where = {"toolbox": toolbox, "server": server, "why": why}
            if state == SIGN_IN_NEEDED:
                yield {"kind": "sign_in", **where}
            elif state in ("failed", "backoff"):
                lines = self._lines(found, MAX_FAILURE_LINES) if user.is_owner else []
                yield {"kind": "crashed", **where, "next": advice, "lines": lines}
            refused = self._refused(user, found)
            if refused is not None and any(each["decision"] == "" for each in refused["hosts"]):
                yield {"kind": "hosts", **where, **refused}

    def _notices(self, user: PageUser) -> Iterable[Json]:
        """What `status` says of configurations, their locks and the cluster's state. `server`: what it is about."""
        if not user.is_owner:
            return
        found: dict[tuple[str, str], Json] = {}
        for gateway in self._gateways():
            # Clients in several folders share a configuration, and each has a gateway.
            path = gateway.config.path
            if (rejected := gateway.reloads.rejected) is not None:
                lines = self.redact(rejected).splitlines()
                found[path, "Not in force"] = {"why": CHANGE_NOT_IN_FORCE, "lines": lines, "next": REJECTED_ADVICE}
            if gateway.gate.oversight is not None and (problem := gateway.gate.oversight.problem) is not None:
                found[path, "No lock"] = {"why": problem, "next": LOCK_ADVICE}
        state = self._runtime.owner.state.health()
        if state is not None and state.problem is not None:
            advice = f"calls go on; {state.waiting} values wait to be written"
            found[state.address, "State away"] = {"why": state.problem, "next": advice}
        for (place, what), each in found.items():
            yield {"kind": "notice", "server": place, "id": what, "what": what, **each}

    def _definitions(self, user: PageUser, places: dict[tuple[str, str], _Place]) -> Iterable[Json]:
        """Without what differs, which is read from the disk when it is looked at (`lock_changes`)."""
        if not user.is_owner:
            return
        oversights = [each.gate.oversight for each in self._gateways() if each.gate.oversight is not None]
        for (toolbox, server), found in places.items():
            # Those that are withheld, and those that a lock only warns of.
            reasons: dict[tuple[str, str], str] = {}
            for entry in found.entries:
                for oversight in oversights:
                    reasons |= oversight.differences(entry)
                for kind, items in entry.withheld.items():
                    reasons |= {(kind, name): f"{reason}, and withheld" for name, reason in items.items()}
            for (kind, name), reason in reasons.items():
                yield {
                    "kind": "definition",
                    "toolbox": toolbox,
                    "server": server,
                    "item": name,
                    "what": f"{SINGULAR.get(kind, kind)}: {reason}",
                    "before": None,
                    "after": None,
                }

    async def decide(self, user: PageUser, id: str, decision: str) -> Json:
        from mcp_workbench.team.policy.approval_socket import ApprovalRequest

        self._deciders_only(user)
        if decision not in ("once", "hour", "deny"):
            raise Unavailable(400, "`decision` must be once, hour or deny")
        wanted = ApprovalRequest(id, APPROVAL_HOUR if decision == "hour" else None, denies=decision == "deny")
        for gateway in self._gateways():
            reply = gateway.decide(wanted, user.name, "page")
            shared = gateway.gate.shared_approvals
            if shared is not None and reply.found is None and reply.decided is None:
                reply = await shared.decide(wanted, user.name, "page")
            if reply.problem is not None:
                raise Unavailable(503, reply.problem)
            if reply.found is not None:
                return {"decided": decision, "call": reply.found}
            if reply.decided is not None:
                by = reply.decided.partition(" by ")[2]
                raise Unavailable(409, f"this call has been {reply.decided} already", by=by)
        raise Unavailable(404, NOT_WAITING)

    # ── servers ──

    def log_lines(self) -> dict[LogPlace, list[str]]:
        return {
            (each.entry.toolbox, each.config.name, id(each)): each.run.last_lines(MAX_SHOWN_LOG_LINES)
            for each in self._runtime.pool.connections()
            if each.run is not None
        }

    def _lines(self, found: _Place, count: int) -> list[str]:
        runs = (each.run for each in found.connections)
        return [self.redact(line) for run in runs if run is not None for line in run.last_lines(count)]

    def _find(self, user: PageUser, toolbox: str, server: str) -> _Place:
        place = self._places(user).get((toolbox, server))
        if place is None:
            raise Unavailable(404, "there is no such server")
        return place

    def server(self, user: PageUser, toolbox: str, server: str) -> Json:
        place = self._find(user, toolbox, server)
        totals = self._figures.totals().by_server().get((toolbox, server)) if user.is_owner else None
        found = self._row(user, (toolbox, server), place, totals)
        if not user.is_owner:
            # Figures are of all users.
            return {**found, "log": [], "histogram": None, "dayTimes": None, "day": None}
        counts = None if totals is None else totals.durations.counts
        times = self._figures.day_durations(toolbox, server)
        return {
            **found,
            "log": self._lines(place, MAX_SHOWN_LOG_LINES),
            "histogram": {"bounds": list(BUCKET_BOUNDS), "counts": counts or [0] * (len(BUCKET_BOUNDS) + 1)},
            "dayTimes": {"p50": times.quantile(0.5), "p95": times.quantile(0.95)},
            "day": [
                {"at": each.at, "calls": each.calls, "errors": each.errors, "memory": each.memory}
                for each in self._figures.day(toolbox, server)
            ],
        }

    async def act_on_server(self, user: PageUser, toolbox: str, server: str, do: str) -> Json:
        self._owner_only(user)
        if do not in ("start", "stop", "restart"):
            raise Unavailable(400, "`do` must be start, stop or restart")
        place = self._find(user, toolbox, server)
        if do == "start" and not place.connections:
            entry = next((each for each in place.entries if not each.context.principal), place.entries[0])
            place.connections.append(self._runtime.pool.connection(entry, Caller(OWN_USER, "legacy")))
        if do != "start":
            for each in place.connections:
                each.request_stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAGE_STOP_TIMEOUT):
                    await asyncio.gather(*(each.wait_stopped() for each in place.connections))
        if do != "stop":
            for each in place.connections:
                _ = self._runtime.start_task(_start(each))
        return {"copies": len(place.connections)}

    def decide_host(self, user: PageUser, toolbox: str, server: str, host: str, decision: str) -> Json:
        self._deciders_only(user)
        if decision not in ("allow", "refuse"):
            raise Unavailable(400, "`decision` must be allow or refuse")
        asking = [each for each in self._find(user, toolbox, server).connections if host in each.refused_hosts]
        if not asking:
            raise Unavailable(404, "its sandbox has not refused this host")
        if not can_be_listed(host):
            raise Unavailable(400, "this is not the name of a host, and cannot be allowed")
        # Each of them once: copies of a server may have it in common.
        for entry in {id(each.entry): each.entry for each in asking}.values():
            entry.host_decisions[host] = decision == "allow"
            self._runtime.record(
                entry, "egress", toolbox=toolbox, server=server, item=host, peer="page", by=user.name,
                decision="passed" if decision == "allow" else "denied",
                reason=f"{decision}ed by {user.name} until the workbench ends",
            )  # fmt: skip
        return {"host": host, "decision": decision}

    async def sign_in(self, user: PageUser, toolbox: str, server: str) -> Json:
        self._find(user, toolbox, server)
        principal = OWN_USER if user.is_owner else user.principal
        for gateway in self._gateways():
            entry = gateway.gate.whole_face_of(principal).catalog.toolboxes.get(toolbox, {}).get(server)
            if entry is None:
                continue
            try:
                async with asyncio.timeout(SIGN_IN_TIMEOUT):
                    begun = await gateway.sign_ins().begin_sign_in(entry, principal)
                    await asyncio.shield(begun.page)
            except (SignInFailed, WorkbenchError) as error:
                raise Unavailable(502, self.redact(str(error))) from None
            except TimeoutError:
                raise Unavailable(504, "the authorization server does not answer") from None
            return {"url": begun.url}
        raise Unavailable(404, "there is no such server")

    # ── tools ──

    async def load(self, user: PageUser) -> None:
        for gateway in self._gateways():
            own = gateway.face if user.is_owner else gateway.gate.whole_face_of(user.principal)
            await gateway.lists.load(own.catalog.entries())

    async def tools(self, user: PageUser) -> list[Json]:
        await self.load(user)
        found: dict[tuple[str, str, str, str], Json] = {}
        for catalog in self._catalogs(user):
            for entry in catalog.entries():
                for kind in _SHOWN_KINDS:
                    for name, definition in entry.definitions(kind).items():
                        place = (entry.toolbox, entry.name, kind, name)
                        if place not in found:
                            found[place] = _item(entry, kind, name, definition)
        return list(found.values())

    async def call(self, user: PageUser, wanted: Json) -> Json:
        kind, toolbox, server = wanted.get("kind"), wanted.get("toolbox"), wanted.get("server")
        name = wanted.get("uri") if kind in ("resource", "template") else wanted.get("name")
        arguments = wanted.get("arguments") or {}
        if not isinstance(kind, str) or kind not in _KIND_NAMES.values() or not isinstance(arguments, dict):
            raise Unavailable(400, "`kind` must be tool, prompt, resource or template, and `arguments` an object")
        if not isinstance(toolbox, str) or not isinstance(server, str) or not isinstance(name, str):
            raise Unavailable(400, "`toolbox`, `server` and `name` (or `uri`) must be strings")
        for gateway in self._gateways():
            face = _face(gateway, user)
            entry = face.catalog.toolboxes.get(toolbox, {}).get(server)
            if entry is None:
                continue
            if kind == "tool" and _is_destructive(entry.tools.get(name)) and wanted.get("confirmed") is not True:
                raise Unavailable(428, f"`{name}` says of itself that it may destroy something", confirm=True)
            client = PageClient(gateway, user.principal, user.identity)
            return await self._called(client, kind, toolbox, server, name, arguments)
        raise Unavailable(404, "there is no such server")

    async def _called(
        self, client: PageClient, kind: str, toolbox: str, server: str, name: str, arguments: Json
    ) -> Json:
        began = time.monotonic()
        noticed = _Noticed(client)
        unsubscribe = self._figures.subscribe(noticed)
        answer: Json
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                answer = {"result": await client.use(kind, toolbox, server, name, arguments)}
        except RemoteError as error:
            answer = {"error": error.error.message, "code": error.error.code}
        except TimeoutError:
            answer = {"error": f"there was no answer within {CALL_TIMEOUT:g} s"}
        finally:
            unsubscribe()
            client.close()
        return {"id": noticed.id, **answer, "seconds": round(time.monotonic() - began, 6)}

    async def tokens(self, user: PageUser) -> Json:
        await self.load(user)
        # None: no server of it has been listed, so nothing is known of it.
        boxes: dict[str, int | None] = {}
        unlisted = 0
        for name, catalog in fullest(self._catalogs(user)).items():
            servers = catalog.toolboxes[name].values()
            missing = sum(entry.offer is None for entry in servers)
            unlisted += missing
            boxes[name] = self._tokens.of_toolboxes(catalog)[name] if missing < len(servers) else None
        gateway = self._gateways()[0] if self._gateways() else None
        shown = None
        faces = {face.catalog: face for face in (_face(each, user) for each in self._gateways())}
        opened = {
            name: _opened_tokens(faces[catalog], name)
            for name, catalog in fullest(faces).items()
            if boxes.get(name) is not None
        }
        if gateway is not None:
            face, view = _face(gateway, user), gateway.router.views.of_principal(user.principal)
            shown = sum(map(definition_tokens, face.definitions(view, "tools"))) + tokens(face.instructions(view))
        known = [each for each in boxes.values() if each is not None]
        full = sum(known) if known else None
        # These are of all users.
        saved = self._figures.saved if user.is_owner else {}
        over: dict[float, int] = {}
        for name in saved:
            for bucket in self._figures.day(name):
                over[bucket.at] = over.get(bucket.at, 0) + bucket.saved
        return {
            "face": None if gateway is None else gateway.face.name,
            "full": full,
            "shown": shown,
            "saved": None if shown is None or full is None else max(0, full - shown),
            "unlisted": unlisted,
            "perToolbox": [
                {"name": name, "full": each, "shown": opened.get(name), "saved": saved.get(name)}
                for name, each in boxes.items()
            ],
            "over": [{"at": at, "saved": each} for at, each in sorted(over.items())],
            "since": self._figures.since,
        }

    # ── the lock and the audit ──

    async def lock_changes(self, user: PageUser) -> Json:
        self._owner_only(user)
        from mcp_workbench.app.page_lock import changes

        found: list[Json] = []
        for gateway in self._gateways():
            if gateway.config.lock is not None:
                found += await aside(partial(changes, gateway.config.lock_target, gateway.catalog.entries()))
        return {"changes": found, "isLocked": any(each.config.lock is not None for each in self._gateways())}

    async def accept_lock(self, user: PageUser, toolbox: str, server: str, item: str, seen: str | None) -> Json:
        self._deciders_only(user)
        from mcp_workbench.app.page_lock import accept

        for gateway in self._gateways():
            entry = gateway.catalog.toolboxes.get(toolbox, {}).get(server)
            if gateway.config.lock is None or entry is None or entry.offer is None:
                continue
            accepted = await aside(partial(accept, gateway.config.lock_target, entry, item, seen))
            if not accepted:
                raise Unavailable(404, "this is as it was locked, or does not exist")
            for kind, name, how in accepted:
                gateway.gate.record(
                    "definition", toolbox=toolbox, server=server, item=name, decision="accepted", rule="lock",
                    reason=f"{kind}: {how}", by=user.name, peer="page",
                )  # fmt: skip
            return {"accepted": [name for _, name, _ in accepted]}
        raise Unavailable(404, "there is no such server, or it is not locked")

    async def audit(self, user: PageUser, query: str, before: list[int], limit: int) -> Json:
        from mcp_workbench.app.page_audit import read_audits

        found = [each.config.audit for each in self._gateways() if each.config.audit is not None]
        # The shared workbench has as many as its configurations name.
        files = list(dict.fromkeys(each.file for each in found if each.file is not None))
        if not files:
            where = (
                "it is written elsewhere (`syslog` or `stdout`)"
                if found
                else "there is no `audit` in the configuration"
            )
            return {"lines": [], "verified": None, "why": where, "more": False}
        principal = None if user.is_owner else user.principal
        try:
            read = await aside(partial(read_audits, files, query, before, limit, principal, MAX_VERIFIED_BYTES))
            # Of the files, others are told nothing.
            return read if user.is_owner else {**read, "why": OWN_LINES}
        except OSError as error:
            raise Unavailable(500, f"the audit cannot be read: {error.strerror}") from None

    async def connect(self, user: PageUser) -> list[Json]:
        endpoints = [each.address for each in self._gateways() if (each.address or "").startswith("http")]
        # The others start a workbench on this machine.
        return [*map(_over_http, endpoints), *(await aside(self._connect) if user.is_owner else ())]

    def _deciders_only(self, user: PageUser) -> None:
        self._owner_only(user)
        if not user.may_decide:
            raise Unavailable(403, NOT_BY_TOKEN if user.principal == DEFAULT_PRINCIPAL else NOT_A_PERSON)

    def _owner_only(self, user: PageUser) -> None:
        if not user.is_owner:
            raise Unavailable(403, NOT_YOURS)


def _face(gateway: Gateway, user: PageUser) -> Face:
    return gateway.gate.face_by_identity(user.principal, user.identity)


def _over_http(address: str | None) -> Json:
    """How any client connects to this endpoint."""
    entry = {"type": "http", "url": address, "headers": {"Authorization": "Bearer <your key or token>"}}
    text = json_format(encode({"mcpServers": {"workbench": entry}})).decode()
    return {"client": "http", "title": "Any client, over HTTP", "how": "http", "text": text}


def _opened_tokens(face: Face, toolbox: str) -> int | None:
    """What opening a toolbox puts into a conversation; None if this face opens none."""
    from mcp_workbench.engine.face.open_request import OpenRequest
    from mcp_workbench.engine.face.opening import opened_result

    if face.tool_index is None:
        return None
    answer = decode(opened_result(face.catalog, face.tool_index, OpenRequest(toolbox), {}, []))
    return tokens(answer["content"][0]["text"])


async def _start(connection: Connection) -> None:
    # Why it failed is shown with its state.
    with contextlib.suppress(WorkbenchError):
        await connection.ensure_ready(asked=True)


def _item(entry: ServerEntry, kind: str, name: str, definition: Raw) -> Json:
    try:
        members: Any = decode(definition)
    except (MsgspecError, RecursionError):
        members = {}
    members = members if isinstance(members, dict) else {}
    found = {
        "kind": _KIND_NAMES[kind],
        "toolbox": entry.toolbox,
        "server": entry.name,
        "name": members.get("name", name) if kind.startswith("resource") else name,
        "title": members.get("title"),
        "description": members.get("description"),
        "tokens": definition_tokens(definition),
        "state": "ok",
    }
    for key in ("inputSchema", "arguments", "uri", "annotations"):
        if key in members:
            found[key] = members[key]
    if "uriTemplate" in members:
        found["uri"] = members["uriTemplate"]
    return found


def _is_destructive(definition: Raw | None) -> bool:
    if definition is None:
        return False
    try:
        annotations = decode(definition).get("annotations")
    except (MsgspecError, RecursionError, AttributeError):
        return True
    return isinstance(annotations, dict) and annotations.get("destructiveHint") is True


def _client(info: bytes) -> str:
    from mcp_workbench.engine.session.client_name import client_name

    return client_name(info) or ""


def _place_of(toolbox: str, server: str, tool: str) -> dict[str, str]:
    return {"toolbox": toolbox, "server": server, "tool": tool}


def _as_sent(call: bytes) -> str:
    """As it will be sent, with nothing that a browser would hide."""
    return one_line(call.decode(errors="backslashreplace"))


def _profile(found: _Place) -> str | None:
    """The sandbox of a server, with what this machine cannot enforce; None for addresses."""
    running = (each.sandbox for each in found.connections if each.sandbox is not None)
    sandbox = next(running, None) or configured_sandbox(found.entries[0])
    if sandbox is None:
        return None
    missing = sandbox.get("missing")
    return (
        f"{sandbox['profile']} (missing: {', '.join(missing)})"
        if isinstance(missing, list) and missing
        else str(sandbox["profile"])
    )
