"""The stored form of a search index, and how it is made from a catalogue.

Owns the weights of fields and the part of BM25F that does not depend on a query. Knows nothing about queries.

For each term, there is a run of tool numbers and a run of saturated frequencies of one byte each, and the same for
names only. So 3,000 tools take about a megabyte, in bytes that are stored as they are and used where they were read.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from math import log
from operator import sub
from zlib import crc32

import msgspec

from mcp_workbench.engine.economy.fields import Fields
from mcp_workbench.engine.economy.terms import Splitter, runs

# Raised with every change to terms, weights or layout: an index on disk outlives an update.
INDEX_VERSION = 7
# Arrays are written as they are in memory, so a file of another architecture (a shared home) does not fit.
TAG = f"economy-index/{INDEX_VERSION}/{sys.byteorder}/{array('I').itemsize}"

# For each field, the weight of an occurrence, and how much a longer field than average reduces it. Measured by
# `bench/context`: results hold over wide ranges, so these are round numbers from the middle. In the order of `Fields`.
FIELDS: dict[str, tuple[float, float]] = {
    "name": (3.0, 0.3),
    "lead": (2.0, 0.5),
    "arguments": (1.0, 0.3),
    "place": (2.0, 0.3),
    "rest": (1.2, 0.5),
}
_NAME_FIELD = 0
SATURATION = 1.2
STEPS = 255  # Frequencies and shares are kept in a byte.
_CHECKSUM = 4  # Bytes in front of everything else.
_BYTES = array("I").itemsize
_LOWEST_BYTE = 0 if sys.byteorder == "little" else _BYTES - 1
# Terms that more than this fraction of all tools have are dropped unless they are prominent: they do not affect the
# ranking, and queries would spend most of their time on them.
COMMON_SHARE = 0.05
IN_PASSING = STEPS // 4
_NEVER_COMMON = 50  # In a small catalogue every occurrence counts, and costs almost nothing.


class Postings(msgspec.Struct, array_like=True, frozen=True):
    """A stored index. The run of term `i` spans `starts[i]` to `starts[i + 1]`."""

    tag: str
    stamp: str
    keys: list[str]
    terms: list[str]
    starts: memoryview
    tools: memoryview
    frequencies: memoryview
    name_starts: memoryview
    name_tools: memoryview
    name_shares: memoryview


def rarity(tools: int, having: int) -> float:
    """The inverse document frequency of a term that `having` of all `tools` contain."""
    return log(1 + (tools - having + 0.5) / (having + 0.5))


def post(catalogue: list[tuple[str, Fields]], stamp: str) -> Postings:
    """Index a catalogue of keys and texts."""
    texts = _split([texts for _, texts in catalogue])
    # One number for each occurrence, with the tool in the high bits and the saturated frequency in the low ones, so
    # that only one list grows.
    occurrences: defaultdict[str, list[int]] = defaultdict(list)
    for number, weights in enumerate(_weighted(texts)):
        place = number * (STEPS + 1)
        for term, value in weights.items():
            occurrences[term].append(place + (int(STEPS * value / (value + SATURATION)) or 1))
    common = max(len(texts) * COMMON_SHARE, _NEVER_COMMON)
    for term, found in occurrences.items():
        if len(found) > common:
            occurrences[term] = [each for each in found if each & STEPS >= IN_PASSING]
    terms = sorted(occurrences)
    names = [dict.fromkeys(found[: lengths[_NAME_FIELD]]) for found, lengths in texts]
    name_tools, name_shares = _name_shares(names, {term: rarity(len(texts), len(occurrences[term])) for term in terms})
    # Viewed as bytes, the numbers of all occurrences already contain the frequencies and the tools.
    every = array("I", [*chain.from_iterable(map(occurrences.__getitem__, terms))]).tobytes()
    return Postings(
        tag=TAG,
        stamp=stamp,
        keys=[key for key, _ in catalogue],
        terms=terms,
        starts=_starts(occurrences, terms),
        tools=_without_lowest_byte(every),
        frequencies=memoryview(every[_LOWEST_BYTE::_BYTES]),
        name_starts=_starts(name_tools, terms),
        name_tools=_view(array("I", chain.from_iterable(map(name_tools.__getitem__, terms)))),
        name_shares=memoryview(bytes(chain.from_iterable(map(name_shares.__getitem__, terms)))),
    )


def _split(catalogue: list[Fields]) -> list[tuple[list[str], tuple[int, ...]]]:
    """The terms of each tool, field by field, and the number of terms in each field.

    One list for each tool: the fewer objects, the less work for the garbage collector while the index is built."""
    split = Splitter().__getitem__
    every = []
    for texts in catalogue:
        found: list[str] = []
        ends = [0]
        for text in texts:
            found += chain.from_iterable(map(split, runs(text)))
            ends.append(len(found))
        every.append((found, tuple(map(sub, ends[1:], ends))))
    return every


def _weighted(catalogue: list[tuple[list[str], tuple[int, ...]]]) -> Iterator[dict[str, float]]:
    """The terms of each tool, with occurrences weighted by field and by the length of that field."""
    usual = [sum(column) / len(column) or 1.0 for column in zip(*(lengths for _, lengths in catalogue), strict=True)]
    for found, lengths in catalogue:
        weights: dict[str, float] = {}
        get = weights.get
        start = 0
        for length, ordinary, (weight, by_length) in zip(lengths, usual, FIELDS.values(), strict=True):
            each = weight / (1 - by_length + by_length * length / ordinary)
            for term in found[start : start + length]:
                weights[term] = get(term, 0.0) + each
            start += length
        yield weights


def _name_shares(
    names: list[dict[str, None]], worth: dict[str, float]
) -> tuple[defaultdict[str, list[int]], defaultdict[str, list[int]]]:
    """For each term, the tools with it in their name, and its share of the name's total weight."""
    tools: defaultdict[str, list[int]] = defaultdict(list)
    shares: defaultdict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        whole = sum(map(worth.__getitem__, name))
        for term in name:
            tools[term].append(number)
            shares[term].append(int(STEPS * worth[term] / whole))
    return tools, shares


