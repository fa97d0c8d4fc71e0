"""Which revisions there are, and what is asked of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench.engine.protocol.revisions import KNOWN, Revision, chosen, names, negotiate, newest, newest_stateless

TELLING = r"legacy|modern|20\d\d-\d\d-\d\d"


@pytest.mark.parametrize("name", names("legacy"))
def test_a_known_revision_is_agreed_to(name: str) -> None:
    assert negotiate(name) is KNOWN[name]


@pytest.mark.parametrize("name", ["2099-01-01", "1.0", "", "2026-07-28"])
def test_an_unknown_revision_is_answered_with_our_newest_that_shakes_hands(name: str) -> None:
    assert negotiate(name).name == "2025-11-25"


def test_revisions_are_listed_oldest_first_and_belong_to_one_era() -> None:
    assert list(KNOWN) == sorted(KNOWN) == [*names("legacy"), *names("modern")]
    assert (newest("legacy").name, newest("modern").name) == ("2025-11-25", "2026-07-28")


def test_without_a_handshake_the_newest_that_both_know_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    later = Revision("2027-06-30")
    monkeypatch.setitem(KNOWN, later.name, later)
    assert newest_stateless(["2027-06-30", "2026-07-28", "2031-01-01"]) is later
    assert newest_stateless(["2026-07-28"]) is KNOWN["2026-07-28"]
    assert newest_stateless(["2025-11-25"]) is None


def test_the_setting_names_an_era_or_a_revision() -> None:
    assert chosen("auto") is None
    assert chosen("modern") is newest("modern") and chosen("legacy") is newest("legacy")
    assert chosen("2024-11-05") is KNOWN["2024-11-05"]


def compared_strings(path: Path) -> set[str]:
    """Strings that something is compared with: by an operator, as a member of a literal, or in a `case`.

    None where the text has no era and no date at all: to parse the whole package takes a second."""
    found: set[str] = set()
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if re.search(TELLING, source) else ():
        if isinstance(node, ast.Compare | ast.MatchValue):
            found |= {
                each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and type(each.value) is str
            }
    return found


@pytest.mark.requirement("project.packages")
def test_no_other_package_compares_eras_or_dates() -> None:
    """What differs between revisions is asked of a `Revision`. Demo servers are programs of their own."""
    package = Path(mcp_workbench.__file__).parent
    is_telling = re.compile(TELLING).fullmatch
    excepted = {package / "engine" / "protocol", package / "cli" / "demo"}
    others = [path for path in package.rglob("*.py") if excepted.isdisjoint(path.parents)]
    assert len(others) > 100
    comparing = {str(path): telling for path in others if (telling := set(filter(is_telling, compared_strings(path))))}
    assert not comparing
    assert set(filter(is_telling, compared_strings(package / "engine" / "protocol" / "revisions.py")))
