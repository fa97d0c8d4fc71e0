"""Where a call goes is written by the router alone; everybody else asks it to."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench.engine.router.routed_call import Route

PACKAGE = Path(mcp_workbench.__file__).parent


def writes_to_routes(source: str) -> list[int]:
    """Lines that assign or delete an attribute of a route, or call a method of one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        target = node.func if isinstance(node, ast.Call) else node
        if not isinstance(target, ast.Attribute) or (target is node and isinstance(target.ctx, ast.Load)):
            continue
        owner = target.value
        name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        if name == "route":
            found.append(target.lineno)
    return found


@pytest.mark.parametrize("package", ["engine/session", "engine/downstream", "engine/face", "team"])
def test_no_other_package_writes_to_a_route(package: str) -> None:
    modules = list((PACKAGE / package).rglob("*.py"))
    assert len(modules) > 5
    found = {path.name: lines for path in modules if (lines := writes_to_routes(path.read_text(encoding="utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "call.route.task = None",
        "route.entry, x = y",
        "del self.route.task",
        "route.wire_id += 1",
        "call.route.forget()",
    ],
)
def test_assignments_to_routes_count_as_writing(line: str) -> None:
    assert writes_to_routes(line) == [1]


def test_reading_is_no_writing() -> None:
    assert writes_to_routes("x = call.route.task\ncall.route.task.add_done_callback(x)\nself.route = x") == []


def test_a_route_has_no_methods_that_write() -> None:
    own = {name for name, value in vars(Route).items() if callable(value) and not name.startswith("_")}
    assert own == set()
