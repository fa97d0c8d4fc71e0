"""Errors of tools with the tool's path in front, whatever form their content has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.face.error_context import ORIGINAL_META, UNEXPLAINED, with_context

WHERE = "dev/notes/add"
UNNAMED = [{"type": "text", "text": f"[{WHERE}] {UNEXPLAINED}"}]


def shown(result: object) -> dict[str, Any]:
    written = Raw(json.dumps(result).encode())
    found: dict[str, Any] = json.loads(bytes(with_context(written, WHERE)))
    return found


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("no disk", [{"type": "text", "text": f"[{WHERE}] no disk"}]),
        ({"type": "text", "text": "no disk"}, [{"type": "text", "text": f"[{WHERE}] no disk"}]),
        ({"code": 5}, UNNAMED),
        (None, UNNAMED),
        (17, UNNAMED),
        (["no disk"], [*UNNAMED, "no disk"]),
        ([17, {"type": "text", "text": "no disk"}], [17, {"type": "text", "text": f"[{WHERE}] no disk"}]),
    ],
)
def test_an_error_whose_content_is_no_list_of_blocks_says_which_tool_failed(content: object, expected: object) -> None:
    result = {"content": content, "isError": True, "x": 1}
    assert shown(result) == {"content": expected, "isError": True, "x": 1, "_meta": {ORIGINAL_META: result}}


def test_an_error_whose_meta_is_no_object_says_so_too() -> None:
    result = {"content": [{"type": "text", "text": "no disk"}], "isError": True, "_meta": [1, 2]}
    found = shown(result)
    assert found["content"][0]["text"] == f"[{WHERE}] no disk" and found["_meta"] == {ORIGINAL_META: result}


@pytest.mark.parametrize("result", [{"content": "all is well"}, {"content": "no", "isError": "true"}, [1]])
def test_results_without_an_error_stay_unchanged(result: object) -> None:
    assert shown(result) == result
