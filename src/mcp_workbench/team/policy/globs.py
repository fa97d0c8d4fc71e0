"""Globs in rules: `*` matches any text, `?` one character, everything else itself. Pure.

Both match a slash too. Matching takes linear time, whatever the text: arguments are chosen by agents, and may be
megabytes.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct


# As many as a policy of the largest size can have.
@lru_cache(maxsize=4096)
def compiled(glob: str) -> re.Pattern[str]:
    # `translate` makes each `*` an atomic group, which never backtracks. Brackets have no meaning here.
    return re.compile(translate(glob.replace("[", "[[]")))


def fits(glob: str, text: str) -> bool:
    return compiled(glob).match(text) is not None


def takes_all(glob: str) -> bool:
    """Whether every text matches."""
    return not glob.strip("*") and bool(glob)


class PathGlob(Struct, frozen=True):
    """A glob for `toolbox/server/item`, split at its first two slashes, so that names are compared part by part: a
    toolbox named `a/b` is not a server `b` in a toolbox `a`. Missing parts match anything."""

    toolbox: str
    server: str = "*"
    item: str = "*"

    @classmethod
    def read(cls, written: str) -> PathGlob:
        return cls(*written.split("/", 2))

    def reaches(self, toolbox: str, server: str) -> bool:
        """Whether it may match items of this server."""
        return fits(self.toolbox, toolbox) and fits(self.server, server)

    def fits(self, toolbox: str, server: str, item: str) -> bool:
        return fits(self.item, item) and self.reaches(toolbox, server)
