"""The official conformance suite finds nothing to complain about, through the workbench, in every combination."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conformance.runs import (
    AUTH_EXTENSIONS,
    COMBINATIONS,
    Combination,
    client_scenarios,
    run_auth_extension,
    run_auth_scenarios,
    run_client_scenario,
    run_combinations,
)
from conformance.suite import REVISIONS, NoNode, Outcome, Score, Suite, Unavailable, cache_folder, install

# How many scenarios the suite has frozen for each revision; another number means that another suite was run.
SERVER_SCENARIOS = {"2025-11-25": 30, "2026-07-28": 37}
CLIENT_SCENARIOS = {
    "2025-11-25": ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"),
    "2026-07-28": (
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ),
}
# Scenarios about signing in.
AUTH_SCENARIOS = {"2025-11-25": 14, "2026-07-28": 25}
NOBODY_LISTENS = "http://127.0.0.1:9/mcp"

# Servers of both eras over stdio are behind the front end here, which makes no difference between servers:
# `make conformance` has them all.
TESTED = [each for each in COMBINATIONS if (each.transport == "front end") == (each.era == "both")]

# All runs of a session are made side by side, on behalf of the first test that needs one.
pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def suite() -> Suite:
    try:
        return install(cache_folder())
    except Unavailable as reason:
        # Offline it cannot be had either; where it is meant to run, that must not go unnoticed.
        if os.environ.get("CI") and not isinstance(reason, NoNode):
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def scores(
    suite: Suite, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Combination, Score]:
    """The runs that the selected tests ask for."""
    selected = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = [each for each in COMBINATIONS if any(params.get("combination") == each for params in selected)]
    return run_combinations(suite, wanted, tmp_path_factory.mktemp("conformance"))


@pytest.mark.parametrize("combination", TESTED, ids=str)
def test_every_required_scenario_passes_through_the_workbench(
    combination: Combination, scores: dict[Combination, Score]
) -> None:
    score = scores[combination]
    assert not score.failures, _told(score.failures)
    assert score.passed == SERVER_SCENARIOS[combination.revision]


@pytest.mark.parametrize(
    ("revision", "scenario"), [(revision, name) for revision, names in CLIENT_SCENARIOS.items() for name in names]
)
def test_every_client_scenario_passes_with_the_workbench_as_the_client(
    revision: str, scenario: str, suite: Suite, tmp_path: Path
) -> None:
    outcome = run_client_scenario(suite, revision, scenario, tmp_path)
    assert outcome.passed, _told([outcome])


@pytest.mark.parametrize(
    ("revision", "scenario"),
    [("2025-11-25", "elicitation-sep1034-client-defaults"), ("2026-07-28", "sep-2322-client-request-state")],
)
def test_client_scenarios_pass_through_a_front_end(revision: str, scenario: str, suite: Suite, tmp_path: Path) -> None:
    outcome = run_client_scenario(suite, revision, scenario, tmp_path, through_front_end=True)
    assert outcome.passed, _told([outcome])


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_auth_scenario_passes_with_the_workbench_as_the_client(
    revision: str, suite: Suite, tmp_path: Path
) -> None:
    score = run_auth_scenarios(suite, revision, tmp_path)
    assert not score.failures, _told(score.failures)
    assert score.passed == AUTH_SCENARIOS[revision]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("name", [name for name, holds in AUTH_EXTENSIONS.items() if holds])
def test_extensions_of_signing_in_that_hold(name: str, revision: str, suite: Suite, tmp_path: Path) -> None:
    outcome = run_auth_extension(suite, revision, name, tmp_path)
    assert outcome.passed, _told([outcome])


def test_no_client_scenario_is_forgotten(suite: Suite) -> None:
    listed = [(revision, name) for revision, names in CLIENT_SCENARIOS.items() for name in names]
    assert client_scenarios(suite) == listed


@pytest.mark.parametrize("revision", REVISIONS)
def test_no_scenario_passes_without_a_server(revision: str, suite: Suite, tmp_path: Path) -> None:
    score = suite.test_server(NOBODY_LISTENS, revision, tmp_path)
    assert [outcome.scenario for outcome in score.outcomes if outcome.passed] == []
    assert len(score.outcomes) == SERVER_SCENARIOS[revision]


@pytest.mark.parametrize(
    ("statuses", "passes"),
    [
        ({"ping": "SUCCESS", "wire-schema-valid": "SUCCESS"}, True),
        ({"ping": "SUCCESS", "other": "SKIPPED", "note": "INFO"}, True),
        ({"ping": "SUCCESS", "other": "WARNING"}, False),
        ({"ping": "SUCCESS", "other": "FAILURE"}, False),
        ({"ping": "SKIPPED"}, False),
        ({"wire-schema-valid": "SUCCESS"}, False),
        ({}, False),
    ],
)
def test_a_scenario_passes_when_something_is_right_and_nothing_is_wrong_or_doubtful(
    statuses: dict[str, str], passes: bool, tmp_path: Path
) -> None:
    suite = _pretended(tmp_path, statuses)
    (outcome,) = suite.test_server(NOBODY_LISTENS, "2025-11-25", tmp_path / "results").outcomes
    assert (outcome.scenario, outcome.passed) == ("ping", passes)
    assert passes or outcome.remarks


def test_a_scenario_of_which_nothing_is_written_does_not_pass(tmp_path: Path) -> None:
    suite = _pretended(tmp_path, None)
    (outcome,) = suite.test_server(NOBODY_LISTENS, "2025-11-25", tmp_path / "results").outcomes
    assert not outcome.passed


def _pretended(folder: Path, statuses: dict[str, str] | None) -> Suite:
    """A suite that requires one scenario and has written down these checks of it."""
    (folder / "requirements").mkdir()
    (folder / "requirements" / "2025-11-25.yaml").write_text("# words\nserver:\n  - ping\n\nclient:\n  - other\n")
    results = folder / "results" / "server-ping-2026-01-02T03-04-05-678Z"
    results.mkdir(parents=True)
    if statuses is not None:
        checks = [{"id": id, "status": status, "description": "A check."} for id, status in statuses.items()]
        (results / "checks.json").write_text(json.dumps(checks))
    return Suite("true", folder)


def _told(outcomes: list[Outcome]) -> str:
    return "\n".join(f"{outcome.scenario}: " + "\n    ".join(outcome.remarks) for outcome in outcomes)
