"""Arguments that most tools of a server share, shown only once.

Owns the choice of what is shared, and whether that is shorter. A signature that has all shared arguments ends with `+`,
and one line says what `+` stands for; a signature with only some of them is written in full. Nothing is omitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

SIGN = "+"
_MIN_TOOLS = 3
# The percentage of the shown tools of a server that must have an argument for it to be shared.
_MIN_SHARED_PERCENT = 60
# Fewer characters are read faster than looked up.
_SHORTEST = 24


def shared(signatures: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The arguments, as written, that are worth showing once for these signatures."""
    if len(signatures) < _MIN_TOOLS:
        return ()
    counts = Counter(argument for written in signatures for argument in dict.fromkeys(written))
    common = [each for each, count in counts.items() if count * 100 >= _MIN_SHARED_PERCENT * len(signatures)]
    # Drop the rarest first, until enough tools have all that remain.
    common.sort(key=lambda each: -counts[each])
    while common:
        having = sum(set(common) <= set(written) for written in signatures)
        # The comma and the space of each go with it; the sign takes their place once.
        saved = having * (sum(len(each) + 2 for each in common) - len(SIGN) - 2)
        if having >= _MIN_TOOLS and len(", ".join(common)) >= _SHORTEST and saved > len(legend(common)):
            order = {each: number for number, each in enumerate(counts)}
            return tuple(sorted(common, key=order.__getitem__))
        common.pop()
    return ()


def legend(common: Iterable[str]) -> str:
    """The line that explains `+`."""
    return f"{SIGN} = {', '.join(common)}"


def shortened(written: Sequence[str], common: Sequence[str]) -> list[str]:
    """A signature's arguments with `+` for the shared ones, if it has all of them."""
    if not common or not set(common) <= set(written):
        return list(written)
    return [*(each for each in written if each not in common), SIGN]
