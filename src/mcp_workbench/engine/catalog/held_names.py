"""Which tool or prompt had which exposed name, across restarts and changes of the configuration.

Agents, and the rules of clients, know tools by their exposed names. If a server that is not listed yet lost its names,
another one could list tools that take them. Servers may list something else to each user, so each has their own names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import MsgspecError
from msgspec.json import Decoder, encode

from mcp_workbench.engine.catalog.manifests import OF_USER

# Toolbox, server, and the server's own name for it.
Held = tuple[str, str, str]
# By face and kind, then by exposed name.
_Names = dict[str, dict[str, dict[str, Held]]]

_decode: Final = Decoder(_Names).decode


class BlobStore(Protocol):
    def load_blob(self, name: str) -> bytes | None: ...

    def save_blob(self, name: str, data: bytes) -> None: ...


class HeldNames:
    """The names of one configuration, for its owner (`principal` is empty) or another user. Without a store they are
    forgotten when the process ends."""

    def __init__(
        self, store: BlobStore | None, path: str, on_unsaved: Callable[[], object], principal: str = ""
    ) -> None:
        self._store = store
        # Called when there is something to save.
        self._on_unsaved = on_unsaved
        self._path = path
        self._principal = principal
        self._names: _Names = {}
        self._is_read = False
        self._is_unsaved = False
        # Incremented when more becomes known than faces have noted themselves.
        self.version = 0

    def read(self) -> bytes | None:
        """Read what is stored. Changes nothing, so it can run in a thread."""
        return None if self._store is None or self._is_read else self._store.load_blob(self._name())

    def take(self, stored: bytes | None) -> None:
        """Use what was read. Names that were given meanwhile stay."""
        if self._is_read:
            return
        self._is_read = True
        try:
            names = {} if stored is None else _decode(stored)
        except (MsgspecError, UnicodeError):
            return
        for face, kinds in names.items():
            for kind, held in kinds.items():
                noted = self._names.setdefault(face, {})
                noted[kind] = held | noted.get(kind, {})
        self.version += 1

    def of(self, face: str, kind: str) -> Mapping[str, Held]:
        return self._names.get(face, {}).get(kind, {})

    def note(self, face: str, kind: str, held: dict[str, Held]) -> None:
        """Remember who has which name now."""
        if self._names.get(face, {}).get(kind, {}) == held:
            return
        self._names.setdefault(face, {})[kind] = held
        # Not before what is stored has been read: it would be lost.
        if self._store is not None and self._is_read:
            self._is_unsaved = True
            self._on_unsaved()

    def unsaved(self) -> Callable[[], None] | None:
        """What saves the names as they are now, in any thread; None if they are saved."""
        store = self._store
        if store is None or not self._is_unsaved:
            return None
        self._is_unsaved = False
        data = encode(self._names)
        return lambda: store.save_blob(self._name(), data)

    def _name(self) -> str:
        # Not on the start-up path.
        import hashlib

        written = f"{self._principal}\0{self._path}" if self._principal else self._path
        digest = hashlib.sha256(written.encode(errors="surrogatepass")).hexdigest()[:32]
        return f"{OF_USER if self._principal else ''}names-{digest}"
