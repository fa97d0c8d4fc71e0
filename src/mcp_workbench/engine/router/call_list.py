"""Makes several calls for one request: side by side, answered in order, an error in its place.

Each is a call of its own: it is resolved, checked, let through, recorded and cancelled as one. Owns how many of them
run at once, and how much of their results is held. Knows nothing about how a call is made.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.face.call_values import CallFailed, listed, value_of
from mcp_workbench.engine.face.decisions import CallEach
from mcp_workbench.engine.face.kept_results import Keeper, Origin
from mcp_workbench.engine.face.wording import with_notice, with_restart
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.engine.router.routed_call import InnerCall, RoutedCall, why_unhandled
from mcp_workbench.engine.steps import Subject

if TYPE_CHECKING:
    from mcp_workbench.engine.router.router import Router

# How many calls of one list are in flight. Servers that take longer than a moment are mostly bound by something else.
MAX_SIDE_BY_SIDE: Final = 8
# What the values of one list may take together; further ones are errors in their place.
MAX_LIST_BYTES: Final = 64 * 1024 * 1024
# Results larger than this are read in a thread, so that other calls need not wait.
LARGE_TO_READ: Final = 256 * 1024
_LIST_ENDED: Final = {"reason": Raw(b'"the request that this call was made for has ended"')}


async def make_call(router: Router, outer: RoutedCall, inner: InnerCall) -> None:
    """Make a call for another one, and wait for its end. Cancelled with the task that waits."""
    try:
        # Decisions are about the user who made the request, also if it had to wait.
        router.go_on(outer)
        router.call_tool(inner, inner.params)
        await inner.ended
    except RecursionError:
        _fail(inner, "the arguments are nested too deeply")
    except Exception as error:
        _fail(inner, why_unhandled(error))
    finally:
        if not inner.ended.done() or inner.ended.cancelled():
            inner.cancel(dict(_LIST_ENDED))


def _fail(inner: InnerCall, message: str) -> None:
    if not inner.ended.done():
        inner.cancel(dict(_LIST_ENDED))
        inner.ended.set_result(("error", encode({"code": -32603, "message": message})))


class _List:
    """The calls of one request."""

    def __init__(self, router: Router, call: RoutedCall, decision: CallEach) -> None:
        self._router = router
        self._call = call
        self._decision = decision
        at_once = router.gate.calls_at_once
        self._room = asyncio.Semaphore(min(MAX_SIDE_BY_SIDE, at_once()))
        # Of each server: calls that wait for one take no room of the others.
        self._rooms = {
            entry: asyncio.Semaphore(
                MAX_SIDE_BY_SIDE if entry is None else min(MAX_SIDE_BY_SIDE, at_once(entry.toolbox, entry.name))
            )
            for entry in decision.servers
        }
        self.values: list[bytes] = [b"null"] * len(decision.calls)
        self._failed: set[int] = set()
        self.origins: dict[int, Origin] = {}
        # An insertion-ordered set.
        self.restarted: dict[ServerEntry, None] = {}
        self._done = self._bytes = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(len(self.values)):
                group.create_task(self._make(number))

    async def _make(self, number: int) -> None:
        decision = self._decision
        async with self._rooms[decision.servers[number]], self._room:
            inner = self._call.inner({"name": Raw(decision.name), "arguments": decision.calls[number]})
            await make_call(self._router, self._call, inner)
            kind, payload = inner.ended.result()
            # Nothing else is held of a call: its result may be large.
            if inner.route.entry is not None:
                self.origins[number] = origin_of_call(inner)
            if inner.restarted is not None:
                self.restarted[inner.restarted] = None
            results = self._call.view.face.kept_results()
            assert results is not None
            keeper = results.keeper(self._call.view, origin_of_call(inner))
            if len(payload) > LARGE_TO_READ:
                value, failed = await asyncio.to_thread(self._value, inner, kind, payload, keeper)
            else:
                value, failed = self._value(inner, kind, payload, keeper)
            keeper.finish()
        self._bytes += len(value)
        if self._bytes > MAX_LIST_BYTES and not failed:
            text = f"the results of this list have more than {MAX_LIST_BYTES} bytes; the tool was called"
            value, failed = encode({"error": text}), True
        self.values[number] = value
        if failed:
            self._failed.add(number)
        self._done += 1
        self._call.report(self._done, len(self.values))

    def withhold_refused(self) -> None:
        """The client may have been asked something meanwhile, and away for minutes: what it may no longer call, it does
        not learn the result of."""
        view = self._call.view
        for number, (toolbox, server, tool) in self.origins.items() if view.gate.has_rules else ():
            subject = Subject(principal=view.principal, method="tools/call", toolbox=toolbox, server=server, item=tool)
            denial = view.gate.refuses(subject)
            if denial is not None and number not in self._failed:
                self.values[number] = encode({"error": f"[{toolbox}/{server}/{tool}] {denial.message}"})
                self._failed.add(number)

    @property
    def has_failed(self) -> bool:
        """Whether nothing came of any of them."""
        return len(self._failed) == len(self.values)

    def _value(self, inner: InnerCall, kind: str, payload: bytes, keeper: Keeper) -> tuple[bytes, bool]:
        where = "/".join(origin_of_call(inner)).strip("/")
        try:
            return encode(value_of(kind, payload, where, keeper, self._decision.select)), False
        except CallFailed as error:
            return encode({"error": str(error)}), True


def origin_of_call(inner: InnerCall) -> Origin:
    """Toolbox, server and tool; empty if it reached none."""
    entry = inner.route.entry
    return ("", "", "") if entry is None else (entry.toolbox, entry.name, inner.route.own_item)


async def call_each(router: Router, call: RoutedCall, decision: CallEach) -> bytes:
    """The result of a list of calls."""
    made = _List(router, call, decision)
    await made.run()
    made.withhold_refused()
    result: Raw | bytes = listed(made.values)
    results = call.view.face.kept_results()
    assert results is not None
    shortening = results.shortening(
        call.view, result, decision.result_budget, tuple(dict.fromkeys(made.origins.values()))
    )
    if shortening is not None:
        await asyncio.to_thread(shortening.work)
        result = shortening.finish()
    if made.has_failed:
        result = bytes(result)[:-1] + b',"isError":true}'
    for entry in made.restarted:
        result = with_restart(Raw(bytes(result)), entry)
    if call.view.changed:
        result = with_notice(Raw(bytes(result)), call.view.changed)
        call.view.changed.clear()
    return bytes(result)
