"""Make one small mistake at a time in a module, and list those that no test notices.

    make mutants MODULE=team/policy/limit_step
    make mutants MODULE=signin/store TESTS="tests/signin tests/cli" MUTANTS_ARGS="--processes --sample 100"

Tests are collected once. A first run notes which of them reach which line; then each mutant gets a fork of this
process, in which the code of the functions concerned is exchanged, and only the tests that reach its line run, until
one fails. Only what functions do is changed: constants, defaults and declarations are not. Some mutants that survive
behave as the original does; the list is for whoever reviews a change, and no gate.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import math
import os
import pickle
import random
import resource
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

SOURCE = Path("src/mcp_workbench")
# A mutant may loop for ever; one for which tests take this much processor time has been noticed.
MUTANT_TIMEOUT = 20.0
# One that waits for ever takes none. What is merely slow on a busy machine must not look like it.
WAITING_FACTOR = 10
# To see which tests reach which lines.
FIRST_RUN_TIMEOUT = 1800.0

NOT_TRIED = 77
# By what a fork ends with.
OUTCOMES = {
    0: "survived", NOT_TRIED: "not tried", -signal.SIGXCPU: "timed out", -signal.SIGKILL: "timed out",
}  # fmt: skip

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
# What they say is for people.
TALK = ("log", "logger", "warnings")


@dataclass(frozen=True)
class Mutant:
    line: int
    was: str
    now: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.line:5}  {self.was}  →  {self.now}"


# ── which mistakes there are ──


def changes_of(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand in the place of a node."""
    match node:
        case ast.Compare(left, [operator], [right]):
            yield ast.Compare(left, [COMPARED[type(operator)]()], [right])
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for dropped in values:
                kept = [each for each in values if each is not dropped]
                yield kept[0] if len(kept) == 1 else ast.BoolOp(operator, kept)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in COUNTED:
            yield ast.BinOp(left, COUNTED[type(operator)](), right)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.IfExp(test, body, other):
            yield ast.IfExp(test, other, body)
        case ast.If(_, body, other):
            yield ast.If(ast.Constant(False), body, other)
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case ast.Return(None):
            yield ast.Pass()
        case ast.Return(ast.Constant(None)):
            pass
        case ast.Return():
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Await() | ast.Yield() as said) if not _is_talk(said):
            yield ast.Pass()
        case ast.Assign() | ast.AugAssign() | ast.Delete():
            yield ast.Pass()
        case ast.ExceptHandler(kind, name, body) if kind is not None:
            yield ast.ExceptHandler(ast.Tuple([], ast.Load()), name, body)


def _is_talk(said: ast.expr) -> bool:
    called = said.func if isinstance(said, ast.Call) else said
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in TALK


def _skipped(node: ast.AST) -> bool:
    """What is for readers and type checkers alone."""
    match node:
        case ast.Assert() | ast.Raise() | ast.JoinedStr() | ast.AnnAssign(value=None):
            return True
        case ast.Expr(ast.Constant(str())):
            return True
        case ast.Call() if _is_talk(node):
            return True
        case ast.Call(ast.Name("cast" | "isinstance" | "TypeVar")):
            return True
    return False


def places(tree: ast.Module) -> Iterator[list[tuple[ast.AST, str, int | None]]]:
    """The way to each node within a function: parent, field and index, from the root on."""

    def walk(node: ast.AST, way: list[tuple[ast.AST, str, int | None]], is_inside: bool) -> Any:
        if is_inside and way:
            yield way
        fields = ("body",) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else node._fields
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field in fields:
            if field in ("annotation", "returns", "decorator_list"):
                continue
            value = getattr(node, field, None)
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(child, ast.AST) and not _skipped(child):
                    yield from walk(child, [*way, (node, field, index)], is_inside or is_function)

    yield from walk(tree, [], False)


def mutants_of(source: str) -> list[Mutant]:
    tree = ast.parse(source)
    found: list[Mutant] = []
    for way in places(tree):
        parent, field, index = way[-1]
        value = getattr(parent, field)
        node = value if index is None else value[index]
        for changed in changes_of(node):
            new = ast.fix_missing_locations(ast.copy_location(changed, node))
            root = _with(way, new)
            found.append(Mutant(node.lineno, _first_line(node), _first_line(new), root))
    return found


