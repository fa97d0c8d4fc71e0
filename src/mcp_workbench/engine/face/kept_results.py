"""Results that are too large for an agent: kept for a while, shown by their start, and read in pieces.

Limited in number, size and time, and private to the principal that made the call. Text is shortened; images and other
binary data are linked, never truncated. Owns what is kept; `engine.economy.result_pieces` splits text into pieces.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import DecodeError, MsgspecError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode

from mcp_workbench.engine.economy.tokens import BYTES_PER_TOKEN, bytes_of_tokens, estimated_tokens
from mcp_workbench.engine.face.decisions import Answer, HandOver, Load, Work
from mcp_workbench.engine.face.identifier import MAX_OWN_BYTES, UseTool
from mcp_workbench.engine.face.identifier import RESULTS as SCHEME
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.face.wording import error_result
from mcp_workbench.engine.jsonrpc.messages import decode_object, encode
from mcp_workbench.engine.lasting_state import LOCAL_STATE, RESULT, LastingState, StateUnavailable
from mcp_workbench.engine.slices import sliced
from mcp_workbench.engine.steps import Subject

if TYPE_CHECKING:
    from mcp_workbench.engine.economy.result_pieces import Reading

# Which of text and structured content a client shows its model (`client_behaviour.Behaviour.structured`).
StructuredReading = Literal["only", "both", "text"] | None
# Long enough for an agent to finish what it is doing.
KEPT_RESULT_LIFETIME: Final = 1800.0
MAX_KEPT_RESULTS: Final = 200
MAX_KEPT_RESULT_BYTES: Final = 128 * 1024 * 1024
DEFAULT_PIECE: Final = 2_000
# Anything less could not even explain how to read on.
MIN_PIECE_TOKENS: Final = 200
# The shape of larger values is not shown, because decoding them would delay other calls.
MAX_SHAPED_BYTES: Final = 4 * 1024 * 1024
# What models charge for an image at most, however many bytes it has.
TOKENS_OF_IMAGE: Final = 1_600
# The maximum number of links to images and other blocks; further ones can be found in the whole result.
MAX_RESULT_LINKS: Final = 20
# The approximate size of one link.
_LINK_BYTES: Final = 180


# Toolbox, server and tool.
Origin = tuple[str, str, str]


class _Kept(Struct):
    principal: str
    result: bytes
    expires: float
    # The calls that returned it.
    origins: tuple[Origin, ...]


class _LeftResult(Struct):
    """What is left of it for other instances, in front of the result."""

    origins: tuple[Origin, ...]
    # Seconds since 1970.
    expires: float


class ReadOn(Struct, forbid_unknown_fields=True):
    """How to read on: one of `select`, `lines`, `grep`, or the page from character `start`."""

    select: str | None = None
    lines: str | None = None
    grep: str | None = None
    # A character; with `grep`, a line.
    start: int = 0
    # Lines of context around the matches of `grep`.
    around: int = 0
    # Only how many lines match `grep`, in all and for each of its alternatives.
    count: bool = False
    max_tokens: int = 0


HOW_TO_READ_MORE: Final = (
    '`select` (JSON Pointer or JMESPath), `lines` ("10-40"), `grep` (words, `*`, `|`; `count`) or `start` (a character)'
)
_decode_read_on: Final = Decoder(ReadOn).decode


class _Typed(Struct, gc=False):
    type: str | None = None


NO_BLOCKS: Final = Raw(b"[]")
_decode_blocks: Final = Decoder(list[Raw]).decode
_decode_type: Final = Decoder(_Typed).decode


class KeptResults:
    def __init__(self, state: LastingState = LOCAL_STATE) -> None:
        """`state`: where they are left for other instances."""
        self._state = state
        state.on_emptied(self._leave_again)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        # By id, who is given the next call that reads it.
        self._takers: dict[str, Callable[[Any], None]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def kept_bytes(self) -> int:
        """The memory used by kept results."""
        return self._bytes

    # ── shortening ──

    def shortening(
        self,
        view: View,
        result: Raw | bytes,
        budget: int,
        origins: tuple[Origin, ...] = (),
        select: str = "",
        reads: StructuredReading = None,
    ) -> Shortening | None:
        """What shortens a result, in steps; None if it fits. `select`: the part of it that is wanted. `reads`: which
        of text and structured content its client is known to read."""
        most = max(budget, MIN_PIECE_TOKENS)
        # No token is shorter than a byte.
        if not budget or (memoryview(result).nbytes <= most and not select and reads is None):
            return None
        import secrets

        keep = partial(self._keep, view.principal, origins)
        return Shortening(result, most, secrets.token_urlsafe(9), keep, select, reads)

    def keep(self, view: View, origin: Origin, result: bytes) -> str:
        """Keep a result as it is. Returns its URI."""
        import secrets

        id = secrets.token_urlsafe(9)
        self._keep(view.principal, (origin,), id, result)
        return SCHEME + id

    def keeper(self, view: View, origin: Origin) -> Keeper:
        """Keeps parts of a result of this call that are found while it is read."""
        return Keeper(partial(self._keep, view.principal, (origin,)))

    def replace(self, uri: str, result: bytes) -> None:
        """Keep this result in place of the one at this URI, unless that is gone."""
        id = uri.removeprefix(SCHEME)
        kept = self._kept.get(id)
        if kept is not None:
            self._drop(id)
            self._keep(kept.principal, kept.origins, id, result)

    def next_reader(self, uri: str, take: Callable[[Any], None] | None) -> None:
        """Give the next call that reads this result to `take` instead of answering it. None: no more."""
        if take is None:
            self._takers.pop(uri.removeprefix(SCHEME), None)
        else:
            self._takers[uri.removeprefix(SCHEME)] = take

    def renew(self, uri: str) -> None:
        """Keep this result longer: what it stands for is not there yet."""
        kept = self._kept.get(uri.removeprefix(SCHEME))
        if kept is not None and kept.expires - time.monotonic() < KEPT_RESULT_LIFETIME / 2:
            self.replace(uri, kept.result)

    # ── reading on ──

    def read_on(
        self, view: View, uri: str, call: UseTool, *, is_recalled: bool = False
    ) -> Answer | Work | HandOver | Load:
        """Return a piece of a kept result as a tool result. `is_recalled`: other instances have been asked for it."""
        if memoryview(call.arguments).nbytes > MAX_OWN_BYTES:
            return Answer(
                error_result(f"the arguments have more than {MAX_OWN_BYTES} bytes; expected one of {HOW_TO_READ_MORE}")
            )
        try:
            wanted = _decode_read_on(call.arguments)
        except (DecodeError, ValidationError) as error:
            return Answer(error_result(f"{error}; expected one of {HOW_TO_READ_MORE}"))
        kept = self._find(view, uri.removeprefix(SCHEME))
        if kept is None and not is_recalled and (recall := self.recall_of(view, uri)) is not None:
            return Load((), partial(self.read_on, view, uri, call, is_recalled=True), recall)
        if kept is None:
            if self.is_in_doubt:
                what = f"`{uri[:100]}` cannot be looked up now, because the cluster's state is away; try again later"
                return Answer(error_result(what))
            return Answer(error_result(f"`{uri[:100]}` is no longer kept; make the call again"))
        if self._takers and (take := self._takers.get(uri.removeprefix(SCHEME))) is not None:
            return HandOver(take)
        if call.select:
            # It may stand beside the address, as beside any tool.
            wanted.select = call.select
        tokens = call.max_tokens or wanted.max_tokens or DEFAULT_PIECE
        # In a thread, because selecting from a large result may take a second.
        return Work(lambda: _read_piece(kept.result, wanted, tokens), lambda: _read_whole(kept.result, wanted, tokens))

    def resource(self, view: View, uri: str) -> bytes | None:
        """A kept result, or one of its blocks, as the contents of a resource."""
        id, _, block = uri.removeprefix(SCHEME).partition("/")
        kept = self._find(view, id)
        if kept is None:
            return None
        if not block:
            text = kept.result.decode(errors="replace")
            return encode({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]})
        if not (block.isascii() and block.isdecimal()):
            return None
        found = next(islice(_blocks(_opened(kept.result)[1]), int(block[:9]), None), None)
        return None if found is None else encode({"contents": [_contents(uri, _block(found))]})

    # ── of other instances ──

    def recall_of(self, view: View, uri: str) -> Callable[[], Awaitable[None]] | None:
        """How to get a result that is not kept here; None if no other instance can have it."""
        id = uri.removeprefix(SCHEME).partition("/")[0]
        if not self._state.is_shared or id in self._kept:
            return None
        return partial(self._recall, view.principal, id)

    @property
    def is_in_doubt(self) -> bool:
        """Whether other instances cannot be asked: for that, no call must be made again."""
        return self._state.is_in_doubt

    async def _recall(self, principal: str, id: str) -> None:
        try:
            found = await self._state.find(RESULT, principal, id, is_patient=True)
        except StateUnavailable:
            return
        if found is None or id in self._kept:
            return
        head, _, data = found.partition(b"\n")
        try:
            saved = decode(head, type=_LeftResult)
        except MsgspecError:
            return
        left = saved.expires - time.time()
        if left > 0:
            self._enter(id, _Kept(principal, data, time.monotonic() + left, saved.origins))

    def _leave_again(self) -> None:
        for id, kept in self._kept.items():
            self._leave(id, kept)

    def _leave(self, id: str, kept: _Kept) -> None:
        expires = time.time() + kept.expires - time.monotonic()
        head = encode(_LeftResult(kept.origins, expires))
        self._state.keep(RESULT, kept.principal, id, head + b"\n" + kept.result)

    # ── what is kept ──

    def drop(self, principals: Collection[str]) -> None:
        """Drop the results of these."""
        for id in [id for id, kept in self._kept.items() if kept.principal in principals]:
            self._state.drop(RESULT, self._kept[id].principal, id)
            self._drop(id)

    def _drop(self, id: str) -> None:
        self._bytes -= len(self._kept.pop(id).result)

    def _keep(self, principal: str, origins: tuple[Origin, ...], id: str, data: bytes) -> None:
        kept = _Kept(principal, data, time.monotonic() + KEPT_RESULT_LIFETIME, origins)
        self._enter(id, kept)
        if self._state.is_shared and len(data) <= RESULT.max_bytes:
            self._leave(id, kept)

    def _enter(self, id: str, kept: _Kept) -> None:
        self._kept[id] = kept
        self._bytes += len(kept.result)
        self._forget()

    def _forget(self) -> None:
        """Drop results until none is too old and all fit the limits."""
        while self._oldest_is_over():
            self._drop(next(iter(self._kept)))
        while len(self._kept) > MAX_KEPT_RESULTS:
            self._drop(self._superfluous(lambda kept: 1))
        while self._bytes > MAX_KEPT_RESULT_BYTES:
            self._drop(self._superfluous(lambda kept: len(kept.result)))

    def _superfluous(self, weight: Callable[[_Kept], int]) -> str:
        """The oldest result of the principal who keeps most, so that nobody loses theirs to the calls of another. Never
        the newest one, of which the client is about to hear."""
        older = list(islice(self._kept.items(), len(self._kept) - 1))
        held: dict[str, int] = {}
        for _, kept in older:
            held[kept.principal] = held.get(kept.principal, 0) + weight(kept)
        most = max(held, key=held.__getitem__)
        return next(id for id, kept in older if kept.principal == most)

    def _oldest_is_over(self) -> bool:
        return bool(self._kept) and next(iter(self._kept.values())).expires <= time.monotonic()

    def _find(self, view: View, id: str) -> _Kept | None:
        self._forget()
        kept = self._kept.get(id)
        # One that came from another instance may end before those that were kept here earlier.
        if kept is None or kept.principal != view.principal or kept.expires <= time.monotonic():
            return None
        for toolbox, server, tool in kept.origins:
            call = Subject(principal=view.principal, method="tools/call", toolbox=toolbox, server=server, item=tool)
            if view.gate.refuses(call) is not None:
                return None
        return kept


class Keeper:
    """Keeps results in steps, like `Shortening`: called in any thread, `finish` on the event loop."""

    def __init__(self, keep: Callable[[str, bytes], None]) -> None:
        self._keep = keep
        self._found: dict[str, bytes] = {}

    def __call__(self, result: bytes) -> str:
        """The URI that the result will have."""
        import secrets

        id = secrets.token_urlsafe(9)
        self._found[id] = result
        return SCHEME + id

    def finish(self) -> None:
        for id, result in self._found.items():
            self._keep(id, result)


class Shortening:
    """Shortens a result in steps. `work` may run in any thread; `finish` must run on the event loop."""

    def __init__(
        self,
        result: Raw | bytes,
        budget: int,
        id: str,
        keep: Callable[[str, bytes], None],
        select: str = "",
        reads: StructuredReading = None,
    ) -> None:
        self._result = result
        self._budget = budget
        self._id = id
        self._keep = keep
        self._select = select
        self._reads = reads
        self._head: bytes | None = None
        self._kept: bytes | None = None

    def work(self) -> None:
        from mcp_workbench.engine.economy.result_pieces import facts, overview, reading, without_base64

        data = self._wanted(bytes(self._result))
        members, content = _opened(data)
        # Servers often return the same content as text and as structured content, and clients show one of them.
        shown = max((memoryview(members.get(name, b"")) for name in ("content", "structuredContent")), key=len)
        readable, images = without_base64(shown or data)
        if members and estimated_tokens(readable) + images * TOKENS_OF_IMAGE <= self._budget:
            self._head = None if data == self._result else data
            return
        # For links and members, which are alike in all results.
        room = self._budget * BYTES_PER_TOKEN
        others = {
            key: value
            for key, value in members.items()
            if key not in ("content", "structuredContent") and len(bytes(value)) <= room // 4
        }
        uri = f"{SCHEME}{self._id}"
        can_be_kept = len(data) <= MAX_KEPT_RESULT_BYTES
        links = _links(uri, content, room // 4) if can_be_kept else []
        how = (
            f'\n\nKept for {KEPT_RESULT_LIFETIME / 60:.0f} minutes. Read on: use_tool {{"tool": "{uri}", "arguments": '
            f"{{…}}}} with {HOW_TO_READ_MORE}."
            if can_be_kept
            else "\n\nThe result is too large to be kept."
        )
        around = estimated_tokens(encode({"content": links, **others}) + encode(how))
        left = bytes_of_tokens(max(self._budget - around, 25), readable)
        # Results may have a hundred megabytes, and what follows makes copies of its own.
        del readable
        read = reading(data, largest_value=MAX_SHAPED_BYTES)
        said = facts(read)
        text = overview(read, max(left, 100), said)
        while left > 100 and len(encode(text)) > left:
            # Quotes and line breaks take two bytes each in JSON.
            text = overview(read, len(text.encode()) - max(len(encode(text)) - left, 10), said)
        self._head = encode({"content": [{"type": "text", "text": text + how}, *links], **others})
        self._kept = data if can_be_kept else None

    def _wanted(self, data: bytes) -> bytes:
        """The selected part of a result, or a result that says nothing twice. Errors stay as they are."""
        from mcp_workbench.engine.economy.result_pieces import said_once

        if not (self._select or self._reads) or is_error(data):
            return data
        return _with_selection(data, self._select) if self._select else said_once(data, self._reads != "text")

    def finish(self) -> Raw | bytes:
        """The result for the client."""
        if self._kept is not None:
            self._keep(self._id, self._kept)
        return self._result if self._head is None else self._head


NO_TABLE: Final = "`select` needs JSON, JSON lines or CSV; this one is text: use `lines` or `grep`"


class _Outcome(Struct):
    isError: bool = False


_decode_outcome: Final = Decoder(_Outcome).decode


def is_error(result: bytes | Raw) -> bool:
    """Whether a result says that the tool failed."""
    try:
        return _decode_outcome(result).isError
    except (DecodeError, ValidationError, RecursionError):
        return False


def _with_selection(data: bytes, expression: str) -> bytes:
    """The result with the selected part as its text. If nothing can be selected, the call was still made, so the whole
    is answered and says why."""
    from mcp_workbench.engine.economy.result_pieces import reading

    try:
        selected = selected_from(reading(data), expression)
    except ValueError as error:
        members, content = _opened(data)
        note = {"type": "text", "text": f"({error}. The tool was called; its whole result follows.)"}
        return encode({**members, "content": [note, *_blocks(content)]})
    text = selected if isinstance(selected, str) else encode(selected).decode()
    kept = {name: value for name, value in _opened(data)[0].items() if name not in ("content", "structuredContent")}
    return encode({"content": [{"type": "text", "text": text}], **kept})


def selected_from(read: Reading, expression: str) -> object:
    """Raises ValueError with what to do."""
    from mcp_workbench.engine.economy.select import BadExpression, select

    selected: object = None
    problem: ValueError | None = None
    try:
        selected = _selected_from_inner(read, expression)
    except ValueError as error:
        problem = error
    if selected is None and read.wrapper:
        # Whoever knows the type of the result may ask for it with the object around it.
        with suppress(BadExpression):
            selected = select(read.whole, expression)
    if selected is None and problem is not None:
        raise problem
    return selected


def _selected_from_inner(read: Reading, expression: str) -> object:
    from mcp_workbench.engine.economy.records import records
    from mcp_workbench.engine.economy.select import BadExpression, select

    if read.is_too_large:
        raise ValueError("`select` cannot look into a value this large: use `lines` or `grep`")
    value = read.value if read.is_json else records(read.text)
    # Functions apply to any text: `contains(@, 'word')`.
    is_text = value is None and not read.is_json
    try:
        selected = select(read.text if is_text else value, expression)
    except BadExpression as error:
        raise ValueError(NO_TABLE if is_text else f"`select`: {error}") from None
    if is_text and selected is None:
        raise ValueError(NO_TABLE)
    return selected


def _opened(data: bytes) -> tuple[dict[str, Raw], Raw]:
    """The members of a result and its blocks, unparsed; empty if it is not a result."""
    try:
        members = decode_object(data)
    except (DecodeError, ValidationError, RecursionError):
        return {}, NO_BLOCKS
    return members, members.get("content", NO_BLOCKS)


def _blocks(content: Raw) -> Iterator[Raw]:
    try:
        for blocks in sliced(content, _decode_blocks):
            yield from blocks
    except (DecodeError, ValidationError, RecursionError):
        return


def _block(raw: Raw) -> Any:
    try:
        return decode(raw)
    except (DecodeError, ValidationError, RecursionError):
        return None


def block_links(uri: str, content: Raw, room: int) -> list[object]:
    """A link to each block that is not text."""
    return _links(uri, content, room)[1:]


def _links(uri: str, content: Raw, room: int) -> list[object]:
    """A link to the whole result, and to each block that is not text. The server's own links are kept."""
    from mcp_workbench.engine.economy.result_pieces import MAX_RESULT_BLOCKS

    links: list[object] = [_link(uri, "whole result", "application/json")]
    for number, raw in enumerate(islice(_blocks(content), MAX_RESULT_BLOCKS)):
        if _is_text(raw):
            continue
        block = _block(raw)
        if not isinstance(block, dict) or block.get("type") in ("text", None):
            continue
        if block["type"] == "resource_link":
            link: object = block
        elif _text_of(block) is not None:
            continue  # Its text can be read in pieces.
        else:
            inner = block.get("resource")
            kind = inner.get("mimeType") if isinstance(inner, dict) else block.get("mimeType")
            link = _link(f"{uri}/{number}", str(block["type"]), kind if isinstance(kind, str) else "application/json")
        if len(encode([*links, link])) > max(room, 2 * _LINK_BYTES) or len(links) >= MAX_RESULT_LINKS:
            break
        links.append(link)
    return links


