"""Whether a process of one version takes the place of an idle workbench of another. Pure.

An update in place leaves running processes alone, so old front ends meet a new workbench, and must not end it. Of two
releases the newer one counts. Commits between releases have no order; of those, the process that was started later runs
what was installed later.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


class RunningVersion(NamedTuple):
    """What a process runs, and since when."""

    # As `version.full_version` has it.
    version: str
    # By the monotonic clock of the machine; 0 if it does not say.
    started: float


def replaces(other: RunningVersion, own: RunningVersion) -> bool:
    """Whether the other one replaces us, if nobody is served."""
    if other.version == own.version:
        return False
    others, ours = _order(other.version), _order(own.version)
    return others > ours or (others == ours and other.started > own.started)


def _order(version: str) -> tuple[tuple[int, ...], bool, str]:
    """`1.0.0rc1` comes before `1.0.0`, which is the same release as `1.0.0+g1ee18ce`."""
    public = version.partition("+")[0]
    found = _NUMBERS.match(public)
    numbers = tuple(map(int, found[0][:50].split("."))) if found else ()
    rest = public[found.end() :] if found else public
    return numbers, not rest, rest
