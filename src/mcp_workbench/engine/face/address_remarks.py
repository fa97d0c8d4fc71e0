"""Remarks about resource addresses: those that two servers list, our own, and templates that match any. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.uris import shared_addresses, takes_all
from mcp_workbench.engine.face.wording import shared_text


def address_remarks(entries: Sequence[ServerEntry], own: str) -> list[str]:
    """Remarks about these servers; `own` is our own address."""
    return [
        *(
            shared_text(rivals, shared)
            for kind in ("resources", "resourceTemplates")
            for rivals, shared in shared_addresses(entries, kind).items()
        ),
        *_about_single_servers([entry for entry in entries if entry.has_resources], own),
    ]


def _about_single_servers(having: Sequence[ServerEntry], own: str) -> Iterator[str]:
    for entry in having:
        for template in entry.definitions("resourceTemplates"):
            if len(having) > 1 and takes_all(template):
                yield (
                    f"`{entry.label}` has the resource template `{template[:200]}`, which fits every address; it is "
                    "asked only for those that no other server offers"
                )
    for entry in having:
        if own in entry.definitions("resources"):
            yield f"`{entry.label}` lists `{own}`, an address of the workbench itself; it is left out"
