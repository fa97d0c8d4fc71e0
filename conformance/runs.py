"""Every run that is shown: the everything-server alone, the eight combinations through the workbench, the client half.

Decides what is run and side by side with what. How processes are started is `stage`'s business, how they are tested
the suite's.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.stage import Era, Transport, check_alive, everything_over_http, server_entry, workbench
from conformance.suite import REVISIONS, Outcome, Score, Suite

# Runs wait most of their time; more than this many at once, and calls that the suite times would be late.
SIDE_BY_SIDE: Final = 2


@dataclass(frozen=True)
class Combination:
    """One revision that the suite's client speaks, through the workbench, to one kind of server."""

    revision: str
    transport: Transport
    era: Era

    def __str__(self) -> str:
        return f"{self.revision}-{self.transport}-{self.era}"


COMBINATIONS: Final = tuple(
    Combination(revision, transport, era)
    for revision in REVISIONS
    for transport in ("stdio", "http")
    for era in ("legacy", "modern")
)


def run_direct(suite: Suite, revision: str) -> Score:
    """The everything-server without the workbench: what can be reached at all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with everything_over_http("both", folder) as url:
            check_alive(url)
            score = suite.test_server(url, revision, folder / "results")
            check_alive(url)
    return score


def run_combination(suite: Suite, combination: Combination) -> Score:
    """One of the eight."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if combination.transport == "stdio":
            return _run_through(suite, combination, "", folder)
        with everything_over_http(combination.era, folder) as server_url:
            return _run_through(suite, combination, server_url, folder)


def _run_through(suite: Suite, combination: Combination, server_url: str, folder: Path) -> Score:
    with workbench(server_entry(combination.transport, combination.era, server_url), folder) as url:
        check_alive(url)
        score = suite.test_server(url, combination.revision, folder / "results")
        check_alive(url)
    return score


def run_combinations(suite: Suite, combinations: Sequence[Combination]) -> dict[Combination, Score]:
    """Some of the eight, side by side."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        scores = threads.map(lambda combination: run_combination(suite, combination), combinations)
        return dict(zip(combinations, scores, strict=True))


def client_scenarios(suite: Suite) -> list[tuple[str, str]]:
    """Revision and name of everything that the suite requires of a client, signing in aside."""
    return [
        (revision, name)
        for revision in REVISIONS
        for name in suite.required(revision, "client")
        if not name.startswith("auth/")
    ]


def run_client_scenario(suite: Suite, revision: str, scenario: str) -> Outcome:
    """The workbench's client half against a server that the suite plays."""
    with tempfile.TemporaryDirectory() as name:
        command = (sys.executable, "-m", "conformance.client_driver")
        return suite.test_client(command, scenario, revision, Path(name))
