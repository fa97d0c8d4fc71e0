"""Counts the tokens of all definitions of tools, and those that lists leave out: the former, less what a client got.

What a toolbox takes when an agent opens it is not subtracted. Loaded with the first list of a workbench that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.economy.costs import definition_tokens


class SavedTokens:
    """Remembers what each catalogue would take: counting takes milliseconds for hundreds of tools."""

    def __init__(self) -> None:
        self._full: WeakKeyDictionary[Catalog, tuple[int, dict[str, int]]] = WeakKeyDictionary()

    def of_list(self, catalog: Catalog, shown: Sequence[bytes]) -> Iterator[tuple[str, int]]:
        """The tokens that a list of these definitions leaves out of each toolbox. What it has is spread over all."""
        full = self.of_toolboxes(catalog)
        total = sum(full.values())
        left_out = total - sum(definition_tokens(each) for each in shown)
        if left_out > 0:
            for toolbox, tokens in full.items():
                if saved := tokens * left_out // total:
                    yield toolbox, saved

    def of_toolboxes(self, catalog: Catalog) -> dict[str, int]:
        """What the definitions of each toolbox take. Counted again only when something has changed."""
        known = self._full.get(catalog)
        if known is None or known[0] != catalog.revision:
            counted = {
                name: sum(definition_tokens(each) for entry in servers.values() for each in entry.tools.values())
                for name, servers in catalog.toolboxes.items()
            }
            known = self._full[catalog] = (catalog.revision, counted)
        return known[1]


def fullest(catalogs: Iterable[Catalog]) -> dict[str, Catalog]:
    """By toolbox, the catalogue in which most of its servers are listed; of several, the first.

    Where an offer depends on the folder, the catalogue of a client's folder knows more than that of none."""
    found: dict[str, tuple[int, Catalog]] = {}
    for catalog in catalogs:
        for name, servers in catalog.toolboxes.items():
            listed = sum(entry.offer is not None for entry in servers.values())
            if name not in found or listed > found[name][0]:
                found[name] = listed, catalog
    return {name: catalog for name, (_, catalog) in found.items()}
