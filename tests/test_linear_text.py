"""No text from elsewhere costs more than in proportion to its length.

A server's description, a client's query or a proxy's error page is as long and as repetitive as its author likes, and
is read in the event loop of everybody. Work is counted, in steps of regular expressions and lines of Python; time on a
shared machine proves nothing.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import pytest

import mcp_workbench
from mcp_workbench.engine.catalog import filters, uris
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.economy import prose, result_pieces, select, terms
from mcp_workbench.engine.economy.distinctive_words import distinctive_words
from mcp_workbench.engine.economy.fields import SearchDocument, fields
from mcp_workbench.engine.economy.forms import Form, show
from mcp_workbench.engine.economy.index import Index
from mcp_workbench.engine.economy.instructions import Box, instructions
from mcp_workbench.engine.economy.lean_schema import lean
from mcp_workbench.engine.economy.search_answer import answer
from mcp_workbench.engine.economy.signature import signature
from mcp_workbench.engine.economy.tool import Tool
from mcp_workbench.engine.economy.value_shape import shape
from mcp_workbench.engine.face.wording import no_such
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.printable import plain, visible
from mcp_workbench.team.policy.uri_spellings import other_spellings
from tests.support.regex_work import Counted, TooMuchWork, alphabet, possessive_rounds_that_fail_half_way

PACKAGE = Path(mcp_workbench.__file__).parent
# Far above what any pattern here needs for a character, far below what a quadratic one needs for a few hundred.
STEPS_FOR_A_CHARACTER = 40
# Long enough that a square stands out, short enough that all of this takes seconds.
LENGTH = 100
SHORT, LONG = 32, 128
# Marks on a letter are read up to a number beyond that.
MANY_MARKS = 8
# Four times the text may cost this much more: 4 for what is in proportion, 16 for a square.
GROWTH = 6


# ── every regular expression in the package ──


class Used(NamedTuple):
    """A pattern, where it stands, and whether it is looked for anywhere in a text or at one place only."""

    where: str
    pattern: re.Pattern[Any]
    anywhere: bool


@cache
def modules() -> list[ModuleType]:
    names = [module.name for module in pkgutil.walk_packages([str(PACKAGE)], "mcp_workbench.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def methods(tree: ast.AST) -> dict[str, set[str]]:
    """Which methods are called on each name of a module."""
    called: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            called.setdefault(node.value.id, set()).add(node.attr)
    return called


def patterns() -> Iterator[Used]:
    """Those that a module keeps, and those that are written where they are used."""
    for module in modules():
        source = Path(module.__file__ or "")
        where = str(source.relative_to(PACKAGE))
        text = source.read_text(encoding="utf-8")
        kept = [
            (name, each)
            for name, value in vars(module).items()
            for each in (value.values() if isinstance(value, dict) else [value])
            if isinstance(each, re.Pattern)
        ]
        if not kept and not re.search(r"\bre\b", text):
            continue
        tree = ast.parse(text)
        called = methods(tree)
        for name, pattern in kept:
            at_one_place = called.get(name) and called[name] <= {"match", "fullmatch"}
            yield Used(f"{where} {name}", pattern, not at_one_place)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr != "compile"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                yield Used(
                    f"{where}:{node.lineno}",
                    re.compile(node.args[0].value),
                    node.func.attr not in ("match", "fullmatch"),
                )


EVERY = list(patterns())


def pieces(pattern: re.Pattern[Any]) -> list[str]:
    """What hostile texts are made of: single characters, and the words that a pattern begins or goes on with."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    letters = [character if character.isalnum() or character in '<"_ ' else "\0" for character in source]
    words = ["".join(run) for is_cut, run in groupby(letters, lambda one: one == "\0") if not is_cut]
    return [*alphabet(pattern), *dict.fromkeys(word for word in words if len(word) > 1)]


def test_the_patterns_are_found() -> None:
    assert len(EVERY) > 30
    assert {"engine/economy/prose.py _SPACE", "engine/jsonrpc/messages.py _ID"} <= {used.where for used in EVERY}


