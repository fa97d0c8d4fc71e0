"""Which worker runs which tests when they run side by side.

One worker runs a file, in its order, and one runs all files of a folder whose tests share what takes long to set up.
pytest-xdist has `loadgroup` for that, but version 3.8 writes the groups into the names of the tests, which pytest 9.2
does not allow: nothing fails, and every worker sets everything up again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling


class FilesTogether(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out files, and the folders in `whole`, in the order in which they were collected."""

    def __init__(self, config: Any, log: Producer, whole: Collection[str]) -> None:
        super().__init__(config, log)
        # Otherwise the files with most tests come first, which are those with many small ones.
        config.option.loadscopereorder = False
        self._whole = frozenset(whole)

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        folder = path.rpartition("/")[0]
        return folder if folder in self._whole else path
