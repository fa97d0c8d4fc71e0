from __future__ import annotations

import pytest

from mcp_workbench.team.identity import identities as identities_module
from mcp_workbench.team.identity.identities import Identities, Identity


def test_of_an_unknown_principal_only_the_name_is_known() -> None:
    assert Identities().of("alice") == Identity(principal="alice")


def test_a_client_without_a_principal_is_local() -> None:
    assert Identities().of("") == Identity(principal="local")


def test_the_latest_identity_of_a_principal_counts() -> None:
    identities = Identities()
    identities.remember(Identity(principal="alice", groups=frozenset({"admins"})))
    identities.remember(Identity(principal="alice", toolboxes=("dev*",)))

    assert identities.of("alice") == Identity(principal="alice", toolboxes=("dev*",))


def test_the_principal_that_has_not_called_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities_module, "MAX_IDENTITIES", 2)
    monkeypatch.setattr(identities_module, "_IDENTITIES_DROPPED_AT_ONCE", 1)
    identities = Identities()
    for name in ("alice", "bob"):
        identities.remember(Identity(principal=name, groups=frozenset({"staff"})))
    identities.of("alice")
    identities.remember(Identity(principal="carol"))

    assert len(identities) == 2
    assert identities.of("alice").groups
    assert not identities.of("bob").groups


def test_principals_in_use_or_limited_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities_module, "MAX_IDENTITIES", 10)
    identities = Identities(lambda: {"alice"})
    identities.remember(Identity(principal="alice", groups=frozenset({"guests"})))
    identities.remember(Identity(principal="ci", toolboxes=("build*",)))
    for number in range(500):
        identities.remember(Identity(principal=f"user {number}", groups=frozenset({"staff"})))
    assert len(identities) <= 10
    assert identities.of("alice").groups and identities.of("ci").toolboxes
    assert identities.of("user 499").groups, "nor whoever has just called"