def repetitions(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """What stands before, what is repeated, and what stands after: each piece alone, then some at random."""
    known = pieces(pattern)
    yield from (("", piece, "") for piece in known)
    chosen = random.Random(str(pattern.pattern))
    for _ in range(50):
        before, unit, after = (chosen.choices(known, k=chosen.randint(*most)) for most in ((0, 3), (1, 2), (0, 2)))
        yield "".join(before), "".join(unit), "".join(after)


@pytest.mark.parametrize("used", EVERY, ids=lambda used: used.where)
def test_no_pattern_takes_more_than_linear_time(used: Used) -> None:
    method = "findall" if used.anywhere else "fullmatch"
    counted = Counted(used.pattern)
    for before, unit, after in repetitions(used.pattern):
        text = before + unit * (LENGTH // len(unit)) + after
        counted.steps, counted.most = 0, STEPS_FOR_A_CHARACTER * len(text)
        try:
            counted.work(
                method, text if isinstance(used.pattern.pattern, str) else text.encode("latin-1", errors="replace")
            )
        except TooMuchWork:
            pytest.fail(
                f"`{used.pattern.pattern!r}` takes more than linear time: {before!r} + {unit!r} * n + {after!r}"
            )


@pytest.mark.parametrize(
    ("pattern", "unit"), [(r"[ \t]+(?=\n)", " "), (r"(<t)[^>]*>", "<t"), (r"(a|b|ab)*c", "ab"), (r"\s*\n", " ")]
)
def test_a_pattern_that_is_quadratic_is_recognised(pattern: str, unit: str) -> None:
    with pytest.raises(TooMuchWork):
        Counted(re.compile(pattern), STEPS_FOR_A_CHARACTER * LENGTH).work("findall", unit * (LENGTH // len(unit)))


# ── every version of Python reads them alike ──


@pytest.mark.parametrize("used", EVERY, ids=lambda used: used.where)
def test_no_round_of_a_possessive_repeat_can_fail_half_way(used: Used) -> None:
    """Before 3.11.5 the match then ends where that round failed (CPython's gh-106052), and Debian 12 has 3.11.2."""
    assert not possessive_rounds_that_fail_half_way(used.pattern)


@pytest.mark.parametrize(
    ("pattern", "can_fail"),
    [
        (r'(?:[^"]*+"[^"]*+")*+', True),
        (r"[0-9](?:\.[0-9]++)?+", True),
        (r"(?: ++|/\*(?s:.)*?\*/)*+", True),
        (r"(?: ++|(?>/\*(?s:.)*?\*/))*+", True),
        (r"(?:a(?:bc|cb))*+", True),
        (r"(?:a(?!b))*+", True),
        (r'(?:\\.[^"]*+)*+', False),
        (r'(?:[^"\\]++|\\.)*+', False),
        (r"(?:ab)*+", False),
    ],
)
def test_a_round_that_can_fail_half_way_is_recognised(pattern: str, can_fail: bool) -> None:
    assert possessive_rounds_that_fail_half_way(re.compile(pattern)) is can_fail


@pytest.mark.parametrize("used", EVERY, ids=lambda used: used.where)
def test_patterns_match_on_this_python(used: Used) -> None:
    counted = Counted(used.pattern)
    known = pieces(used.pattern)
    chosen = random.Random(str(used.pattern.pattern))
    for _ in range(200):
        text: Any = "".join(chosen.choices(known, k=chosen.randint(1, 12)))
        text = text if isinstance(used.pattern.pattern, str) else text.encode("latin-1", errors="replace")
        counted.steps = 0
        found = used.pattern.match(text)
        assert (found and found.end()) == counted.end_of_match(text), text


# ── every function that reads text of others ──


def _tool(text: str) -> Tool:
    argument = {"type": "string", "description": text, "title": text, "default": text, "enum": [text, text]}
    schema = {
        "type": "object",
        "description": text,
        "properties": {"a": argument, text: {"type": "string", "examples": [text], "pattern": text, "format": "uri"}},
        "required": [text],
    }
    definition = {"name": text, "title": text, "description": text, "inputSchema": schema}
    return Tool(f"box/server/{text}", "box", "server", text, messages.encode(definition))


def _entry(text: str) -> SearchDocument:
    schema = messages.encode({"properties": {text: {"description": text, "enum": [text]}}})
    return SearchDocument(key="k", name=text, description=text, title=text, server=text, toolbox=text, schema=schema)


def _result(text: str) -> bytes:
    return messages.encode({"content": [{"type": "text", "text": text}], "structuredContent": {text: [text]}})


INDEX = Index.build([SearchDocument(key="a", name="read_file", description="Reads a file.")])
READERS: dict[str, Callable[[str], object]] = {
    "one line": prose.one_line,
    "first sentence": prose.first_sentence,
    "split sentence": prose.split_first_sentence,
    "clip": lambda text: prose.clip(text, 100),
    "cut": lambda text: prose.cut(text, 100),
    "terms": terms.terms,
    "spelt": lambda text: [terms.spelt(run) for run in terms.runs(text)],
    "fields": lambda text: fields(_entry(text)),
    "words": lambda text: distinctive_words({"one": [_entry(text)], "two": [_entry("b")]}),
    "index": lambda text: Index.build([_entry(text), _entry("other")]),
    "search": lambda text: INDEX.search(text),
    "lean": lambda text: lean({"properties": {"a": {"description": text, "title": text, "examples": [text]}}}),
    "lean name": lambda text: lean({"properties": {text: {"description": text, "title": text}}}),
    "signature": lambda text: signature(text, {"properties": {text: {"enum": [text], "default": text}}}),
    **{f"form {form}": lambda text, form=form: show(_tool(text), form) for form in Form},  # type: ignore[misc]
    "answer": lambda text: answer([_tool(text)], matched=1, siblings={}, most=4_000),
    "instructions": lambda text: instructions([Box(text, text, 1, (text,), (text,))]),
    "no such tool": lambda text: no_such("tool", text, [text + "a", "b" + text, "c"]),
    "plain": plain,
    "visible": visible,
    "template": lambda text: uris.fits(text, text),
    "spellings": lambda text: list(other_spellings(f"file:///{text}")),
    "spellings of a host": lambda text: list(other_spellings(f"http://{text}")),
    "filter": lambda text: filters.is_shown(text, ("a*b*c*", "!*d")),
    "redacted": lambda text: Redactor(["secret", "aaa"]).text(text),
    "id": lambda text: messages.find_id(text.encode()),
    "kind": lambda text: messages.looks_like_answer(text.encode()),
    "why unreadable": lambda text: messages.why_unreadable(text.encode(), ValueError()),
    "by line": result_pieces.by_line,
    "page": lambda text: result_pieces.page(text, 0, 500),
    "lines": lambda text: result_pieces.lines(text, 1, 50, 500),
    "grep": lambda text: result_pieces.grep(text, "a*b*a|c", room=500),
    "overview": lambda text: result_pieces.overview(result_pieces.reading(_result(text)), 500),
    "shape": lambda text: shape({text: [text, {text: 1}]}, 500),
    "select": lambda text: _selected(text),
}


def _selected(text: str) -> object:
    try:
        return select.select({"a": 1}, text)
    except ValueError:
        return None


class Work:
    """What has been done so far."""

    def __init__(self) -> None:
        self.lines = 0
        self.patterns = [counted for _, _, counted in kept_patterns()]
        self.marks = 0

    @property
    def done(self) -> int:
        return self.lines + self.marks + sum(counted.steps for counted in self.patterns)

    def of(self, read: Callable[[str], object], text: str) -> int:
        """What reading one text costs."""
        self.lines = self.marks = 0
        for counted in self.patterns:
            counted.steps = 0
        former = sys.gettrace()
        sys.settrace(self._tracer())
        try:
            read(text)
        finally:
            sys.settrace(former)
        return self.done

    def _tracer(self) -> Callable[[FrameType, str, object], Any]:
        # Runs at each of a million lines: one function for those that count, and none for what is not ours.
        def count(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                self.lines += 1
            return count

        return lambda frame, event, argument: count if is_ours(frame.f_code) else None

    def normalize(self, form: Any, text: str) -> str:
        """Marks on one letter are sorted one by one: a square, in their number."""
        runs = groupby(text, lambda one: unicodedata.combining(one) != 0)
        self.marks += sum(len(list(run)) ** 2 if is_mark else 0 for is_mark, run in runs)
        return unicodedata.normalize(form, text)


@cache
def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(str(PACKAGE))


@cache
def kept_patterns() -> list[tuple[ModuleType, str, Counted]]:
    """Every pattern that a module keeps, and what counts its work."""
    return [
        (module, name, Counted(value))
        for module in modules()
        for name, value in vars(module).items()
        if isinstance(value, re.Pattern)
    ]


@contextmanager
def counting() -> Iterator[Work]:
    work = Work()
    with pytest.MonkeyPatch.context() as patch:
        for module, name, counted in kept_patterns():
            patch.setattr(module, name, counted)
        patch.setattr(terms, "unicodedata", _Unicode(work))
        yield work


class _Unicode:
    def __init__(self, work: Work) -> None:
        self.normalize = work.normalize
        self.category = unicodedata.category


UNITS = [" ", "\n", " \n", "a", "A", "aB", ". ", "!?", "-", "{", "[", '"', '\\"', "\\", "\x1b[", "\r", "\x1b]"]
UNITS += ["\x00", "é", "\u0316\u0300", "\u4e2d", "0", "_", "a ", "a/", "*", "|", "<title", '"id":', "'s ", "{a}"]
UNITS += ["../", "%2e", "%25", "@", ":", "//"]


@pytest.mark.parametrize("name", READERS)
def test_no_text_costs_more_than_in_proportion_to_its_length(name: str) -> None:
    read = READERS[name]
    with counting() as work:
        for unit in UNITS:
            times = MANY_MARKS if unicodedata.combining(unit[0]) else 1
            long = work.of(read, _repeated(unit, LONG * times))
            if long <= STEPS_FOR_A_CHARACTER * LONG * times:
                # Where a longer text is tried in more forms, each of them still looks at it a few times only.
                continue
            short = work.of(read, _repeated(unit, SHORT * times))
            assert long <= GROWTH * short, f"{unit!r} four times as often: {long:,} steps instead of {short:,}"


def _repeated(unit: str, length: int) -> str:
    return f"a{unit * (length // len(unit))}b"