def _is_text(raw: Raw) -> bool:
    """Whether a block is text or empty, as most are, without decoding it."""
    try:
        return _decode_type(raw).type in ("text", None)
    except (DecodeError, ValidationError, RecursionError):
        return False


def _link(uri: str, name: str, kind: str) -> dict[str, object]:
    return {"type": "resource_link", "uri": uri, "name": name, "mimeType": kind}


def _text_of(block: dict[str, Any]) -> str | None:
    inner = block.get("resource")
    text = inner.get("text") if isinstance(inner, dict) else None
    return text if isinstance(text, str) else None


def _contents(uri: str, block: Any) -> dict[str, object]:
    """One block as the contents of a resource: its data, its embedded resource, or the block itself."""
    if isinstance(block, dict):
        inner = block.get("resource")
        if isinstance(inner, dict) and ("text" in inner or "blob" in inner):
            return {**inner, "uri": uri}
        if isinstance(block.get("data"), str):
            return {"uri": uri, "mimeType": block.get("mimeType", "application/octet-stream"), "blob": block["data"]}
        if block.get("type") == "text":
            return {"uri": uri, "mimeType": "text/plain", "text": block.get("text", "")}
    return {"uri": uri, "mimeType": "application/json", "text": encode(block).decode()}


def _read_piece(result: bytes, wanted: ReadOn, tokens: int) -> bytes:
    try:
        text = _piece(result, wanted, tokens)
    except ValueError as error:
        return error_result(str(error))
    return encode({"content": [{"type": "text", "text": text}]})


