"""Did you mean: finds the known names that are most similar to a wrong one.

One pure function, for toolboxes, servers, tools and configuration keys alike. The work is bounded: a cheap comparison
with every candidate selects a few, and only for these is the edit distance computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, pairwise

# A model can send kilobytes instead of a name; anything beyond this is ignored.
_MAX_COMPARED_LENGTH = 96
_MAX_COMPARED_NAMES = 20_000
# Edit distance takes about 0.1 ms for names of twenty characters, so this many take a few milliseconds.
_MEASURED = 40
# A shorter string is part of too many names: `a` is in nearly all of them.
_MIN_PART_LENGTH = 3
_WORD_BREAKS = str.maketrans("_-./:", "     ")


def nearest(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """At most `limit` of `candidates` that may have been meant, best first; empty if none is similar."""
    wanted = _folded(name)
    if not wanted or limit < 1:
        return []
    found = []
    for order, candidate in enumerate(_likeliest(wanted, candidates)):
        score = _score(wanted, _folded(candidate))
        if score is not None:
            found.append((score, order, candidate))
    found.sort()
    return [candidate for _, _, candidate in found[:limit]]


def _folded(name: str) -> str:
    return name[:_MAX_COMPARED_LENGTH].strip().casefold()[:_MAX_COMPARED_LENGTH]


def _likeliest(wanted: str, candidates: Iterable[str]) -> list[str]:
    """The candidates that share most pairs of neighbouring letters with `wanted`, in a stable order."""
    unique = list(dict.fromkeys(islice(candidates, _MAX_COMPARED_NAMES)))
    if len(unique) <= _MEASURED:
        return unique
    letters = set(wanted)
    pairs = set(pairwise(wanted))

    def unlikeness(candidate: str) -> int:
        other = _folded(candidate)
        if other == wanted:
            return -1_000_000
        if _is_one_slip(wanted, other):
            # Always first: among ten thousand names of one pattern, hundreds share all their pairs.
            return -500_000
        shared = 4 * len(pairs.intersection(pairwise(other))) + 2 * len(letters.intersection(other))
        return abs(len(other) - len(wanted)) - shared

    return sorted(unique, key=unlikeness)[:_MEASURED]


def _is_one_slip(left: str, right: str) -> bool:
    """Whether they differ by one extra, missing or wrong letter, or by two swapped ones."""
    if abs(len(left) - len(right)) > 1:
        return False
    # Binary search for the first difference: a loop over the letters would take five times as long.
    at, end = 0, min(len(left), len(right))
    while at < end:
        middle = (at + end + 1) // 2
        if left[:middle] == right[:middle]:
            at = middle
        else:
            end = middle - 1
    rest, other = left[at + 1 :], right[at + 1 :]
    if rest == other or rest == right[at:] or left[at:] == other:
        return True
    return left[at : at + 2] == right[at : at + 2][::-1] and rest[1:] == other[1:]


def _score(wanted: str, other: str) -> float | None:
    """The distance of `other` from `wanted`, 0 if equal; None if it is not a sensible guess."""
    if other == wanted:
        return 0.0
    if not other:
        return None
    # `issue_create` for `create-issue`: the same words, in another order or joined otherwise.
    if sorted(_words(wanted)) == sorted(_words(other)):
        return 0.5
    longer, shorter = max(len(wanted), len(other)), min(len(wanted), len(other))
    # One slip in three letters at most: with more, anything is near anything.
    distance = _distance(wanted, other, max(1, longer // 3))
    if distance is not None and distance < longer:
        return float(distance)
    if shorter >= _MIN_PART_LENGTH:
        extra = (longer - shorter) / longer
        if other.startswith(wanted) or wanted.startswith(other):
            return 20.0 + extra
        if wanted in other or other in wanted:
            return 21.0 + extra
        if wanted[0] == other[0] and (_subsequence(wanted, other) or _subsequence(other, wanted)):
            return 22.0 + extra
    return None


def _words(name: str) -> list[str]:
    return name.translate(_WORD_BREAKS).split()


def _subsequence(short: str, long: str) -> bool:
    letters = iter(long)
    return all(letter in letters for letter in short)


def _distance(left: str, right: str, most: int) -> int | None:
    """The number of insertions, deletions, replacements and swaps of neighbours; None if more than `most`."""
    if abs(len(left) - len(right)) > most:
        return None
    before: list[int] = []
    previous = list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        current = [row]
        for column, other in enumerate(right, 1):
            cost = min(
                previous[column] + 1,
                current[column - 1] + 1,
                previous[column - 1] + (letter != other),
            )
            if row > 1 and column > 1 and letter == right[column - 2] and left[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        # Both rows, because a swap of neighbours reaches back over one.
        if min(current) > most and min(previous) > most:
            return None
        before, previous = previous, current
    return previous[-1] if previous[-1] <= most else None


def ambiguous(name: str, paths: Iterable[str]) -> str:
    """The message for a name that several things have."""
    return f"`{name}` is ambiguous: it can be {' or '.join(f'`{path}`' for path in paths)}; write the full path"
