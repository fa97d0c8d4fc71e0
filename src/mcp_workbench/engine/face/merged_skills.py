"""Skills of several servers as one list, and which server a request about one goes to.

Loaded with the first request about skills. The addresses of skills are those of resources (`resource_owner`); what is
hidden is in no entry and no directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, ValidationError

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.skills import (
    DIRECTORY_READ,
    SKILLS_GET,
    has_skills,
    is_above,
    read_skill,
    reads_directories,
    shown_entry,
    shown_result,
)
from mcp_workbench.engine.catalog.uris import shared_addresses
from mcp_workbench.engine.economy.prose import clip, one_line
from mcp_workbench.engine.economy.terms import terms
from mcp_workbench.engine.face.base import Face, Params, address_of, string_of
from mcp_workbench.engine.face.decisions import Decision, Forward, Reject
from mcp_workbench.engine.jsonrpc.messages import INVALID_PARAMS, METHOD_NOT_FOUND, encode, open_object
from mcp_workbench.engine.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.catalog import Catalog
    from mcp_workbench.engine.catalog.skills import Shown
    from mcp_workbench.engine.face.view import View

# How many skills a search names beside its tools, and how much of each description.
MAX_FOUND_SKILLS: Final = 3
MAX_DESCRIPTION_BYTES: Final = 160
# Words of a name say more than those of a description.
_IN_NAME: Final = 2.0


def listed_skills(entries: Sequence[ServerEntry]) -> list[bytes]:
    """The entries of all skills. Where two servers list the same address, each skill gets one of its own."""
    having = [entry for entry in entries if entry.definitions("skills")]
    shared = {uri for found in shared_addresses(having, "skills").values() for uri in found}
    listed = []
    for entry in having:
        for uri, definition in entry.definitions("skills").items():
            is_shared = uri in shared
            # Otherwise the server's own bytes: nothing in them can have to be changed.
            if is_shared or not entry.takes_unlisted:
                listed.append(shown_entry(definition, _shown(entry, is_apart=is_shared)))
            else:
                listed.append(bytes(definition))
    return listed


def _shown(entry: ServerEntry, *, is_apart: bool) -> Shown:
    def shown(uri: str) -> str | None:
        if not entry.shows_resource(uri):
            return None
        return address_of(entry, uri) if is_apart else uri

    return shown


def resolve_skill(face: Face, view: View, method: str, params: Params, client: Revision) -> Decision:
    """Decide what to do with a `skills/get` or a `resources/directory/read`."""
    uri = string_of(params, "uri")
    if uri is None:
        return Reject(INVALID_PARAMS, "`uri` must be a string")
    having = [entry for entry in face.entries(view) if has_skills(entry)]
    found = face.resource_owner(view, params, client)
    if isinstance(found, Reject) and isinstance(found.data, dict) and "servers" in found.data:
        return found
    owner, own = (None, uri) if isinstance(found, Reject) else found
    if owner not in having:
        # Neither skills nor the directories above them have to be listed.
        unlisted = [each for each in having if is_above(each.definitions("skills"), uri)] or having
        is_certain = len(unlisted) == 1 and unlisted[0].takes_unlisted and unlisted[0].shows_resource(uri)
        owner, own = (unlisted[0] if is_certain else None), uri
    if owner is None:
        what = "no skill is served at" if method == SKILLS_GET else "there is no directory"
        return Reject(INVALID_PARAMS, f"{what} `{uri[:500]}`", {"uri": uri})
    if method == DIRECTORY_READ and not reads_directories(owner):
        return Reject(METHOD_NOT_FOUND, f"[{owner.label}] the server does not list directories")
    body = open_object({**params, "uri": Raw(encode(own))})
    rewrite = None
    if own != uri or not owner.takes_unlisted:
        rewrite = partial(shown_result, method, shown=_shown(owner, is_apart=own != uri))
    return Forward(owner, own, encode(method), body, rewrite=rewrite)


def found_skills(catalog: Catalog, query: str, inside: str | None) -> list[dict[str, str]]:
    """The skills that a query may mean: at least half of its words occur in their name and description."""
    wanted = set(terms(query))
    ranked: list[tuple[float, dict[str, str]]] = []
    for entry in catalog.entries() if wanted else ():
        for definition in entry.definitions("skills").values() if inside in (None, entry.toolbox) else ():
            try:
                skill = read_skill(definition)
            except (DecodeError, ValidationError):
                continue
            name, about = skill.frontmatter.name, skill.frontmatter.description
            named, described = wanted & set(terms(name)), wanted & set(terms(about))
            if 2 * len(named | described) < len(wanted):
                continue
            found = {
                "name": name,
                "uri": skill.uri,
                "description": clip(one_line(about), MAX_DESCRIPTION_BYTES),
                "toolbox_name": entry.toolbox,
                "source_server": entry.name,
            }
            ranked.append((_IN_NAME * len(named) + len(described), found))
    ranked.sort(key=lambda each: -each[0])
    return [found for _, found in ranked[:MAX_FOUND_SKILLS]]
