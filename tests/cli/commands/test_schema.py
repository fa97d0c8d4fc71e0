from __future__ import annotations

import json

import pytest

from mcp_workbench.engine.config.schema import json_schema
from tests.cli.shell import run


@pytest.mark.requirement("config.schema")
def test_the_schema_is_printed_as_json() -> None:
    status, shown, complaints = run("schema")
    assert (status, complaints) == (0, "")
    assert json.loads(shown) == json_schema()
    assert shown.startswith('{\n  "$schema": ')
