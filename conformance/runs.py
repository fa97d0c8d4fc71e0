"""Every run that is shown: the everything-server alone, every combination through the workbench, the client half.

Decides what is run and side by side with what. How processes are started is `stage`'s business, how they are tested
the suite's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.processes import (
    MODERN,
    Era,
    Transport,
    Trouble,
    behind_front_end,
    check_alive,
    everything_over_http,
    server_entry,
    workbench,
)
from conformance.suite import REVISIONS, Outcome, Score, Suite

# Runs wait most of their time; more than this many at once, and calls that the suite times would be late.
SIDE_BY_SIDE: Final = 2
# How the suite names what has to do with signing in.
AUTH: Final = "auth/"
# What the suite runs about signing in and scores for nobody, and whether it holds;
# docs/internals/conformance.md says why not.
AUTH_EXTENSIONS: Final = {
    "client-credentials-jwt": True,
    "client-credentials-basic": True,
    "2025-03-26-oauth-metadata-backcompat": True,
    "2025-03-26-oauth-endpoint-fallback": True,
    "enterprise-managed-authorization": True,
    "dpop": True,
    "dpop-nonce": True,
    "wif-jwt-bearer": True,
}


@dataclass(frozen=True)
class Combination:
    """One revision that the suite's client speaks, through the workbench, to one kind of server."""

    revision: str
    transport: Transport
    era: Era

    def __str__(self) -> str:
        return f"{self.revision}-{self.transport.replace(' ', '-')}-{self.era}"


TRANSPORTS: Final[tuple[Transport, ...]] = ("stdio", "http", "front end")
ERAS: Final[tuple[Era, ...]] = ("legacy", "modern", "both")
COMBINATIONS: Final = tuple(
    Combination(revision, transport, era) for revision in REVISIONS for transport in TRANSPORTS for era in ERAS
)


def run_direct(suite: Suite, revision: str, folder: Path) -> Score:
    """The everything-server without the workbench: what can be reached at all."""
    with everything_over_http("both", folder) as url:
        return _test(suite, url, revision, folder)


def run_combination(suite: Suite, combination: Combination, folder: Path) -> Score:
    """One of them. Logs and results are left in `folder`."""
    transport, era = combination.transport, combination.era
    with ExitStack() as stack:
        server_url = stack.enter_context(everything_over_http(era, folder)) if transport == "http" else ""
        server = server_entry(transport, era, server_url)
        if transport == "front end":
            server = stack.enter_context(behind_front_end(server, folder))
        url = stack.enter_context(workbench(server, folder))
        return _test(suite, url, combination.revision, folder)


def _test(suite: Suite, url: str, revision: str, folder: Path) -> Score:
    check_alive(url)
    score = suite.test_server(url, revision, folder / "results")
    check_alive(url)
    return score


def run_combinations(suite: Suite, combinations: Sequence[Combination], folder: Path) -> dict[Combination, Score]:
    """Some of them, side by side."""

    def run(combination: Combination) -> Score:
        place = folder / str(combination)
        place.mkdir(parents=True)
        try:
            return run_combination(suite, combination, place)
        except Trouble as trouble:
            # Nothing counts of a run in which the server was gone, whatever the suite thinks that it saw.
            missed = suite.required(combination.revision, "server")
            return Score(tuple(Outcome(name, False, (str(trouble),)) for name in missed))

    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        return dict(zip(combinations, threads.map(run, combinations), strict=True))


def client_scenarios(suite: Suite) -> list[tuple[str, str]]:
    """Revision and name of everything that the suite requires of a client, signing in aside."""
    return [pair for pair in _required_of_clients(suite) if not pair[1].startswith(AUTH)]


def auth_scenarios(suite: Suite) -> list[tuple[str, str]]:
    """Revision and name of everything that the suite requires of a client that signs in."""
    return [pair for pair in _required_of_clients(suite) if pair[1].startswith(AUTH)]


def run_auth_scenarios(suite: Suite, revision: str, folder: Path) -> Score:
    """Everything about signing in that a revision requires, side by side: nothing there measures how long it takes."""
    names = [name for each, name in auth_scenarios(suite) if each == revision]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        # A folder for each: the suite makes the one above them by itself, and not twice.
        folders = [folder / name.replace("/", "-") for name in names]
        outcomes = threads.map(lambda name, place: run_client_scenario(suite, revision, name, place), names, folders)
        return Score(tuple(outcomes))


def _required_of_clients(suite: Suite) -> list[tuple[str, str]]:
    return [(revision, name) for revision in REVISIONS for name in suite.required(revision, "client")]


def run_client_scenario(
    suite: Suite,
    revision: str,
    scenario: str,
    folder: Path,
    *,
    is_extension: bool = False,
    through_front_end: bool = False,
) -> Outcome:
    """The workbench's client half against a server that the suite plays; alone, or shared behind a front end."""
    era = "modern" if revision == MODERN else "legacy"
    flags = ("--front-end",) if through_front_end else ()
    command = (sys.executable, "-m", "conformance.client_driver", *flags, era)
    return suite.test_client(command, scenario, revision, folder, is_extension=is_extension)


def run_auth_extension(suite: Suite, revision: str, name: str, folder: Path) -> Outcome:
    """One of `AUTH_EXTENSIONS`."""
    place = folder / f"{revision}-{name}"
    return run_client_scenario(suite, revision, f"{AUTH}{name}", place, is_extension=True)
