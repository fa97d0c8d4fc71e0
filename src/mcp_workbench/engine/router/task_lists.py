"""`tasks/list` of 2025-11-25 with several servers: one page combines a page of each server that lists its tasks.

Owns how pages are combined, and the combined cursor. The cursor contains the position at each server, so nothing is
kept here between pages.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.face.base import Params
from mcp_workbench.engine.face.tasks import Tasks, having_lists
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, encode
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.router.caller_connections import CallerConnections
from mcp_workbench.engine.router.lists import Lists
from mcp_workbench.engine.router.routed_call import RoutedCall
from mcp_workbench.errors import DownstreamError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.router.step_runner import StepRunner
    from mcp_workbench.engine.steps import Passage

METHOD: Final = "tasks/list"
# The time for one server's page, including its start: a server that hangs must not hold back the tasks of all others.
PAGE_PATIENCE: Final = 10.0
# The maximum number of tasks on one page of one server, because we record their ids. Servers can use more pages.
MOST_ON_PAGE: Final = 1000
# The member of a list's `_meta` with the servers whose tasks are missing, and why.
UNAVAILABLE_META: Final = "mcp-workbench/unavailable"
BAD_CURSOR: Final = "`cursor` was not given out here; list the tasks from the beginning"


class _Page(Struct):
    tasks: list[Raw]
    nextCursor: str | None = None


class _Position(Struct, frozen=True, array_like=True):
    """Where the list continues for one server."""

    toolbox: str
    server: str
    cursor: str | None = None


_decode_page: Final = Decoder(_Page).decode
_decode_positions: Final = Decoder(list[_Position]).decode
_decode_cursor: Final = Decoder(str | None).decode


class TaskLists:
    """Lists of the tasks of several servers."""

    def __init__(self, tasks: Tasks, lists: Lists, connections: CallerConnections, steps: StepRunner | None) -> None:
        self._tasks = tasks
        self._lists = lists
        self._connections = connections
        self._steps = steps

    async def answer(self, call: RoutedCall, params: Params, no_server: Callable[[], None]) -> None:
        """Answer with the next page of each server that has one. Call `no_server` if none lists its tasks."""
        await self._lists.load(call.view.face.needed(call.view, "prompts"))
        having = having_lists(call.view.face.entries(call.view))
        if not having:
            call.route.task = None
            no_server()
            return
        try:
            positions = _read_cursor(params, having)
        except (DecodeError, ValidationError, ValueError):
            call.finish_error(INVALID_PARAMS, BAD_CURSOR)
            return
        pages = await asyncio.gather(*(self._page(call, *position) for position in positions))
        call.route.task = None
        failures = [page for page in pages if isinstance(page, WorkbenchError)]
        if failures and len(failures) == len(pages):
            _fail(call, [entry for entry, _ in positions], failures)
            return
        tasks: list[bytes] = []
        following: list[_Position] = []
        unavailable: dict[str, str] = {}
        for (entry, _), page in zip(positions, pages, strict=True):
            if isinstance(page, WorkbenchError):
                unavailable[entry.label] = page.message
            elif page is not None:
                tasks += self._tasks.listed(call.view, entry, page.tasks, call.revision)
                if page.nextCursor is not None:
                    following.append(_Position(entry.toolbox, entry.name, page.nextCursor))
        call.finish_result(_written(tasks, following, unavailable))

    async def _page(self, call: RoutedCall, entry: ServerEntry, cursor: str | None) -> _Page | WorkbenchError | None:
        """One page of one server, or the error; None if a step denies the request."""
        pages: list[_Page] = []
        members = b"" if cursor is None else b'"cursor":' + encode(cursor)

        async def work(passage: Passage | None = None) -> None:
            pages.append(await self._ask(call, entry, members))

        try:
            if self._steps is None:
                await work()
            else:
                await self._steps.run(call, METHOD, entry, "", b"{" + members, work)
        except WorkbenchError as error:
            return error
        return pages[0] if pages else None

    async def _ask(self, call: RoutedCall, entry: ServerEntry, members: bytes) -> _Page:
        try:
            async with asyncio.timeout(PAGE_PATIENCE):
                connection = await self._connections.ready(entry, call)
                result = await connection.traffic.ask_as_era(METHOD, members)
        except TimeoutError:
            raise DownstreamError(f"the server did not list its tasks within {PAGE_PATIENCE:g} s") from None
        try:
            page = await asyncio.to_thread(_decode_page, result)
        except (DecodeError, ValidationError) as error:
            raise DownstreamError(f"its tasks cannot be listed: {error}") from None
        if len(page.tasks) > MOST_ON_PAGE:
            raise DownstreamError(f"its tasks cannot be listed: more than {MOST_ON_PAGE} on one page")
        return page


def _read_cursor(params: Params, having: list[ServerEntry]) -> list[tuple[ServerEntry, str | None]]:
    """The servers to ask, each with its cursor. Raises `ValueError` and the errors of msgspec."""
    cursor = _decode_cursor(params.get("cursor", b"null"))
    if cursor is None:
        return [(entry, None) for entry in having]
    by_name = {(entry.toolbox, entry.name): entry for entry in having}
    positions = _decode_positions(urlsafe_b64decode(cursor.encode()))
    found = [(by_name.get((each.toolbox, each.server)), each.cursor) for each in positions]
    known: list[tuple[ServerEntry, str | None]] = [
        (entry, own) for entry, own in found if entry is not None and own is not None
    ]
    # Our cursors name each server once. If one has been removed since, the client has to start the list again, rather
    # than get an incomplete one.
    if not known or len({entry for entry, _ in known}) != len(positions):
        raise ValueError(cursor)
    return known


def _written(tasks: list[bytes], following: list[_Position], unavailable: dict[str, str]) -> bytes:
    result = b'{"tasks":[%b]' % b",".join(tasks)
    if following:
        result += b',"nextCursor":' + encode(urlsafe_b64encode(encode(following)).decode())
    if unavailable:
        result += b',"_meta":' + encode({UNAVAILABLE_META: unavailable})
    return result + b"}"


def _fail(call: RoutedCall, entries: list[ServerEntry], failures: list[WorkbenchError]) -> None:
    """Answer with the error of the only server, or with the errors of all."""
    (first, *others) = failures
    if isinstance(first, RemoteError) and not others:
        call.on_error(Raw(encode(first.error)))
        return
    reasons = [f"[{entry.label}] {failure.message}" for entry, failure in zip(entries, failures, strict=True)]
    call.finish_error(INTERNAL_ERROR, "no server could list its tasks:\n" + "\n".join(reasons))
