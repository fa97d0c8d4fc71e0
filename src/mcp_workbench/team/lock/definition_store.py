"""The definitions that were locked on this machine, by hash, to show differences against."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final

from msgspec import Raw

from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.engine.own_files import replace_whole
from mcp_workbench.team.lock.lock_file import canonical_definition, definition_hash

# Definitions may be up to 64 MiB; differences of that size are not readable.
MAX_STORED_DEFINITION_BYTES: Final = 1024 * 1024
_HASH_PREFIX: Final = "sha256:"


class DefinitionStore:
    """A folder of the user's. Without one, nothing is kept."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def known(self, hash: str) -> bytes | None:
        """The definition with this hash; None if it was locked elsewhere, or the file was changed."""
        digits = hash.removeprefix(_HASH_PREFIX)
        if self._folder is None or len(digits) != 64 or not digits.isalnum():
            return None
        try:
            with open(os.path.join(self._folder, digits), "rb") as file:
                found = file.read(MAX_STORED_DEFINITION_BYTES + 1)
        except OSError:
            return None
        return found if definition_hash(Raw(found)) == hash else None

    def keep(self, definitions: Iterable[Raw]) -> None:
        """Store definitions. A full disk is no reason to fail: the lock is what counts."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            for definition in definitions:
                content = canonical_definition(definition)
                path = os.path.join(self._folder, definition_hash(definition).removeprefix(_HASH_PREFIX))
                if len(content) > MAX_STORED_DEFINITION_BYTES or os.path.exists(path):
                    continue
                replace_whole(path, content)


def default_folder() -> str | None:
    return state_path("locked-definitions")
