"""What the servers of several users list, kept once where it is the same: most users are shown the same tools.

Content decides, by a hash; who is shown what is for others. Imported with the first user other than our own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.catalog.offer import KINDS, Definitions, Offer

_Key = tuple[str, str, tuple[int, ...]]


class Offering(Protocol):
    """A server of one user (`ServerEntry`)."""

    toolbox: str
    offer: Offer | None

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Offering)


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


class DistinctOffers(Generic[Entry]):
    """Which offers a server makes to all users of a workbench. Users are many and distinct offers few, so whoever wants
    to know does not look at every user."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        # By server, by what it lists: the entries that list it.
        self._holders: dict[tuple[str, str], dict[tuple[int, ...], dict[Entry, None]]] = {}
        self._keys: dict[Entry, _Key] = {}
        for entry in entries:
            self.note(entry)

    def note(self, entry: Entry) -> None:
        """It may list something else than before."""
        self.drop(entry)
        offer = entry.offer
        if offer is None:
            return
        # Lists of users are kept once, those that are empty aside. As long as an entry is here it has its lists, and no
        # others have their identity.
        lists = tuple(id(each) if (each := offer.lists.get(kind)) else 0 for kind in KINDS)
        self._holders.setdefault((entry.toolbox, entry.name), {}).setdefault(lists, {})[entry] = None
        self._keys[entry] = entry.toolbox, entry.name, lists

    def drop(self, entry: Entry) -> None:
        """Nobody is shown it any more."""
        if (key := self._keys.pop(entry, None)) is not None:
            toolbox, name, lists = key
            of_server = self._holders[toolbox, name]
            del of_server[lists][entry]
            if not of_server[lists]:
                del of_server[lists]

    def beside(self, entry: Entry) -> Iterator[Entry]:
        """Entries of the same server for other users, one for each distinct offer."""
        for holders in self._holders.get((entry.toolbox, entry.name), {}).values():
            other = next((each for each in holders if each is not entry), None)
            if other is not None:
                yield other
