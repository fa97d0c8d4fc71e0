"""Which revisions there are, and which era each belongs to."""

from __future__ import annotations

import pytest

from mcp_workbench.config.keys import REVISIONS
from mcp_workbench.protocol.versions import LEGACY_VERSIONS, MODERN_VERSIONS, era_of, negotiate_legacy


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_a_known_revision_is_agreed_to(version: str) -> None:
    assert negotiate_legacy(version) == version
    assert era_of(version) == "legacy"


@pytest.mark.parametrize("version", ["2099-01-01", "1.0", "", "2026-07-28"])
def test_an_unknown_revision_is_answered_with_our_latest_of_the_era(version: str) -> None:
    assert negotiate_legacy(version) == "2025-11-25"


def test_the_modern_era_begins_with_its_first_revision() -> None:
    assert [era_of(version) for version in MODERN_VERSIONS] == ["modern"]


def test_the_configuration_knows_the_same_revisions() -> None:
    assert set(REVISIONS) == {*LEGACY_VERSIONS, *MODERN_VERSIONS}