def _with(way: list[tuple[ast.AST, str, int | None]], new: ast.AST) -> ast.Module:
    """The tree with another node at this place; everything beside the way is shared."""
    for parent, field, index in reversed(way):
        above = copy.copy(parent)
        if index is None:
            setattr(above, field, new)
        else:
            siblings = list(getattr(parent, field))
            siblings[index] = new
            setattr(above, field, siblings)
        new = above
    assert isinstance(new, ast.Module)
    return new


def _first_line(node: ast.AST) -> str:
    if isinstance(node, ast.ExceptHandler):
        is_never = isinstance(node.type, ast.Tuple) and not node.type.elts
        return "except never" if is_never or node.type is None else f"except {ast.unparse(node.type)}"
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 90 else f"{text[:87]}…"


# ── exchanging code in a running process ──


def functions_in(path: str) -> list[FunctionType]:
    gc.unfreeze()
    return [each for each in gc.get_objects() if isinstance(each, FunctionType) and each.__code__.co_filename == path]


def codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_in(constant)


def exchange(functions: list[FunctionType], tree: ast.Module, path: str) -> bool:
    """Give live functions the code of this tree. Returns whether that changed any."""
    new = {(each.co_qualname, each.co_firstlineno): each for each in codes_in(compile(tree, path, "exec"))}
    is_changed = False
    for function in functions:
        old = function.__code__
        code = new.get((old.co_qualname, old.co_firstlineno))
        if code is not None and code != old:
            try:
                function.__code__ = code
            except ValueError:
                # It has fewer variables of the function around it.
                return False
            is_changed = True
    return is_changed


# ── running tests in forks ──