def _read_whole(result: bytes, wanted: ReadOn, tokens: int) -> bytes:
    """The result as it came, or the selected part as a tool would return it; lines in pieces."""
    if wanted.select is None:
        return _read_piece(result, wanted, tokens) if wanted.lines or wanted.grep or wanted.start else result
    from mcp_workbench.engine.economy.result_pieces import reading

    try:
        selected = selected_from(reading(result), wanted.select)
    except ValueError as error:
        return error_result(str(error))
    text = selected if isinstance(selected, str) else encode(selected).decode()
    return encode({"content": [{"type": "text", "text": text}], "structuredContent": {"result": selected}})


def _piece(result: bytes, wanted: ReadOn, tokens: int) -> str:
    """Raises ValueError with what to do."""
    from mcp_workbench.engine.economy.result_pieces import Part, by_line, count, grep, lines, page, reading

    read = reading(result)
    near = max(wanted.start, 0)
    like = (read.text[near : near + 64 * 1024] or read.text).encode()
    room = bytes_of_tokens(max(MIN_PIECE_TOKENS, tokens), like) - _AROUND_A_PIECE

    def said(part: Part, following: str) -> str:
        more = "" if part.following is None else f"\n(more: {following.format(part.following)})"
        return f"({part.note})\n{part.text}{more}"

    if wanted.select is not None:
        selected = encode(selected_from(read, wanted.select)).decode()
        return said(page(selected, wanted.start, room), "the same `select` with `start`: {}")
    if wanted.grep is not None and wanted.count:
        counted = count(by_line(read.text), wanted.grep)
        return f"({counted.note})\n{counted.text}".rstrip("\n")
    if wanted.grep is not None:
        found = grep(by_line(read.text), wanted.grep, room=room, first=max(1, wanted.start), around=wanted.around)
        return said(found, "the same `grep` with `start`: {}")
    if wanted.lines is not None:
        first, _, last = wanted.lines.replace(":", "-").partition("-")
        if not _is_number(first) or (last.strip() and not _is_number(last)):
            raise ValueError('`lines` is a range like "10-40"')
        return said(lines(by_line(read.text), int(first), int(last) if last.strip() else 10**9, room), '`lines`: "{}-"')
    return said(page(read.text, wanted.start, room), "`start`: {}")


# Space for the text around a piece, which says what it is and how to get the next.
_AROUND_A_PIECE: Final = 150


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and text.isascii() and len(text) < 10
