"""Which version takes the place of which."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.sharing.workbench import RunningVersion, replaces

ORDERED = ("0.0.9", "0.1.0rc1", "0.1.0rc2", "0.1.0", "0.1.1", "0.2.0", "0.10.0", "1.0.0")
versions = st.sampled_from([*ORDERED, "0.1.0+g1234567", "0.1.0+gabcdef0", "x"])
running = st.builds(RunningVersion, versions, st.floats(0, 100))


@pytest.mark.parametrize(("older", "newer"), list(pairwise(ORDERED)))
def test_a_newer_release_replaces_an_older_one_and_never_the_reverse(older: str, newer: str) -> None:
    for started in (0.0, 10.0, 20.0):
        assert replaces(RunningVersion(newer, started), RunningVersion(older, 10.0))
        assert not replaces(RunningVersion(older, started), RunningVersion(newer, 10.0))


def test_of_two_commits_the_one_that_was_started_later_replaces_the_other() -> None:
    own = RunningVersion("0.1.0+g1234567", 10.0)
    assert replaces(RunningVersion("0.1.0+gabcdef0", 20.0), own)
    assert not replaces(RunningVersion("0.1.0+gabcdef0", 5.0), own)
    assert not replaces(RunningVersion("0.1.0+gabcdef0", 0.0), own), "it does not say when"
    assert not replaces(RunningVersion("0.1.0+g1234567", 20.0), own), "the same"
    assert replaces(RunningVersion("0.1.1", 5.0), own)


@given(running, running)
def test_no_two_processes_replace_each_other_in_turn(one: RunningVersion, other: RunningVersion) -> None:
    assert not (replaces(one, other) and replaces(other, one))
    assert not replaces(one, one)
