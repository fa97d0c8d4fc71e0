"""Arguments that most tools of a server share, said once.

Owns the choice: what is shared, and whether saying it once is shorter. A signature that has all of it ends with `+`,
and one line says what `+` stands for; a signature that has only a part of it is written out. Nothing is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

SIGN = "+"
_FEWEST_TOOLS = 3
# Of the tools that are shown of a server, this many in a hundred have an argument that is shared.
_MOST_OF_THEM = 60
# One short argument is read sooner than looked up.
_SHORTEST = 24


def shared(signatures: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The arguments, as they are written, that it pays to say once for these signatures."""
    if len(signatures) < _FEWEST_TOOLS:
        return ()
    counts = Counter(argument for written in signatures for argument in dict.fromkeys(written))
    common = [each for each, count in counts.items() if count * 100 >= _MOST_OF_THEM * len(signatures)]
    # Without the rarest ones first, until enough tools have all that is left.
    common.sort(key=lambda each: -counts[each])
    while common:
        having = sum(set(common) <= set(written) for written in signatures)
        saved = having * (sum(len(each) + 2 for each in common) - len(SIGN) - 2)
        if having >= _FEWEST_TOOLS and len(", ".join(common)) >= _SHORTEST and saved > len(legend(common)):
            order = {each: number for number, each in enumerate(counts)}
            return tuple(sorted(common, key=order.__getitem__))
        common.pop()
    return ()


def legend(common: Iterable[str]) -> str:
    """What the sign stands for."""
    return f"{SIGN} = {', '.join(common)}"


def shortened(written: Sequence[str], common: Sequence[str]) -> list[str]:
    """A signature's arguments with the sign for what is shared, if it has all of that."""
    if not common or not set(common) <= set(written):
        return list(written)
    return [*(each for each in written if each not in common), SIGN]
