"""`python -m conformance`: run everything, print the tables of the documentation, fail when a scenario does."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from conformance.processes import Trouble
from conformance.runs import (
    AUTH,
    AUTH_EXTENSIONS,
    COMBINATIONS,
    ERAS,
    TRANSPORTS,
    Combination,
    client_scenarios,
    run_auth_extension,
    run_auth_scenarios,
    run_client_scenario,
    run_combinations,
    run_direct,
)
from conformance.suite import PACKAGE, REVISIONS, VERSION, Outcome, Score, Suite, Unavailable, cache_folder, install

PARTS = ("direct", "server", "client")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=f"{PACKAGE} {VERSION}")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all of them)")
    parser.add_argument("--only", metavar="WORD", default="", help="combinations with this in their name: stdio-modern")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="leave logs and the suite's results there")
    parsed = parser.parse_args(arguments)
    parts = parsed.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    try:
        suite = install(cache_folder())
        with tempfile.TemporaryDirectory() as folder:
            return _run(suite, parts, parsed.only, parsed.keep or Path(folder))
    except (Unavailable, Trouble) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(suite: Suite, parts: Sequence[str], only: str, folder: Path) -> int:
    began = time.monotonic()
    failed: dict[str, list[Outcome]] = {}
    if "direct" in parts:
        direct = {revision: _run_direct(suite, revision, folder) for revision in REVISIONS}
        print("| the everything-server alone | " + " | ".join(f"client `{revision}`" for revision in REVISIONS) + " |")
        print("|---|---|---|")
        print("| over HTTP | " + " | ".join(map(str, direct.values())) + " |\n", flush=True)
        failed |= {f"direct-{revision}": score.failures for revision, score in direct.items()}
    if "server" in parts:
        scores = run_combinations(suite, [each for each in COMBINATIONS if only in str(each)], folder)
        print("\n".join(table(scores)) + "\n", flush=True)
        failed |= {str(combination): score.failures for combination, score in scores.items()}
    if "client" in parts:
        failed |= _run_client(suite, folder)
    for name, outcomes in failed.items():
        for outcome in outcomes:
            print(f"{name}: {outcome.scenario}", *outcome.remarks, sep="\n    ", file=sys.stderr)
    print(f"{PACKAGE} {VERSION}, {time.monotonic() - began:.0f} s")
    return 1 if any(failed.values()) else 0


def _run_direct(suite: Suite, revision: str, folder: Path) -> Score:
    place = folder / f"direct-{revision}"
    place.mkdir(parents=True)
    return run_direct(suite, revision, place)


def _run_client(suite: Suite, folder: Path) -> dict[str, list[Outcome]]:
    failed: dict[str, list[Outcome]] = {}
    print("| client scenario | revision | alone | through a front end |\n|---|---|---|---|")
    for revision, scenario in client_scenarios(suite):
        # One at a time: some of them measure how long a client waits.
        places = {False: f"client-{revision}", True: f"front-end-{revision}"}
        outcomes = {
            place: run_client_scenario(suite, revision, scenario, folder / place, through_front_end=is_shared)
            for is_shared, place in places.items()
        }
        words = " | ".join("passed" if outcome.passed else "FAILED" for outcome in outcomes.values())
        print(f"| `{scenario}` | `{revision}` | {words} |", flush=True)
        for place, outcome in outcomes.items():
            if not outcome.passed:
                failed.setdefault(place, []).append(outcome)
    print(flush=True)
    for revision in REVISIONS:
        score = run_auth_scenarios(suite, revision, folder / f"auth-{revision}")
        print(f"auth {revision}: {score}", flush=True)
        failed[f"auth-{revision}"] = score.failures
    print("\n| extension, scored for nobody | " + " | ".join(f"`{revision}`" for revision in REVISIONS) + " |")
    print("|---|---|---|")
    for name, holds in AUTH_EXTENSIONS.items():
        extended = [run_auth_extension(suite, revision, name, folder / "extensions") for revision in REVISIONS]
        words = " | ".join("passed" if outcome.passed else "does not hold" for outcome in extended)
        print(f"| `{AUTH}{name}` | {words} |", flush=True)
        failed[f"extension-{name}"] = [outcome for outcome in extended if holds and not outcome.passed]
    print()
    return failed


def table(scores: dict[Combination, Score]) -> list[str]:
    """Servers in rows, clients in columns."""
    lines = [
        "| the server behind the workbench | " + " | ".join(f"client `{revision}`" for revision in REVISIONS) + " |",
        "|---|---|---|",
    ]
    for transport in TRANSPORTS:
        for era in ERAS:
            found = [scores.get(Combination(revision, transport, era)) for revision in REVISIONS]
            shown = " | ".join("not run" if score is None else str(score) for score in found)
            lines.append(f"| {transport}, {era}{' eras' if era == 'both' else ''} | {shown} |")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
