"""Finding the error texts of the package in its source, for docs/reference/errors.md.

Owns the list of places where such texts are born: which callables take one, and as which argument. A value inside a
text is written `…`. Texts that only a defect of ours can bring out (assertions) are not looked for.
"""

from __future__ import annotations

import ast
import gc
import itertools
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "mcp_workbench"
# Servers that are foreign to the package, though they ship with it.
FOREIGN = PACKAGE / "cli" / "demo"

# callable: the position of the text among its arguments, its name as a keyword, and what is put around it
BIRTHPLACES: dict[str, tuple[int, str, str]] = {
    # what derives from these is found by itself
    "WorkbenchError": (0, "message", "{}"),
    "quoting": (0, "what", "{}"),
    # the configuration
    "Problem": (9, "found", "{}"),
    "Fault": (0, "found", "{}"),
    "problem": (1, "found", "{}"),
    "wrong": (2, "expected", "found …, expected {}"),
    "Members": (1, "expected", "found …, expected {}"),
    "_unreadable": (1, "found", "{}"),
    "_fault": (0, "found", "found {}"),
    # secrets
    "_Missing": (0, "why", "{}"),
    "Unreadable": (0, "", "{}"),
    "_unresolved": (2, "why", "{}"),
    # command lines
    "UsageError": (0, "message", "{}"),
    "complain": (0, "message", "{}"),
    # the shared workbench
    "CannotJoin": (0, "reason", "{}"),
    "Refused": (1, "reason", "{}"),
    # what agents and clients get
    "BadIdentifier": (0, "message", "{}"),
    "error_result": (0, "text", "{}"),
    "Reject": (1, "message", "{}"),
    "finish_error": (1, "message", "{}"),
    "error_response": (2, "message", "{}"),
    "_refuse": (2, "message", "{}"),
    "Denial": (1, "message", "{}"),
    "BadStamp": (1, "message", "{}"),
    "BadState": (0, "message", "{}"),
    "BadRequest": (0, "message", "{}"),
    "BadQuestion": (0, "message", "{}"),
    "BadInitialize": (0, "message", "{}"),
    "BadExpression": (0, "message", "{}"),
    "refused": (0, "reason", "{}"),
    # how a connection to a server ends
    "_close": (0, "reason", "{}"),
    "call_later": (2, "reason", "{}"),
    # what clients over HTTP get
    "Refusal": (1, "message", "{}"),
    "AuthenticationChallenge": (0, "message", "{}"),
    "TokenRejection": (0, "message", "{}"),
    "_complain": (4, "message", "{}"),
}
# Functions that return a text.
MAKERS = (
    "ambiguous",
    "describe_exit",
    "_unknown",
    "_thorough",
    "about_path",
    "about_parts",
    "about_slashes",
    "no_such_path",
    "rivals_for_address",
    "describe_collision",
    "_candidates",
    "why_unhandled",
)

# Texts that are put together from parts; a test brings each of them out.
COMPOSED = (
    "… `…` does not exist…; did you mean …?",
    "… `…` does not exist…; there are …",
    "… `…` does not exist…; none are available",
    "… last lines of its stderr: …",
    "… from its stderr: …",
    "… on its stdout, where only protocol messages belong: …",
    "not a JSON-RPC message: neither method, result nor error",
    "not a JSON-RPC message: …",
    '`jsonrpc` must be "2.0"',
    "the tool reported an error without saying which",
    "Not all servers have been listed yet: open_toolbox with `query` lists them",
)


@cache
def error_texts() -> dict[str, str]:
    """Every error text with its values written `…`, and where it was found."""
    # The trees of all modules are half a million objects, none of them garbage: to look for some doubles the time.
    gc.disable()
    try:
        return _found()
    finally:
        gc.enable()


def _found() -> dict[str, str]:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: tree for path, tree in trees.items() if FOREIGN not in path.parents}
    places = _with_derived(trees.values())
    found: dict[str, str] = {}
    for path, tree in trees.items():
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        constants = [each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign)]
        for scope in (*functions, *constants):
            for line, text in _texts_in(scope, tree, places):
                found.setdefault(text, f"{path.relative_to(PACKAGE.parent)}:{line}")
    return found


def _with_derived(trees: Iterable[ast.Module]) -> dict[str, tuple[int, str, str]]:
    """The birthplaces, and every class that derives from one of them."""
    places = dict(BIRTHPLACES)
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while True:
        derived = {
            each.name: places[base.id]
            for each in classes
            for written in each.bases
            # `Members[OAuthConfig]`
            for base in (written.value if isinstance(written, ast.Subscript) else written,)
            if isinstance(base, ast.Name) and base.id in places and each.name not in places
        }
        if not derived:
            return places
        places |= derived


def _texts_in(
    function: ast.stmt, module: ast.Module, places: dict[str, tuple[int, str, str]]
) -> Iterator[tuple[int, str]]:
    for node in ast.walk(function):
        if getattr(function, "name", "") in MAKERS and isinstance(node, ast.Return) and node.value is not None:
            texts = spelled(node.value, function, module)
            yield from ((node.lineno, text) for text in texts if _says_something(text))
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name not in places:
            continue
        position, keyword, frame = places[name]
        for argument in _arguments(node, position, keyword):
            for text in spelled(argument, function, module):
                if _says_something(text):
                    # Not `format`: the text may hold braces of its own.
                    yield node.lineno, frame.replace("{}", text)


def _arguments(call: ast.Call, position: int, keyword: str) -> list[ast.expr]:
    if 0 <= position < len(call.args):
        return [call.args[position]]
    return [given.value for given in call.keywords if given.arg == keyword]


def spelled(node: ast.expr, function: ast.AST, module: ast.Module) -> list[str]:
    """The texts that an expression can be, as far as the source says so."""
    match node:
        case ast.Constant(value=str(text)):
            return [" ".join(text.split("\n"))]
        case ast.JoinedStr(values=parts):
            return ["".join(choice) for choice in itertools.product(*(_part(part, function, module) for part in parts))]
        case ast.IfExp(body=body, orelse=other):
            return spelled(body, function, module) + spelled(other, function, module)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            pairs = itertools.product(spelled(left, function, module), spelled(right, function, module))
            return ["".join(pair) for pair in pairs]
        case ast.Name(id=name):
            return _assigned(name, ast.walk(function)) or _assigned(name, module.body) or ["…"]
    return ["…"]


def _part(node: ast.expr, function: ast.AST, module: ast.Module) -> list[str]:
    # Only what is written out at the place itself: a value from elsewhere is a value.
    if isinstance(node, ast.FormattedValue):
        return spelled(node.value, function, module) if isinstance(node.value, ast.IfExp) else ["…"]
    return spelled(node, function, module)


def _assigned(name: str, nodes: Iterable[ast.AST]) -> list[str]:
    nothing = ast.Module([], [])
    found: list[str] = []
    for node in nodes:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is not None and any(isinstance(target, ast.Name) and target.id == name for target in targets):
            found += [text for text in spelled(value, nothing, nothing) if _says_something(text)]
    return found


def _says_something(text: str) -> bool:
    """Whether there are words of its own in it, beside values."""
    return any(letter.isalpha() for letter in text)