class Runner:
    """A pytest plugin that runs tests as often as there are mutants."""

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        self._path = str(path.resolve())
        self._options = options
        self._has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        mutants = mutants_of(Path(self._path).read_text())
        if len(mutants) > self._options.sample:
            mutants = random.Random(self._options.seed).sample(mutants, self._options.sample)
        mutants.sort(key=lambda each: each.line)
        # Tests may reach it through one that imports it when it is needed.
        importlib.import_module(f"mcp_workbench.{self._options.module.replace('/', '.')}")
        reach: dict[int, list[int]] = self._in_fork(lambda: self._reached(items), FIRST_RUN_TIMEOUT)
        functions = functions_in(self._path)
        counts = dict.fromkeys(("noticed", "timed out", "survived", "not reached", "not tried"), 0)
        for mutant, outcome in self._outcomes(mutants, reach, items, functions):
            counts[outcome] += 1
            # Tests that are too slow end in the same way as a mutant that loops: somebody has to look.
            if outcome in ("survived", "not reached", "timed out"):
                print(f"{mutant}   ({outcome}, {len(reach.get(mutant.line, ()))} tests)", flush=True)
        noticed, tried = counts["noticed"] + counts["timed out"], len(mutants) - counts["not tried"]
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        print(f"{self._options.module}: {len(mutants)} mutants, {told}: {noticed / max(1, tried):.1%} noticed")
        return True

    def _outcomes(
        self,
        mutants: list[Mutant],
        reach: dict[int, list[int]],
        items: list[pytest.Item],
        functions: list[FunctionType],
    ) -> Iterator[tuple[Mutant, str]]:
        running: dict[int, tuple[Mutant, float]] = {}
        waiting = list(reversed(mutants))
        while waiting or running:
            while waiting and len(running) < self._options.jobs:
                mutant = waiting.pop()
                chosen = [items[number] for number in reach.get(mutant.line, ())]
                if not chosen:
                    yield mutant, "not reached"
                    continue
                pid = self._start(lambda chosen=chosen, mutant=mutant: self._try(chosen, mutant, functions))  # type: ignore[misc]
                running[pid] = mutant, time.monotonic() + self._options.seconds * WAITING_FACTOR
            for pid, (mutant, until) in list(running.items()):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    del running[pid]
                    yield mutant, OUTCOMES.get(os.waitstatus_to_exitcode(status), "noticed")
                elif time.monotonic() > until:
                    del running[pid]
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    yield mutant, "timed out"
            time.sleep(0.005)

    def _try(self, items: list[pytest.Item], mutant: Mutant, functions: list[FunctionType]) -> int:
        seconds = math.ceil(self._options.seconds)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        try:
            is_changed = exchange(functions, mutant.tree, self._path)
        except SyntaxError:
            return NOT_TRIED
        return NOT_TRIED if not is_changed else int(self._run(items))

    def _run(self, items: list[pytest.Item], note: Callable[[int], None] = lambda number: None) -> bool:
        """Returns whether one failed, with which it ends."""
        for number, item in enumerate(items):
            following = items[number + 1] if number + 1 < len(items) else None
            note(number)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._has_failed:
                return True
        return False

    def _reached(self, items: list[pytest.Item]) -> dict[int, list[int]]:
        """By line: the tests that pass and reach it, the quickest first."""
        lines: dict[int, set[int]] = {}
        took: dict[int, float] = {}
        current = 0

        def local(frame: FrameType, event: str, argument: object) -> Any:
            lines.setdefault(frame.f_lineno, set()).add(current)
            return local

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            return local(frame, event, argument) if frame.f_code.co_filename == self._path else None

        threading.settrace(trace)
        for current, item in enumerate(items):
            following = items[current + 1] if current + 1 < len(items) else None
            self._has_failed, began = False, time.monotonic()
            sys.settrace(trace)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.settrace(None)
            took[current] = float("inf") if self._has_failed else time.monotonic() - began
        good = {number for number, seconds in took.items() if seconds < float("inf")}
        return {line: sorted(found & good, key=took.__getitem__) for line, found in lines.items()}

    def _start(self, work: Callable[[], int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        os.setpgid(0, 0)
        status = 1
        try:
            silence = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(silence, descriptor)
            status = work()
        finally:
            os._exit(status)

    def _in_fork(self, work: Callable[[], Any], seconds: float) -> Any:
        """What `work` returns, without anything else that it does."""
        source, sink = os.pipe()

        def send() -> int:
            with open(sink, "wb") as file:
                pickle.dump(work(), file)
            return 0

        pid = self._start(send)
        os.close(sink)
        with open(source, "rb") as file:
            if not select.select([file], [], [], seconds)[0]:
                os.killpg(pid, signal.SIGKILL)
                raise TimeoutError(f"the tests themselves take longer than {seconds:g} s")
            found = pickle.load(file)
        os.waitpid(pid, 0)
        return found


def suite_of(module: str) -> list[str]:
    """The folder of its tests, and every file of tests that names it."""
    dotted = f"mcp_workbench.{module.replace('/', '.')}"
    package, _, name = dotted.rpartition(".")
    texts = {path: path.read_text() for path in Path("tests").rglob("test_*.py")}
    named = [
        str(path)
        for path, text in texts.items()
        if dotted in text or (f"from {package} import" in text and name in text)
    ]
    folder = Path("tests", module).parent
    return sorted({*named, *(str(path) for path in texts if path.parent == folder)})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("module", help="below src/mcp_workbench, for example team/policy/limit_step")
    parser.add_argument("tests", nargs="*", help="files or folders; by default those that name the module")
    parser.add_argument("--processes", action="store_true", help="also with tests that start programs or open sockets")
    parser.add_argument("--sample", type=int, default=1000, help="how many mutants at most, chosen at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=MUTANT_TIMEOUT, help="of processor time for one mutant")
    options = parser.parse_args(arguments)
    options.module = options.module.removesuffix(".py")
    path = SOURCE / f"{options.module}.py"
    if not path.is_file():
        parser.error(f"there is no {path}")
    # A failing example of a mutant must not be tried again with the original.
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        return _run(path, options)


def _run(path: Path, options: argparse.Namespace) -> int:
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    marks = [] if options.processes else ["-m", "not processes"]
    run = ["-s", "-q", "--hypothesis-profile", "quick", "--hypothesis-seed", "0", *plugins, *marks]
    return int(pytest.main([*run, *(options.tests or suite_of(options.module))], [Runner(path, options)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
