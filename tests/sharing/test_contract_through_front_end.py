"""The contract of the faces, through a front end: every test that a workbench alone passes.

A front end copies messages and knows no face, so each test runs in one face here; `tests/faces` has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tests.faces import test_contract_asking, test_contract_changes, test_contract_offers, test_contract_tools
from tests.faces.harness import Bench
from tests.sharing.front_end_client import FrontEndClient


def in_one_face(test: FunctionType) -> Callable[..., Any]:
    """The same test with the first of its faces."""
    marks = [_with_first_face(mark) for mark in getattr(test, "pytestmark", ())]
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__dict__.update(test.__dict__, pytestmark=marks)
    copy.__annotations__ = test.__annotations__
    copy.__kwdefaults__ = test.__kwdefaults__
    return copy


def _with_first_face(mark: pytest.Mark) -> pytest.Mark:
    if mark.name != "parametrize" or mark.args[0] != "face":
        return mark
    return pytest.mark.parametrize("face", mark.args[1][:1]).mark


for module in (test_contract_asking, test_contract_changes, test_contract_offers, test_contract_tools):
    globals().update({name: in_one_face(value) for name, value in vars(module).items() if name.startswith("test_")})


class FrontEndBench(Bench):
    """Clients reach the workbench through a front end each."""

    client_type = FrontEndClient


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return FrontEndBench(tmp_path)
