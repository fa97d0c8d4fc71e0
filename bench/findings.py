"""What a measurement found, as values: samples of each subject, and the verdict against a target.

Owns the arithmetic from samples to verdict. Refuses to know how samples were taken and how findings are printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

Unit = Literal["s", "calls/s", "B", "instructions"]
Samples = Mapping[str, Sequence[float]]

DIRECT = "direct"
FORWARDER = "forwarder"
WORKBENCH = "workbench"
SHARED = "shared"
AUDITED = "workbench with an audit"
COUNTING = "workbench that counts calls"
UNCOUNTED = "workbench that counts no calls"
GUARDED = "workbench with a key, a policy and an audit"
FORWARDED = "forwarder before a workbench"


class Value(NamedTuple):
    """The samples of one subject, one a round."""

    subject: str
    unit: Unit
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.samples)


class Verdict(NamedTuple):
    """One target and where we stand. `measured` and `bound` are in the unit that `form` formats."""

    what: str
    measured: float
    bound: float
    at_least: bool
    form: Literal["×", "%", "s", "B"]

    @property
    def passed(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


class Finding(NamedTuple):
    """One measurement, whole."""

    name: str
    title: str
    values: tuple[Value, ...]
    verdict: Verdict


def values_of(samples: Samples, unit: Unit) -> tuple[Value, ...]:
    return tuple(Value(subject, unit, tuple(numbers)) for subject, numbers in samples.items())


def added_against_forwarder(samples: Samples) -> float:
    """How many times what the forwarder adds to a direct call the workbench adds; each a median over the rounds."""
    direct = median(samples[DIRECT])
    forwarder = median(samples[FORWARDER]) - direct
    # A forwarder that costs nothing is noise, and no number of times zero would be honest.
    return (median(samples[WORKBENCH]) - direct) / forwarder if forwarder > 0 else float("inf")


def share_of(samples: Samples, subject: str, whole: str) -> float:
    return median(samples[subject]) / median(samples[whole])


def added_in_rounds(samples: Samples, subject: str, whole: str) -> float:
    """The median of what was added in each round. Rounds follow each other, so that another workload, which comes and
    goes, makes both slower; a difference of medians may compare a quiet moment with a busy one."""
    return median(one - other for one, other in zip(samples[subject], samples[whole], strict=True))


def share_in_rounds(samples: Samples, subject: str, whole: str) -> float:
    """The same as a share."""
    return median(one / other for one, other in zip(samples[subject], samples[whole], strict=True))


def added_to_direct(samples: Samples) -> float:
    return median(samples[WORKBENCH]) - median(samples[DIRECT])


def beyond_definition(small: float, large: float, further_tools: int, further_definition_bytes: int) -> float:
    """Bytes of memory for each further tool, its definition not counted."""
    return (large - small - further_definition_bytes) / further_tools
