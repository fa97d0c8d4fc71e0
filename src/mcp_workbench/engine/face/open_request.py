"""Reads the arguments of `open_toolbox`: none (list the toolboxes), a toolbox, a query, or the names of tools.

Models make mistakes whose meaning is clear, so these are accepted too: `toolbox` for `toolbox_name`, one tool instead
of a list, a tool written as an object, empty arguments. For anything else, the error says what is wrong. If both
`tools` and `query` are given, `tools` counts, because it is more specific.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, convert
from msgspec.json import Decoder, decode
from msgspec.structs import replace

from mcp_workbench.engine.economy.tokens import MIN_TOKEN_BUDGET
from mcp_workbench.engine.face.identifier import MAX_OWN_BYTES

DETAILS: Final = ("full", "input", "lean", "text", "clipped", "sentence", "arguments", "names")
EXAMPLE_OPENING: Final = 'expected {"toolbox_name": "…"}, {"query": "…"}, both, or {"tools": ["toolbox/server/tool"]}'
MAX_NAMED_TOOLS: Final = 50
MAX_SEARCH_HITS: Final = 50
# What models write instead.
_ALSO_CALLED: Final = {"toolbox": "toolbox_name", "max_tokens": "budget"}


class OpenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    toolbox_name: str | None = None
    query: str | None = None
    tools: tuple[str, ...] = ()
    detail: str | None = None
    limit: int | None = None
    cursor: str | None = None
    # In tokens; null for no limit, absent for the configured limit.
    budget: int | UnsetType | None = UNSET


class BadRequest(Exception):
    """The arguments of `open_toolbox` are invalid; the message says why."""


_decode: Final = Decoder(OpenRequest).decode


def read_open_request(raw: Raw | None) -> OpenRequest:
    """Raises `BadRequest`."""
    size = 0 if raw is None else memoryview(raw).nbytes
    if size > MAX_OWN_BYTES:
        raise BadRequest(f"the arguments have {size} bytes, more than the {MAX_OWN_BYTES} allowed; {EXAMPLE_OPENING}")
    try:
        request = _decode(b"{}" if raw is None or bytes(raw) == b"null" else raw)
    except (DecodeError, ValidationError, RecursionError):
        request = _read_tolerantly(raw)
    _check(request)
    # Some clients always send every argument, and leave those empty that are not needed.
    return replace(
        request,
        toolbox_name=None if request.toolbox_name == "" and (request.query or request.tools) else request.toolbox_name,
        query=(request.query or "").strip() or None,
        cursor=request.cursor or None,
        limit=None if request.limit is None else min(request.limit, MAX_SEARCH_HITS),
    )


def _check(request: OpenRequest) -> None:
    if request.detail is not None and request.detail not in DETAILS:
        raise BadRequest(f"`detail` is one of {', '.join(DETAILS)}; found `{request.detail[:50]}`")
    if request.limit is not None and request.limit < 1:
        raise BadRequest(f"`limit` is a number from 1 to {MAX_SEARCH_HITS}")
    if isinstance(request.budget, int) and request.budget < MIN_TOKEN_BUDGET:
        raise BadRequest(f"`budget` is a number of tokens from {MIN_TOKEN_BUDGET} up, or null for no limit")
    if len(request.tools) > MAX_NAMED_TOOLS:
        raise BadRequest(f"`tools` names at most {MAX_NAMED_TOOLS} tools at a time")
    if request.query and request.cursor:
        raise BadRequest(
            f"what `query` finds has no pages: raise `limit`, at most {MAX_SEARCH_HITS}, or use other words"
        )


def _read_tolerantly(raw: Raw | None) -> OpenRequest:
    try:
        given = decode(b"" if raw is None else raw)
    except (DecodeError, RecursionError) as error:
        raise BadRequest(f"{error}; {EXAMPLE_OPENING}") from None
    if not isinstance(given, dict):
        raise BadRequest(f"the arguments must be an object; {EXAMPLE_OPENING}")
    known = OpenRequest.__struct_fields__
    meant: dict[str, Any] = {}
    for name, value in given.items():
        own = _ALSO_CALLED.get(name, name)
        if own not in known:
            from mcp_workbench.engine.nearest import nearest

            near = nearest(name, known, limit=1)
            suggestion = f"did you mean `{near[0]}`?" if near else f"expected one of {', '.join(known)}"
            raise BadRequest(f"unknown argument `{name[:50]}`; {suggestion}")
        if own == name or own not in given:
            meant[own] = value
    if meant.get("tools") is None:
        meant.pop("tools", None)
    elif isinstance(meant["tools"], list):
        meant["tools"] = [_path(each) for each in meant["tools"]]
    else:
        meant["tools"] = [_path(meant["tools"])]
    try:
        return convert(meant, OpenRequest)
    except ValidationError as error:
        raise BadRequest(f"{error}; {EXAMPLE_OPENING}") from None


def _path(tool: Any) -> Any:
    """The path of a tool written as an object, with the names of its parts from `use_tool` or a listing."""
    if not isinstance(tool, dict):
        return tool
    parts = [
        tool.get("toolbox", tool.get("toolbox_name")),
        tool.get("server", tool.get("source_server")),
        tool.get("tool", tool.get("name")),
    ]
    given = [part for part in parts if part is not None]
    return "/".join(given) if given and all(isinstance(part, str) for part in given) else tool
