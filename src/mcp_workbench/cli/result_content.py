"""A tool's result, split for a shell into text, files and remarks.

Owns which part of a result is data and which is a remark about it. Prints nothing. Pure.
"""

from __future__ import annotations

import binascii
import json
from typing import Any, NamedTuple

from msgspec import Raw

# Python's own limit can be set as low as 640.
_MAX_NUMBER_DIGITS = 600
_QUESTIONS = ("elicitation", "sampling", "roots/list")


class Binary(NamedTuple):
    """Bytes that a terminal cannot show."""

    kind: str
    type: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.kind} ({self.type}, {len(self.data):,} bytes)"


def decoded(result: bytes | Raw) -> dict[str, Any]:
    """Decode an object from a server. The standard library accepts lone surrogates, which it may contain; numbers too
    long for Python become strings."""
    found = json.loads(bytes(result), parse_int=_whole)
    return found if isinstance(found, dict) else {}


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_NUMBER_DIGITS else digits


class ResultContent:
    def __init__(self, raw: Raw | bytes) -> None:
        self.raw = bytes(raw)
        self._result = decoded(self.raw)
        self.is_error = self._result.get("isError") is True
        self.texts: list[str] = []
        # Set only if there is nothing else to show.
        self.structured: object = None
        # Addresses, with their titles.
        self.links: list[tuple[str, str]] = []
        self.binaries: list[Binary] = []
        self.remarks: list[str] = []
        content = self._result.get("content")
        for item in content if isinstance(content, list) else []:
            self._take(item if isinstance(item, dict) else {"type": "?"})
        self._settle_structured()

    @property
    def questions(self) -> list[str]:
        """The questions that the tool asks before it continues, which only an interactive client can answer."""
        if self._result.get("resultType") != "input_required":
            return []
        requests = self._result.get("inputRequests")
        asked = requests.values() if isinstance(requests, dict) else []
        return [_question(request) for request in asked] or ["something that it does not say"]

    def as_text(self) -> str:
        """Return everything that is text, for a file or an error."""
        written = self.texts if self.structured is None else [as_json(self.structured)]
        return "\n".join([*written, *(uri for uri, _ in self.links)])

    def _take(self, item: dict[str, Any]) -> None:
        match item:
            case {"type": "text", "text": str(text)}:
                self.texts.append(text)
            # Decoded here rather than when written: invalid base64 becomes a remark, not a broken file.
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
        """Show structured content if there is no text; if one text repeats it, the other texts are enough."""
        structured = self._result.get("structuredContent")
        if structured is None:
            return
        without = [text for text in self.texts if not _says_the_same(text, structured)]
        if not without and not self.binaries and not self.links:
            self.structured = structured
        elif without:
            self.texts = without


def as_json(value: object) -> str:
    """Format structured content for people and programs."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def asks_the_user(text: str) -> bool:
    """Whether an error is about a question that could not be asked."""
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
        # The specification recommends repeating structured content as text, for older clients: it is shown only once.
        # Compared as values, because servers indent one and not the other.
        return bool(json.loads(text, parse_int=_whole) == structured)
    except (ValueError, RecursionError):
        return False
