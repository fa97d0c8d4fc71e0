"""Whether what a server answers about a skill is what the skill's entry in its list says. Pure.

The lock covers entries, and an entry has the digests of all files of its skill. A server that lists one thing and
answers with another would get around it.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Mapping
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.uris import files_of, skills_around
from mcp_workbench.engine.jsonrpc.messages import READING_ERRORS
from mcp_workbench.engine.protocol.results import result_type
from mcp_workbench.team.lock.lock_file import definition_hash

JUDGED_METHODS: Final = frozenset({"skills/get", "resources/read"})
OTHER_ENTRY: Final = "the answer is not what its server lists"
OTHER_CONTENT: Final = "it is not what its digest says"
# Those that Python always has. The extension names the first.
_ALGORITHMS: Final = frozenset({"sha256", "sha384", "sha512"})


class _Got(Struct):
    skill: Raw | UnsetType = UNSET


class _Content(Struct):
    uri: str = ""
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET


class _Read(Struct):
    contents: list[_Content] = []


_decode_got: Final = Decoder(_Got).decode
_decode_read: Final = Decoder(_Read).decode


def why_other(method: str, item: str, skills: Mapping[str, Raw], result: Raw) -> str | None:
    """Why this answer differs from the entries of the server's skills; None if it does not, or is about no skill."""
    if method == "skills/get":
        return _why_other_entry(skills.get(item), result)
    digests = {uri: digest for skill in skills_around(skills, item) for uri, digest in files_of(skills[skill]).items()}
    wanted = digests.get(item)
    if not wanted or not _is_answer(result):
        return None
    try:
        contents = _decode_read(result).contents
    except READING_ERRORS:
        return OTHER_CONTENT
    is_same = all(_has_digest(each, digests.get(each.uri) or wanted) for each in contents)
    return None if is_same else OTHER_CONTENT


def _why_other_entry(listed: Raw | None, result: Raw) -> str | None:
    if listed is None or not _is_answer(result):
        return None
    try:
        got = _decode_got(result).skill
    except READING_ERRORS:
        return OTHER_ENTRY
    is_same = not isinstance(got, UnsetType) and definition_hash(got) == definition_hash(listed)
    return None if is_same else OTHER_ENTRY


def _is_answer(result: Raw) -> bool:
    """A result that asks for input holds nothing yet."""
    return result_type(result) in (None, "complete")


def _has_digest(content: _Content, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    if algorithm not in _ALGORITHMS:
        return False
    try:
        # Some clients read one of them and some the other.
        held = [
            *(() if isinstance(content.text, UnsetType) else (content.text.encode(),)),
            *(() if isinstance(content.blob, UnsetType) else (b64decode(content.blob, validate=True),)),
        ]
    except ValueError:
        return False
    return bool(held) and all(hashlib.new(algorithm, each).hexdigest() == wanted.lower() for each in held)
