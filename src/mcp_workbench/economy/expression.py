"""The language of `select`: a subset of JMESPath, read into a tree.

Owns the grammar: fields, indexes, slices, `[*]`, `*`, `[]`, filters, comparisons, `&& || !`, lists and hashes of
selections, pipes, literals and function calls. Refuses to know how a tree is evaluated.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

_LONGEST = 1_000
_DEEPEST = 40

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)
    |(?P<quoted>"(?:[^"\\]|\\.)*")
    |(?P<raw>'(?:[^'\\]|\\.)*')
    |(?P<literal>`(?:[^`\\]|\\.)*`)
    |(?P<number>-?\d+)
    |(?P<sign>\[\?|\[\]|\|\||&&|==|!=|<=|>=|[.\[\]{}(),:*@|&!<>]))""",
    re.VERBOSE,
)
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))


class BadExpression(ValueError):
    """What the caller asked for cannot be read; the message says where and what was expected."""


class Node(NamedTuple):
    """One operation: its kind, what it needs to know, and the operations it is made of."""

    kind: str
    value: Any = None
    parts: tuple[Node, ...] = ()


CURRENT = Node("current")


def parse(text: str) -> Node:
    """The tree of an expression, or `BadExpression`."""
    if len(text) > _LONGEST:
        raise BadExpression(f"the expression is longer than {_LONGEST} characters")
    reader = _Reader(text)
    tree = reader.pipe()
    reader.expect("end")
    return tree


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def _peek(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> tuple[str, Any, int]:
        token = self._tokens[self._at]
        self._at += token[0] != "end"
        return token

    def _took(self, sign: str) -> bool:
        if self._peek() == sign:
            self._at += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self._took(sign) and self._peek() != sign:
            raise self._error(f"expected {sign}")

    def _error(self, what: str) -> BadExpression:
        position = self._tokens[self._at][2]
        return BadExpression(f"{what} at character {position + 1} of `{self._text[:80]}`")

    def pipe(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error("too many levels")
        node = self._either()
        while self._took("|"):
            node = Node("pipe", parts=(node, self._either()))
        self._depth -= 1
        return node

    def _either(self) -> Node:
        node = self._both()
        while self._took("||"):
            node = Node("or", parts=(node, self._both()))
        return node

    def _both(self) -> Node:
        node = self._compared()
        while self._took("&&"):
            node = Node("and", parts=(node, self._compared()))
        return node

    def _compared(self) -> Node:
        node = self._negated()
        if self._peek() in _COMPARISONS:
            sign = self._take()[0]
            node = Node("compare", sign, (node, self._negated()))
        return node

    def _negated(self) -> Node:
        negations = 0
        while self._took("!"):
            negations += 1
        node = self._chain(self._primary(), stops_at_flatten=False)
        # An even number of them still makes a truth value of what follows.
        for _ in range(2 - negations % 2 if negations else 0):
            node = Node("not", parts=(node,))
        return node

    def _primary(self) -> Node:
        kind, value, _ = self._take()
        match kind:
            case "name" if self._peek() == "(":
                return self._call(value)
            case "name" | "quoted":
                return Node("field", value)
            case "raw" | "literal":
                return Node("literal", value)
            case "@":
                return CURRENT
            case "*":
                return Node("values", parts=(CURRENT, self._chain(CURRENT, stops_at_flatten=True)))
            case "(":
                node = self.pipe()
                self._closing(")")
                return node
            case "{":
                return self._hash()
            case "[" | "[?" | "[]":
                self._at -= 1
                # At the start of an expression `[` may begin a list of selections as well as an index.
                return self._list_or_index()
        self._at -= kind != "end"
        raise self._error("expected a field")

    def _list_or_index(self) -> Node:
        if self._peek() == "[" and self._tokens[self._at + 1][0] not in ("number", "*", ":"):
            self._at += 1
            parts = [self.pipe()]
            while self._took(","):
                parts.append(self.pipe())
            self._closing("]")
            return Node("list", parts=tuple(parts))
        return self._chain(CURRENT, stops_at_flatten=False)

    def _chain(self, node: Node, *, stops_at_flatten: bool) -> Node:
        """What follows a value: fields, indexes, and projections, which take the rest of the chain to themselves."""
        while True:
            match self._peek():
                case ".":
                    self._at += 1
                    node = self._dotted(node)
                case "[]" if not stops_at_flatten:
                    self._at += 1
                    node = Node("flatten", parts=(node, self._chain(CURRENT, stops_at_flatten=True)))
                case "[?":
                    self._at += 1
                    condition = self.pipe()
                    self._closing("]")
                    node = Node("filter", parts=(node, condition, self._chain(CURRENT, stops_at_flatten=True)))
                case "[":
                    self._at += 1
                    node = self._bracketed(node)
                case _:
                    return node

    def _dotted(self, node: Node) -> Node:
        kind, value, _ = self._take()
        match kind:
            case "name" if self._peek() == "(":
                return Node("pipe", parts=(node, self._call(value)))
            case "name" | "quoted":
                return Node("then", parts=(node, Node("field", value)))
            case "*":
                return Node("values", parts=(node, self._chain(CURRENT, stops_at_flatten=True)))
            case "{":
                return Node("then", parts=(node, self._hash()))
            case "[":
                self._at -= 1
                return Node("then", parts=(node, self._list_or_index()))
        self._at -= kind != "end"
        raise self._error("expected a field after `.`")

    def _bracketed(self, node: Node) -> Node:
        if self._took("*"):
            self._closing("]")
            return Node("each", parts=(node, self._chain(CURRENT, stops_at_flatten=True)))
        bounds: list[int | None] = [None]
        while self._peek() != "]":
            kind, value, _ = self._take()
            if kind == "number" and bounds[-1] is None:
                bounds[-1] = value
            elif kind == ":" and len(bounds) < 3:
                bounds.append(None)
            else:
                self._at -= kind != "end"
                raise self._error("expected an index, a slice or `*`")
        self._closing("]")
        if len(bounds) > 1:
            cut = Node("slice", tuple(bounds), (node,))
            return Node("each", parts=(cut, self._chain(CURRENT, stops_at_flatten=True)))
        if bounds[0] is None:
            raise self._error("expected an index")
        return Node("index", bounds[0], (node,))

    def _hash(self) -> Node:
        keys: list[str] = []
        parts: list[Node] = []
        while True:
            kind, value, _ = self._take()
            if kind not in ("name", "quoted"):
                self._at -= kind != "end"
                raise self._error("expected a key")
            keys.append(value)
            self._closing(":")
            parts.append(self.pipe())
            if not self._took(","):
                break
        self._closing("}")
        return Node("hash", tuple(keys), tuple(parts))

    def _call(self, name: str) -> Node:
        self._closing("(")
        parts: list[Node] = []
        while not self._took(")"):
            if parts:
                self._closing(",")
            parts.append(Node("reference", parts=(self.pipe(),)) if self._took("&") else self.pipe())
        return Node("call", name, tuple(parts))

    def _closing(self, sign: str) -> None:
        if not self._took(sign):
            raise self._error(f"expected `{sign}`")


def _tokens(text: str) -> list[tuple[str, Any, int]]:
    found: list[tuple[str, Any, int]] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadExpression(f"cannot read character {position + 1} of `{text[:80]}`")
        kind = match.lastgroup or ""
        written = match.group(kind)
        start = match.start(kind)
        found.append((written if kind == "sign" else kind, _value(kind, written, start), start))
        position = match.end()
    return [*found, ("end", None, end)]


def _value(kind: str, written: str, position: int) -> Any:
    try:
        match kind:
            case "number":
                return int(written[:18])
            case "quoted":
                return msgspec.json.decode(written, type=str)
            case "raw":
                return written[1:-1].replace("\\'", "'")
            case "literal":
                inner = written[1:-1].replace("\\`", "`").strip()
                try:
                    return msgspec.json.decode(inner)
                except msgspec.DecodeError:
                    return inner  # JMESPath's old form: a bare word is a string.
    except (msgspec.DecodeError, ValueError) as error:
        raise BadExpression(f"cannot read the value at character {position + 1}: {error}") from None
    return written
