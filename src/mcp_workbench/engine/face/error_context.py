"""A tool's own error as an agent is shown it: with the tool's path in front, as every other error has it. Pure.

Results are not decoded to find out whether they are errors: hardly any is, and they may be large.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from mcp_workbench.engine.face.renamed import with_members
from mcp_workbench.engine.jsonrpc.messages import READING_ERRORS, decode_object, decode_string, encode

# The member with the result as the server sent it.
ORIGINAL_META: Final = "mcp-workbench/result"
# For an error without a word about it.
UNEXPLAINED: Final = "the tool reported an error without saying which"


class _Block(Struct, gc=False):
    type: object = None
    text: object = None


class _Result(Struct, gc=False):
    content: Raw = field(default_factory=lambda: Raw(b"[]"))
    isError: bool = False
    meta: Raw = field(name="_meta", default_factory=lambda: Raw(b"{}"))


_decode_result: Final = Decoder(_Result).decode
_decode_blocks: Final = Decoder(list[Raw]).decode
_decode_block: Final = Decoder(_Block).decode


def with_context(result: Raw, where: str, *, is_whole: bool = True) -> Raw:
    """The result with `[where] ` before its first text, if it is an error; otherwise unchanged. Its `_meta` has what
    the server sent, if `result` is the whole of that."""
    written = bytes(result)
    try:
        read = _decode_result(written)
        if not read.isError:
            return result
    except READING_ERRORS:
        # The client decides what to make of it.
        return result
    members = {"content": encode(_prefixed(_blocks(read.content), f"[{where}] "))}
    if is_whole:
        members["_meta"] = encode({**_object(read.meta), ORIGINAL_META: result})
    return Raw(with_members(written, members))


def with_context_in_task(result: Raw, where: str) -> Raw:
    """The same for the state of a task, which holds the result of the tool once there is one."""
    written = bytes(result)
    try:
        inner = decode_object(written)["result"]
    except (*READING_ERRORS, KeyError):
        return result
    named = with_context(inner, where)
    return result if named is inner else Raw(with_members(written, {"result": bytes(named)}))


def _blocks(content: Raw) -> list[Raw]:
    """The blocks of a result; what is not a list of them, as far as an agent can read it."""
    try:
        return _decode_blocks(content)
    except READING_ERRORS:
        pass
    try:
        return [Raw(encode({"type": "text", "text": decode_string(content)}))]
    except READING_ERRORS:
        return [content] if _object(content).keys() >= {"type", "text"} else []


def _object(written: Raw) -> dict[str, Raw]:
    try:
        return decode_object(written)
    except READING_ERRORS:
        return {}


def _prefixed(content: list[Raw], prefix: str) -> list[Raw]:
    for index, written in enumerate(content):
        try:
            block = _decode_block(written)
        except READING_ERRORS:
            continue
        if block.type == "text" and isinstance(block.text, str):
            named = with_members(bytes(written), {"text": encode(prefix + block.text)})
            return [*content[:index], Raw(named), *content[index + 1 :]]
    return [Raw(encode({"type": "text", "text": prefix + UNEXPLAINED})), *content]
