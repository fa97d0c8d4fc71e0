"""What was called while a page was open: the latest calls, with as much of their content as may be shown. Bounded."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, to_builtins

from mcp_workbench.engine.config.page_settings import Capture
from mcp_workbench.engine.config.redact import MASK, is_secret_name, without_keys
from mcp_workbench.engine.jsonrpc.messages import Body, LargeBody, Part
from mcp_workbench.engine.observe.ended_calls import EndedCall
from mcp_workbench.engine.observe.shown_calls import ShownCall
from mcp_workbench.engine.printable import in_unicode
from mcp_workbench.engine.steps import AnyPassage

MAX_CALLS: Final = 500
MAX_CAPTURED_BYTES: Final = 16 * 1024 * 1024
# Of the arguments, and of the result of one call.
MAX_SIDE_BYTES: Final = 64 * 1024
# Kept beyond that, so that a secret at the cut is whole when it is looked for.
_MARGIN: Final = 4 * 1024
MAX_SHOWN_DEPTH: Final = 32
_ELIDED: Final = "…"
# A string, and if it names a member whose value is no container, that value; in JSON that may be cut anywhere.
_MEMBER_OR_STRING: Final = re.compile(
    r'"((?:[^"\\]|\\.)*)(?:"(?:(\s*+:\s*+)("(?:[^"\\]|\\.)*"?|[^\s",{}\[\]]++))?)?', re.DOTALL
)
# How much of the arguments is shown: all, all but secrets, what is neither too long nor too deep, the types alone.
Kept = Literal["whole", "masked", "cut", "shape", "none"]


class CapturedCall(Struct, gc=False):
    """A call that has ended. Content is kept as it was, and redacted when it is looked at."""

    principal: str
    call: ShownCall
    # The params without the closing brace, as in `GuardedRequest`, and the result in parts; None if not kept.
    arguments: Body | None
    result: tuple[Part, ...] | None
    # Of both.
    size: int


class CapturedCalls:
    """The latest calls, oldest first."""

    def __init__(self, capture: Callable[[], Capture], redact: Callable[[str], str]) -> None:
        self._capture = capture
        self._redact = redact
        self._calls: deque[CapturedCall] = deque()
        self._bytes = 0

    def keep(self, ended: Sequence[EndedCall], shown: Sequence[tuple[str, ShownCall]]) -> None:
        calls = self._calls
        if self._capture() == "none":
            calls += [CapturedCall(principal, call, None, None, 0) for principal, call in shown]
        else:
            for (passage, _, _, payload, size, _), (principal, call) in zip(ended, shown, strict=True):
                body = passage.body
                # What is short is not copied.
                if size > MAX_SIDE_BYTES or len(body) > MAX_SIDE_BYTES:
                    body, payload = _beginning_of(body), (_beginning(payload),)
                    size = len(payload[0])
                size += len(body)
                self._bytes += size
                calls.append(CapturedCall(principal, call, body, payload, size))
        while len(calls) > MAX_CALLS or self._bytes > MAX_CAPTURED_BYTES:
            self._bytes -= calls.popleft().size

    def clear(self) -> None:
        self._calls.clear()
        self._bytes = 0

    def shown(self) -> list[tuple[str, ShownCall]]:
        """All of them, each with its principal."""
        return [(each.principal, each.call) for each in self._calls]

    def find(self, id: int, may_see: Callable[[str], bool]) -> dict[str, Any] | None:
        """A call with its content as text; None if it is not kept, or somebody else's."""
        found = next((each for each in self._calls if each.call.id == id), None)
        if found is None or not may_see(found.principal):
            return None
        arguments = None if found.arguments is None else _beginning_of(found.arguments)
        result = None if found.result is None else b"".join(found.result)
        return self._described(found.call, arguments, found.call.bytes_in) | {
            "result": self._shown(result, found.call.bytes_out, None)[0]
        }

    def running(self, passage: AnyPassage, call: ShownCall) -> dict[str, Any]:
        """The same of a call that has not ended: of these nothing is kept, and they have their arguments."""
        arguments = None if self._capture() == "none" else _beginning_of(passage.body)
        return self._described(call, arguments, len(passage.body) + 1) | {"result": None}

    def _described(self, call: ShownCall, arguments: bytes | None, size: int) -> dict[str, Any]:
        text, kept = self._shown(_params(arguments, size), size, "arguments")
        return {**to_builtins(call), "capture": self._capture(), "arguments": text, "kept": kept}

    def _shown(self, content: bytes | None, size: int, member: str | None) -> tuple[str | None, Kept]:
        if content is None:
            return None, "none"
        is_whole = size <= MAX_SIDE_BYTES
        kept: Kept = "whole" if is_whole else "cut"
        text = content.decode(errors="backslashreplace")
        document = _parsed(text) if is_whole else None
        if document is not None and member is not None and isinstance(document[0], dict):
            # What the caller chose; the rest names the item, which the record has. A call that is refused for what it
            # names has neither.
            if member not in document[0]:
                return None, "whole" if document[0] else "none"
            document = (document[0][member],)
        if self._capture() == "shape":
            kept = "shape"
            text = f"{size:,} bytes" if document is None else _written(_shape(document[0]))
        elif document is not None:
            shown = document[0] if self._capture() == "full" else self._redacted(document[0], 0)
            text = _written(shown)
            kept = "whole" if shown == document[0] else "cut" if f'"{_ELIDED}"' in text else "masked"
        elif self._capture() != "full":
            text = without_keys(self._redact(_MEMBER_OR_STRING.sub(_masked, text)))
        text = in_unicode(text)
        return (text if is_whole else f"{text[:MAX_SIDE_BYTES]}\n…(cut, {size:,} bytes)"), kept

    def _redacted(self, value: Any, depth: int) -> Any:
        if depth > MAX_SHOWN_DEPTH:
            return _ELIDED
        if isinstance(value, dict):
            return {
                without_keys(self._redact(key)): MASK if is_secret_name(key) else self._redacted(each, depth + 1)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._redacted(each, depth + 1) for each in value]
        return without_keys(self._redact(value)) if isinstance(value, str) else value


def _params(body: bytes | None, size: int) -> bytes | None:
    return body if body is None or len(body) + 1 < size else body + b"}"


def _beginning_of(body: Body) -> bytes:
    # What is short is not copied.
    return _beginning(body.parts) if isinstance(body, LargeBody) else body[: MAX_SIDE_BYTES + _MARGIN]


def _beginning(parts: Sequence[Part]) -> bytes:
    kept = bytearray()
    for part in parts:
        kept += memoryview(part)[: MAX_SIDE_BYTES + _MARGIN - len(kept)]
    return bytes(kept)


def _masked(member: re.Match[str]) -> str:
    return f'"{member[1]}"{member[2]}"{MASK}"' if member[2] and is_secret_name(member[1]) else member[0]


def _parsed(text: str) -> tuple[Any] | None:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None


def _written(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _shape(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict):
        return "object" if depth > MAX_SHOWN_DEPTH else {key: _shape(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return f"{len(value)} items"
    if isinstance(value, str):
        return f"string of {len(value)}"
    return "null" if value is None else "boolean" if isinstance(value, bool) else "number"
