"""The contract of all faces, through a front end: every test that a workbench alone passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faces import test_contract_asking, test_contract_changes, test_contract_offers, test_contract_tools
from tests.faces.harness import Bench
from tests.shared.front_end_client import FrontEndClient

for module in (test_contract_asking, test_contract_changes, test_contract_offers, test_contract_tools):
    globals().update({name: value for name, value in vars(module).items() if name.startswith("test_")})


class FrontEndBench(Bench):
    """Clients reach the workbench through a front end each."""

    client_type = FrontEndClient


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return FrontEndBench(tmp_path)
