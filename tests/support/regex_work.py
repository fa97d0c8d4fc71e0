"""How much work a regular expression makes of a text, counted in steps instead of seconds.

Owns a backtracking matcher that goes through the parsed pattern the way `re` does, alternatives in order and repeats
greedy, lazy or possessive, and counts every character it looks at. `re` itself cannot be asked, and a stopwatch on a
shared machine says nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

Text = str | bytes
Ends = Iterator[int]
# What kind, what is in it, and what one character has to be; None for what is not a single character.
Item = tuple[str, Any, Callable[[Any], bool] | None]


class TooMuchWork(Exception):
    """More steps than the caller allows."""


class Counted:
    """A compiled pattern with the same answers, which counts what they cost."""

    def __init__(self, pattern: re.Pattern[Any], most: int = 2_000_000) -> None:
        self.real = pattern
        self.steps = 0
        self.most = most
        self._is_ascii = bool(pattern.flags & re.ASCII) or isinstance(pattern.pattern, bytes)
        self._ignore_case = bool(pattern.flags & re.IGNORECASE)
        self._tree = self._prepared(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self.real, name)
        if not callable(answer):
            return answer

        def counted(*arguments: Any, **named: Any) -> Any:
            self.work(name, *arguments, **named)
            return answer(*arguments, **named)

        return counted

    def work(self, method: str, *arguments: Any, **named: Any) -> None:
        """Count what one call of a method costs."""
        text = arguments[1] if method in ("sub", "subn") else arguments[0]
        start, end = 0, len(text)
        if method not in ("sub", "subn", "split"):
            start = arguments[1] if len(arguments) > 1 else 0
            end = min(end, arguments[2] if len(arguments) > 2 else end)
        text = text[:end]
        if method in ("match", "fullmatch"):
            wanted = None if method == "match" else end
            next((at for at in self._sequence(self._tree, text, start) if wanted in (None, at)), None)
            return
        while start <= end:
            self._step()
            found = next(self._sequence(self._tree, text, start), None)
            if found is not None and method == "search":
                return
            start = found if found is not None and found > start else start + 1

    def end_of_match(self, text: Text) -> int | None:
        """Where a match at the start of a text ends; None if there is none."""
        return next(self._sequence(self._tree, text, 0), None)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self.most:
            raise TooMuchWork

    def _sequence(self, items: Sequence[Item], text: Text, at: int) -> Ends:
        """Every place where `items` can end that begin at `at`, in the order in which `re` tries them."""
        if not items:
            yield at
            return
        # A stack instead of recursion: one iterator for each item that has matched so far.
        stack = [self._item(items[0], text, at)]
        while stack:
            end = next(stack[-1], None)
            if end is None:
                stack.pop()
            elif len(stack) == len(items):
                yield end
            else:
                stack.append(self._item(items[len(stack)], text, end))

    def _item(self, item: Item, text: Text, at: int) -> Ends:
        kind, value, test = item
        if test is not None:
            self._step()
            return iter((at + 1,) if at < len(text) and test(text[at : at + 1]) else ())
        match kind:
            case "SUBPATTERN":
                return self._sequence(value[-1], text, at)
            case "BRANCH":
                return (end for branch in value[1] for end in self._sequence(branch, text, at))
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repeat(kind, value, text, at)
            case "ATOMIC_GROUP":
                first = next(self._sequence(value, text, at), None)
                return iter(()) if first is None else iter((first,))
            case "ASSERT" | "ASSERT_NOT":
                return self._assert(kind == "ASSERT", value, text, at)
            case "AT":
                self._step()
                return iter((at,)) if self._is_at(str(value), text, at) else iter(())
        raise NotImplementedError(f"{kind} in {self.real.pattern!r}")

    def _assert(self, wanted: bool, value: Any, text: Text, at: int) -> Ends:
        direction, inside, width = value
        start = at if direction > 0 else at - width
        found = start >= 0 and next(self._sequence(inside, text, start), None) is not None
        return iter((at,)) if found is wanted else iter(())

    def _is_at(self, place: str, text: Text, at: int) -> bool:
        match place:
            case "AT_BEGINNING" | "AT_BEGINNING_STRING":
                return at == 0
            case "AT_END":
                return at == len(text) or (at == len(text) - 1 and text[at:] in ("\n", b"\n"))
            case "AT_END_STRING":
                return at == len(text)
            case "AT_BOUNDARY" | "AT_NON_BOUNDARY":
                seen = text if isinstance(text, str) else text.decode("latin-1")
                sides = [0 <= n < len(seen) and (seen[n].isalnum() or seen[n] == "_") for n in (at - 1, at)]
                return (sides[0] != sides[1]) is (place == "AT_BOUNDARY")
        raise NotImplementedError(f"{place} in {self.real.pattern!r}")

    def _repeat(self, kind: str, value: Any, text: Text, at: int) -> Ends:
        least, most, items = value
        test = items[0][2] if len(items) == 1 else None
        if test is not None:
            return self._repeat_one(kind, least, int(most), test, text, at)
        return self._repeat_group(kind, least, int(most), items, text, at)

    def _repeat_one(self, kind: str, least: int, most: int, test: Callable[[Any], bool], text: Text, at: int) -> Ends:
        end = at
        if kind == "MIN_REPEAT":
            while True:
                if end - at >= least:
                    yield end
                self._step()
                if end - at >= most or end >= len(text) or not test(text[end : end + 1]):
                    return
                end += 1
        while end - at < most and end < len(text) and test(text[end : end + 1]):
            self._step()
            end += 1
        self._step()
        while end - at >= least:
            yield end
            if kind == "POSSESSIVE_REPEAT":
                return
            self._step()
            end -= 1

    def _repeat_group(self, kind: str, least: int, most: int, items: list[Item], text: Text, at: int) -> Ends:
        if kind == "POSSESSIVE_REPEAT":
            count = 0
            while count < most:
                end = next(self._sequence(items, text, at), None)
                if end is None or end == at:
                    break
                at, count = end, count + 1
            if count >= least:
                yield at
            return
        stack: list[tuple[int, Ends]] = [(at, self._sequence(items, text, at))]
        if kind == "MIN_REPEAT" and least == 0:
            yield at
        while stack:
            start, ends = stack[-1]
            end = next(ends, None) if len(stack) <= most else None
            if end is None or end == start:
                stack.pop()
                if kind == "MAX_REPEAT" and len(stack) >= least:
                    yield start
                continue
            stack.append((end, self._sequence(items, text, end)))
            if kind == "MIN_REPEAT" and len(stack) - 1 >= least:
                yield end

    def _prepared(self, items: Any) -> list[Item]:
        """A parsed pattern as plain lists and words, which are several times as fast to go through as the parser's own,
        each item with its test."""
        prepared: list[Item] = []
        for parsed, value in items:
            kind = str(parsed)
            test = self._made_test(kind, value)
            prepared.append((kind, self._inside(kind, value), None if test is None else cache(test)))
        return prepared

    def _inside(self, kind: str, value: Any) -> Any:
        match kind:
            case "SUBPATTERN" | "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return (*value[:-1], self._prepared(value[-1]))
            case "BRANCH":
                return (value[0], [self._prepared(branch) for branch in value[1]])
            case "ATOMIC_GROUP":
                return self._prepared(value)
            case "ASSERT" | "ASSERT_NOT":
                return (value[0], self._prepared(value[1]), value[1].getwidth()[0])
        return value

    def _made_test(self, kind: str, value: Any) -> Callable[[Any], bool] | None:
        match kind:
            case "LITERAL":
                return lambda one: self._same(one, value)
            case "NOT_LITERAL":
                return lambda one: not self._same(one, value)
            case "ANY":
                dot_all = bool(self.real.flags & re.DOTALL)
                return lambda one: dot_all or one not in ("\n", b"\n")
            case "IN":
                negated = str(value[0][0]) == "NEGATE"
                members = value[1:] if negated else value
                return lambda one: any(self._is_in(one, *member) for member in members) is not negated
        return None

    def _same(self, one: Any, number: int) -> bool:
        return ord(one) == number or (
            self._ignore_case
            and chr(number).casefold() == (one if isinstance(one, str) else one.decode("latin-1")).casefold()
        )

    def _is_in(self, one: Any, kind: Any, value: Any) -> bool:
        match str(kind):
            case "LITERAL":
                return self._same(one, value)
            case "RANGE":
                cases = {one, one.lower(), one.upper()} if self._ignore_case else {one}
                return any(value[0] <= ord(each) <= value[1] for each in cases if len(each) == 1)
            case "CATEGORY":
                text = one if isinstance(one, str) else one.decode("latin-1")
                name = str(value).removeprefix("CATEGORY_")
                positive = name.removeprefix("NOT_")
                is_one = {
                    "DIGIT": unicodedata.category(text) == "Nd",
                    "SPACE": text.isspace(),
                    "WORD": text.isalnum() or text == "_",
                }[positive]
                return (is_one and (text.isascii() or not self._is_ascii)) is (name == positive)
        raise NotImplementedError(f"{kind} in {self.real.pattern!r}")


_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def possessive_rounds_that_fail_half_way(pattern: re.Pattern[Any]) -> bool:
    """Whether a possessive repeat has a round that can fail after a repeat, an alternative or a group in it was tried
    at a later place than where the round began."""

    def walk(items: Any) -> bool:
        return any(
            (str(kind) == "POSSESSIVE_REPEAT" and _fails_half_way(value[2])) or any(map(walk, _inner(str(kind), value)))
            for kind, value in items
        )

    return walk(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))


def _inner(kind: str, value: Any) -> list[Any]:
    """The sequences within an item."""
    if kind in _REPEATS:
        return [value[2]]
    if kind == "BRANCH":
        return list(value[1])
    if kind in ("ASSERT", "ASSERT_NOT"):
        return [value[1]]
    return [value[-1]] if kind == "SUBPATTERN" else [value] if kind == "ATOMIC_GROUP" else []


def _fails_half_way(items: Any) -> bool:
    has_moved = False
    for index, (kind, value) in enumerate(items):
        inner = _inner(str(kind), value)
        least = value[0] if str(kind) in _REPEATS else 1
        if least and (has_moved or (inner and index)):
            return True
        if least and any(map(_fails_half_way, inner)):
            return True
        has_moved = has_moved or bool(inner)
    return False


def alphabet(pattern: re.Pattern[Any]) -> list[str]:
    """Characters that a pattern treats differently: its own, the edges of its ranges, and some of every kind."""
    found = dict.fromkeys('a Z0_\n\t.-"\\/é\u4e2d')

    def walk(items: Any) -> None:
        for kind, value in items:
            match str(kind):
                case "LITERAL" | "NOT_LITERAL":
                    found[chr(value)] = None
                case "RANGE":
                    found.update(dict.fromkeys(map(chr, value)))
                case "IN":
                    walk(value)
                case "SUBPATTERN":
                    walk(value[-1])
                case "ATOMIC_GROUP":
                    walk(value)
                case "BRANCH":
                    for branch in value[1]:
                        walk(branch)
                case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                    walk(value[2])
                case "ASSERT" | "ASSERT_NOT":
                    walk(value[1])

    walk(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    if isinstance(pattern.pattern, bytes):
        return [each for each in found if ord(each) < 128]
    return list(found)


assert sre.MAXREPEAT  # The parser's own constants: this module follows the Python it runs on.
