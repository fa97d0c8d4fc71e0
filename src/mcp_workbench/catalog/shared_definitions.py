"""What the servers of several users list, kept once where it is the same: most users are shown the same tools.

Content decides, by a hash; who is shown what is for others. Imported with the first user other than our own.
"""

from __future__ import annotations

import hashlib
from typing import Final
from weakref import WeakValueDictionary

from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.catalog.offer import Definitions, Offer


class _SharedDefinitions(dict[str, Raw]):
    """A list of definitions that can be let go of when nobody shows it any more."""

    __slots__ = ("__weakref__",)


class _SharedList(list[bytes]):
    """The same for a list as it is shown."""

    __slots__ = ("__weakref__",)


_known: Final[WeakValueDictionary[bytes, _SharedDefinitions]] = WeakValueDictionary()
_shown: Final[WeakValueDictionary[bytes, _SharedList]] = WeakValueDictionary()


def shared(offer: Offer) -> Offer:
    """The same offer, with lists that another may have already. Lists are replaced, never changed."""
    return replace(offer, lists={kind: _one_for_all(each) for kind, each in offer.lists.items()})


def shared_list(definitions: list[bytes]) -> list[bytes]:
    """The same list, which another may be shown already: a face writes every tool under a name of its own."""
    digest = hashlib.sha256()
    for definition in definitions:
        digest.update(b"%d " % len(definition))
        digest.update(definition)
    known = _shown.get(digest.digest())
    if known is None:
        known = _shown[digest.digest()] = _SharedList(definitions)
    return known


def _one_for_all(definitions: Definitions) -> Definitions:
    if not definitions:
        return definitions
    digest = hashlib.sha256()
    for name, definition in definitions.items():
        # With lengths, so that no two lists read alike.
        digest.update(b"%d %d " % (len(name), memoryview(definition).nbytes))
        digest.update(name.encode(errors="surrogatepass"))
        digest.update(definition)
    known = _known.get(digest.digest())
    if known is None:
        known = _known[digest.digest()] = _SharedDefinitions(definitions)
    return known