def _starts(runs_of: defaultdict[str, list[int]], terms: list[str]) -> memoryview:
    return _view(array("I", accumulate((len(runs_of[term]) for term in terms), initial=0)))


def _without_lowest_byte(numbers: bytes) -> memoryview:
    """Each of the numbers, divided by 256."""
    is_little = sys.byteorder == "little"
    shifted = bytearray(numbers[1:] + b"\0" if is_little else b"\0" + numbers[:-1])[: len(numbers)]
    # What came in from the neighbour.
    shifted[_BYTES - 1 - _LOWEST_BYTE :: _BYTES] = bytes(len(numbers) // _BYTES)
    return memoryview(bytes(shifted))


def _view(numbers: array[int]) -> memoryview:
    return memoryview(numbers.tobytes())


def numbers(view: memoryview) -> Sequence[int]:
    """The numbers that a part of the postings consists of, where they are."""
    # A view of nothing cannot be cast.
    return view.cast("I") if view else array("I")


def written(postings: Postings) -> bytes:
    data = msgspec.msgpack.encode(postings)
    return crc32(data).to_bytes(_CHECKSUM) + data


def read(data: bytes) -> Postings | None:
    """Read what `written` has written; None if it is damaged or of another version."""
    body = memoryview(data)[_CHECKSUM:]
    # A damaged file must not crash a search. To check every number would take longer than to read them.
    if crc32(body).to_bytes(_CHECKSUM) != data[:_CHECKSUM]:
        return None
    try:
        postings = msgspec.msgpack.decode(body, type=Postings)
    except (msgspec.DecodeError, ValueError):
        return None
    return postings if postings.tag == TAG else None
