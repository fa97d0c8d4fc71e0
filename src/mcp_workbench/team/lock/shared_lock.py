"""What was accepted on other machines: a definition that a person accepts on one machine counts on all of a cluster.

The file that is written is that machine's. The others learn which hash takes the place of which: whoever has one of
the former hashes in their file expects the accepted one. A file that says something else, because it is newer, stands.
Owns what was accepted; what follows from it is `definition_lock`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, encode

from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, KINDS
from mcp_workbench.engine.lasting_state import ACCEPTED_DEFINITION, LastingState
from mcp_workbench.team.lock.lock_file import LockedServer, LockFile

# Hashes that one accepted definition takes the place of: it may change often, and files be older than the last change.
MAX_FORMER_HASHES: Final = 20
_ALL_LOCKED_KINDS: Final = (*KINDS, INSTRUCTIONS)


class AcceptedDefinition(Struct, rename="camel"):
    config: str
    toolbox: str
    server: str
    kind: str
    item: str
    # None: it does not exist any more. Of `former`: it did not exist yet.
    hash: str | None
    former: list[str | None]

    @property
    def key(self) -> str:
        return encode([self.config, self.toolbox, self.server, self.kind, self.item]).decode()


_decode: Final = Decoder(AcceptedDefinition).decode


class SharedLock:
    def __init__(self, state: LastingState, changed: Callable[[], None]) -> None:
        """`changed`: the lock has to be applied again."""
        self._state = state
        self._changed = changed
        self._accepted: dict[str, AcceptedDefinition] = {}
        state.follow(ACCEPTED_DEFINITION, self._on_accepted)

    def _on_accepted(self, values: dict[str, bytes]) -> None:
        before = dict(self._accepted)
        for key, value in values.items():
            try:
                read = _decode(value)
            except MsgspecError:
                continue
            if read.key == key and read.kind in _ALL_LOCKED_KINDS:
                self._accepted[key] = read
        for key in self._accepted.keys() - values.keys():
            self._state.keep(ACCEPTED_DEFINITION, "", key, encode(self._accepted[key]))
        if self._accepted != before:
            self._changed()

    def note(self, before: LockFile, after: LockFile) -> None:
        """The file has changed here: a person has accepted what is in it now."""
        for toolbox, server, kind, item in sorted({*_items(before), *_items(after)}):
            former, now = (_hash(file, toolbox, server, kind, item) for file in (before, after))
            if former == now:
                continue
            made = AcceptedDefinition(after.config, toolbox, server, kind, item, now, [former])
            known = self._accepted.get(made.key)
            if known is not None:
                others = [each for each in (*known.former, known.hash) if each not in (former, now)]
                made.former = [*others, former][-MAX_FORMER_HASHES:]
            self._accepted[made.key] = made
            self._state.keep(ACCEPTED_DEFINITION, "", made.key, encode(made))

    def applied(self, file: LockFile) -> LockFile:
        """The file, with what was accepted on other machines."""
        if not self._accepted:
            return file
        found = deepcopy(file)
        for each in self._accepted.values():
            if (
                each.config != file.config
                or _hash(file, each.toolbox, each.server, each.kind, each.item) not in each.former
            ):
                continue
            servers = found.toolboxes.setdefault(each.toolbox, {})
            servers.setdefault(each.server, LockedServer()).accept(each.kind, each.item, each.hash)
        return found


def _items(file: LockFile) -> Iterator[tuple[str, str, str, str]]:
    for toolbox, servers in file.toolboxes.items():
        for server, locked in servers.items():
            for kind in _ALL_LOCKED_KINDS:
                for item in locked.hashes(kind):
                    yield toolbox, server, kind, item


def _hash(file: LockFile, toolbox: str, server: str, kind: str, item: str) -> str | None:
    locked = file.server(toolbox, server)
    return None if locked is None else locked.hashes(kind).get(item)
