"""The parts are connected when they are made: nobody sets anything of another's afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import mcp_workbench

PACKAGE = Path(mcp_workbench.__file__).parent
# What the composition root connects, as it is called wherever it is used.
CONNECTED = {
    *("access", "approvals", "callers", "gate", "gateway", "handles", "identities", "lists", "oversight", "parameters"),
    *("parking", "pool", "reloads", "results", "router", "runtime", "services", "sessions", "tasks", "users", "views"),
}
# What these may have at most. A new attribute is a decision: most belong to something that they have already.
MAX_ATTRIBUTES = {"app/gateway.py": ("Gateway", 20), "app/runtime.py": ("Runtime", 27)}


def assigned(tree: ast.AST) -> Iterator[tuple[int, ast.Attribute]]:
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Attribute):
                    yield each.lineno, each


def owner_of(target: ast.Attribute) -> str:
    """The name of the object whose attribute it is: `router` for `self._router.steps`."""
    return ast.unparse(target.value).rpartition(".")[2].lstrip("_")


def from_outside(text: str) -> list[str]:
    return [f"{line}: {ast.unparse(each)}" for line, each in assigned(ast.parse(text)) if owner_of(each) in CONNECTED]


def test_no_part_is_changed_from_outside_after_it_was_made() -> None:
    found = {str(path.relative_to(PACKAGE)): from_outside(path.read_text()) for path in PACKAGE.rglob("*.py")}
    # A gateway's own record of its reloads.
    own = {"app/gateway.py": "self.reloads."}
    found = {
        name: [each for each in lines if name not in own or own[name] not in each] for name, lines in found.items()
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_such_changes_are_noticed() -> None:
    text = "self.parking.record = x\nself._router.views.face_of, y = f\nruntime.auth = z\nself.mine = 1\ncall.route = 2"
    assert [line.partition(": ")[2] for line in from_outside(text)] == [
        "self.parking.record",
        "self._router.views.face_of",
        "runtime.auth",
    ]


def test_the_objects_that_connect_everything_stay_small() -> None:
    for name, (owner, most) in MAX_ATTRIBUTES.items():
        (found,) = (
            node
            for node in ast.parse((PACKAGE / name).read_text()).body
            if isinstance(node, ast.ClassDef) and node.name == owner
        )
        own = {each.attr for _, each in assigned(found) if ast.unparse(each.value) == "self"}
        assert len(own) <= most, sorted(own)
