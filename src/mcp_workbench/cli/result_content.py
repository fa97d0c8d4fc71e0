"""What a tool answered, taken apart for a shell: text, files, remarks.

Owns which part of a result is data and which is a remark about it. Refuses to print. Pure.
"""

from __future__ import annotations

import binascii
import json
from typing import Any, NamedTuple

from msgspec import Raw

# The least that the limit of Python itself can be set to is 640.
_MOST_DIGITS = 600
_QUESTIONS = ("elicitation", "sampling", "roots/list")


class Binary(NamedTuple):
    """Bytes that a terminal cannot show."""

    kind: str
    type: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.kind} ({self.type}, {len(self.data):,} bytes)"


def decoded(result: bytes | Raw) -> dict[str, Any]:
    """An object that a server answered with. The standard library reads lone surrogates, which it may hold; a number
    that is longer than Python reads stays a text."""
    found = json.loads(bytes(result), parse_int=_whole)
    return found if isinstance(found, dict) else {}


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


class ResultContent:
    def __init__(self, raw: Raw | bytes) -> None:
        self.raw = bytes(raw)
        self._result = decoded(self.raw)
        self.is_error = self._result.get("isError") is True
        self.texts: list[str] = []
        # What is shown where there is nothing else; None where there is.
        self.structured: object = None
        # Addresses, with what they are called.
        self.links: list[tuple[str, str]] = []
        self.binaries: list[Binary] = []
        self.remarks: list[str] = []
        content = self._result.get("content")
        for item in content if isinstance(content, list) else []:
            self._take(item if isinstance(item, dict) else {"type": "?"})
        self._settle_structured()

    @property
    def questions(self) -> list[str]:
        """What the tool wants to know before it goes on, which only a client with a person behind it can answer."""
        if self._result.get("resultType") != "input_required":
            return []
        requests = self._result.get("inputRequests")
        asked = requests.values() if isinstance(requests, dict) else []
        return [_question(request) for request in asked] or ["something that it does not say"]

    def as_text(self) -> str:
        """All of it that is text, as a file or an error holds it."""
        written = self.texts if self.structured is None else [as_json(self.structured)]
        return "\n".join([*written, *(uri for uri, _ in self.links)])

    def _take(self, item: dict[str, Any]) -> None:
        match item:
            case {"type": "text", "text": str(text)}:
                self.texts.append(text)
            # Data is decoded here rather than where it is written: what is no base64 becomes a remark, not a broken
            # file.
            case {"type": "image" | "audio" as kind, "data": str(data)}:
                self._take_binary(kind, item.get("mimeType"), data)
            case {"type": "resource", "resource": {"text": str(text)}}:
                self.texts.append(text)
            case {"type": "resource", "resource": {"blob": str(data)} as resource}:
                self._take_binary(str(resource.get("uri", "resource")), resource.get("mimeType"), data)
            case {"type": "resource_link", "uri": str(uri)}:
                self.links.append((uri, str(item.get("title") or item.get("name") or "")))
            case _:
                self.remarks.append(f"content of type `{item.get('type')}` is not shown; --raw shows it")

    def _take_binary(self, kind: str, type: object, data: str) -> None:
        try:
            self.binaries.append(Binary(kind, str(type or "unknown type"), binascii.a2b_base64(data)))
        except (binascii.Error, ValueError):
            self.remarks.append(f"{kind}: its data is not base64; --raw shows it")

    def _settle_structured(self) -> None:
        """Structured content is shown where there is no text; where text repeats it, other text is enough."""
        structured = self._result.get("structuredContent")
        if structured is None:
            return
        without = [text for text in self.texts if not _says_the_same(text, structured)]
        if not without and not self.binaries and not self.links:
            self.structured = structured
        elif without:
            self.texts = without


def as_json(value: object) -> str:
    """Structured content for people, and for programs."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def asks_the_user(text: str) -> bool:
    """Whether an error speaks of a question that could not be asked."""
    return any(word in text.lower() for word in _QUESTIONS)


def _question(request: object) -> str:
    if not isinstance(request, dict):
        return "something"
    params = request.get("params")
    message = params.get("message") if isinstance(params, dict) else None
    return f"{request.get('method')}: {message}" if isinstance(message, str) else str(request.get("method"))


def _says_the_same(text: str, structured: object) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        # The specification wants structured content repeated as text, for older clients: shown once is enough. Compared
        # as values, since servers indent the one and not the other.
        return bool(json.loads(text, parse_int=_whole) == structured)
    except (ValueError, RecursionError):
        return False
