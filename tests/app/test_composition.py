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
# A response takes part in nothing else, and who serves it changes while it is written.
ONE_RESPONSE = "called when the client of this one response is gone"
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


# Functions that are given to an object after it was made, and why they cannot be given to it when it is.
LATE_FUNCTIONS = {
    "cli/interactive_client.py": {"client.on_progress": "what shows progress asks the client first"},
    "engine/session/methods.py": {"stream.on_end": "nothing has to be released before the stream has subscribed"},
    "engine/transport/http/server/modern_request.py": {"self._writer.gone": ONE_RESPONSE},
    "engine/transport/http/server/resumable_stream.py": {"writer.gone": ONE_RESPONSE},
    "engine/transport/http/server/sessions.py": {"self._writer.gone": ONE_RESPONSE},
    "seeing/page/streams.py": {"writer.gone": ONE_RESPONSE},
    "team/identity/callers.py": {
        "head.is_still_proved": "what the authentication of this one request has found",
        "head.recall": "what the authentication of this one request has found",
    },
}


def late_functions(text: str) -> set[str]:
    """Attributes of other objects that are set to a function: a lambda, a partial, or a method of this module."""
    tree = ast.parse(text)
    methods = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list
    }
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        value = node.value
        is_function = (
            isinstance(value, ast.Lambda)
            or (isinstance(value, ast.Call) and ast.unparse(value.func) == "partial")
            or (isinstance(value, ast.Attribute) and value.attr in methods)
        )
        for target in node.targets if is_function else []:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in ("self", "cls"):
                found.add(ast.unparse(target))
    return found


def test_functions_are_given_when_an_object_is_made() -> None:
    found = {str(path.relative_to(PACKAGE)): late_functions(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {name: each for name, each in found.items() if each} == {
        name: set(each) for name, each in LATE_FUNCTIONS.items()
    }
    others = "link.on_end = lambda: 1\na.b = partial(f, 1)\nc.d = self.send"
    text = f"def send(self): pass\n{others}\nself.e = self.send\nf.g = h.i"
    assert late_functions(text) == {"link.on_end", "a.b", "c.d"}


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
