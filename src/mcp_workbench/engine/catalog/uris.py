"""Which server a resource URI belongs to. Pure.

URIs pass through unchanged, and nothing in them names their server. So servers claim them: by listing them, alone or as
a file of a skill, by a link in a result, by a template, or by a skill whose directory they are in. Listing takes
precedence; a template that begins with an expression matches any address, and counts only if no server has a better
claim. If two servers have equal claims, we cannot know which one is meant: the error names both, and neither is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.jsonrpc.messages import READING_ERRORS

_MAIN_FILE: Final = "/SKILL.md"
_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")


class _SkillFile(Struct):
    uri: str = ""
    digest: str = ""


class _SkillFiles(Struct):
    resources: list[_SkillFile] = []


_decode_files: Final = Decoder(_SkillFiles).decode


def claimants(
    entries: Iterable[ServerEntry], uri: str, is_linked: Callable[[ServerEntry], bool] = lambda entry: False
) -> list[ServerEntry]:
    """The servers with the best claim to a URI: one is its owner, several are rivals, and it may be none.

    `is_linked`: whether a result of a server contained a link to it.
    """
    listing, naming, taking_all = [], [], []
    for entry in entries:
        skills = entry.definitions("skills")
        around = skills_around(skills, uri)
        # The files of a skill need not be listed as resources: its entry lists them.
        if uri in entry.definitions("resources") or any(names_file(skill, skills[skill], uri) for skill in around):
            listing.append(entry)
            continue
        fitting = [each for each in entry.templates if fits(uri, each)]
        # The directory of a skill is no better than a template: `file:///SKILL.md` would be all files of others.
        if around or is_linked(entry) or not all(map(takes_all, fitting)):
            naming.append(entry)
        elif fitting:
            taking_all.append(entry)
    return listing or naming or taking_all


def skills_around(skills: Iterable[str], uri: str) -> list[str]:
    """Those of these skills that a file or directory belongs to: one may be in the directory of another."""
    return [skill for skill in skills if _contains(skill, uri)]


def files_of(definition: Raw) -> dict[str, str]:
    """The files that the entry of a skill lists, with their digests; empty if it lists none that can be read."""
    try:
        return {each.uri: each.digest for each in _decode_files(definition).resources}
    except READING_ERRORS:
        return {}


def skill_of(skills: Iterable[str], uri: str) -> str | None:
    """The first of these skills that a file or directory belongs to."""
    return next((skill for skill in skills if _contains(skill, uri)), None)


def _contains(skill: str, uri: str) -> bool:
    root = skill.removesuffix(_MAIN_FILE)
    return uri in (skill, root) or uri.startswith(root + "/")


def names_file(skill: str, definition: Raw, uri: str) -> bool:
    """Whether this is the address of a skill, or the entry of the skill lists it as one of its files."""
    return uri in (skill, skill.removesuffix(_MAIN_FILE)) or uri in files_of(definition)


def takes_all(template: str) -> bool:
    """Whether a template matches any address, because it does not even fix the scheme."""
    return ":" not in _literals(template)[0]


def fits(uri: str, template: str) -> bool:
    """Whether a URI can be an expansion of a template.

    More permissive than RFC 6570: an expression matches anything. This only decides which server is asked; the server
    decides whether the resource exists. And it takes linear time, unlike a regular expression from a hostile template.
    """
    literals = _literals(template)
    first, last = literals[0], literals[-1]
    if len(literals) == 1:
        return uri == first
    if not uri.startswith(first) or not uri.endswith(last) or len(uri) < len(first) + len(last):
        return False
    position, end = len(first), len(uri) - len(last)
    for literal in literals[1:-1]:
        found = uri.find(literal, position, end)
        if found < 0:
            return False
        position = found + len(literal)
    return True


def shared_addresses(entries: Iterable[ServerEntry], kind: str) -> dict[tuple[ServerEntry, ServerEntry], list[str]]:
    """The addresses or templates that two servers both list, by the pair of servers."""
    first: dict[str, ServerEntry] = {}
    shared: dict[tuple[ServerEntry, ServerEntry], list[str]] = {}
    for entry in entries:
        for identity in entry.definitions(kind):
            holder = first.setdefault(identity, entry)
            if holder is not entry:
                shared.setdefault((holder, entry), []).append(identity)
    return shared


@lru_cache(maxsize=1024)
def _literals(template: str) -> tuple[str, ...]:
    return tuple(_EXPRESSION.split(template))
