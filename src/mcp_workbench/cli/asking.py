"""What servers ask while a command runs, put to the person at the terminal: forms, field by field, and pages to visit.

Owns the questions and how answers are read. Everything goes to stderr: stdout is data. Where there is no terminal the
question is declined, which is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from msgspec import MsgspecError, Raw
from msgspec.json import decode

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.screen import stderr

# What is declared: in the spelling that connections are compared by.
CAPABILITIES: Final = b'{"elicitation":{"form":{},"url":{}}}'
DECLINED: Final = {"action": "decline"}
CANCELLED: Final = {"action": "cancel"}
# Wrong answers to one question before the command is aborted.
MOST_TRIES: Final = 5
_TRUE: Final = ("y", "yes", "true")
_FALSE: Final = ("n", "no", "false")


class WrongAnswer(Exception):
    """What was typed is not what the form takes; it is asked again."""


class TerminalAsker:
    """Asks at the terminal. `paused` is entered while somebody types, so that nothing moves on the screen."""

    def __init__(self, where: str, paused: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._where = where
        self._paused = paused
        self._screen = stderr()
        self._lock = asyncio.Lock()

    async def answer(self, method: str, params: Raw) -> object:
        """The answer to a server's request; None for one that cannot be answered here."""
        if method != "elicitation/create":
            return None
        try:
            asked = decode(params)
        except MsgspecError:
            return None
        if not isinstance(asked, dict):
            return None
        message = str(asked.get("message", ""))
        if not (sys.stdin.isatty() and self._screen.is_terminal):
            remark("note", f"[{self._where}] asks: {message}; declined, as there is no terminal to answer at")
            return DECLINED
        # One question at a time, whatever the server does.
        async with self._lock:
            with self._paused():
                return await (self._page(asked, message) if asked.get("mode") == "url" else self._form(asked, message))

    async def _page(self, asked: dict[str, Any], message: str) -> object:
        self._screen.line((f"[{self._where}] ", "dim"), message)
        self._screen.line(str(asked.get("url", "")), indent=2, wrap=False)
        typed = await self._line("Open this page in a browser? [y/N] ")
        if typed is None:
            return CANCELLED
        if typed.strip().lower() not in _TRUE:
            return DECLINED
        import webbrowser

        await asyncio.to_thread(webbrowser.open, str(asked.get("url", "")))
        return {"action": "accept"}

    async def _form(self, asked: dict[str, Any], message: str) -> object:
        self._screen.line((f"[{self._where}] ", "dim"), message)
        self._screen.line(("Enter leaves a field out or takes its default; Ctrl-D declines.", "dim"))
        schema = asked.get("requestedSchema")
        fields = schema.get("properties") if isinstance(schema, dict) else None
        required = schema.get("required") if isinstance(schema, dict) else None
        content: dict[str, object] = {}
        for name, field in (fields if isinstance(fields, dict) else {}).items():
            about = field if isinstance(field, dict) else {}
            value = await self._field(name, about, name in (required if isinstance(required, list) else []))
            if value is DECLINED:
                return DECLINED
            if value is not None:
                content[name] = value
        if not content and not fields:
            typed = await self._line("Agree? [y/N] ")
            return {"action": "accept", "content": {}} if (typed or "").strip().lower() in _TRUE else DECLINED
        return {"action": "accept", "content": content}

    async def _field(self, name: str, about: dict[str, Any], is_required: bool) -> object:
        if isinstance(about.get("description"), str):
            self._screen.line((about["description"], "dim"), indent=2)
        for _ in range(MOST_TRIES):
            typed = await self._line(f"  {about.get('title') or name}{expected(about)}{'' if is_required else '?'}: ")
            if typed is None:
                return DECLINED
            try:
                return field_value(typed.rstrip("\n"), about, is_required=is_required)
            except WrongAnswer as error:
                self._screen.line((str(error), "warn"), indent=2)
        return DECLINED

    async def _line(self, prompt: str) -> str | None:
        """What was typed; None at the end of input. Not in a thread: Ctrl-C has to end it."""
        self._screen.flush()
        sys.stderr.write(prompt)
        sys.stderr.flush()
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        # A terminal gives whole lines.
        typed = os.read(descriptor, 65_536)
        if not typed:
            sys.stderr.write("\n")
            return None
        return typed.decode(errors="replace")


def expected(about: dict[str, Any]) -> str:
    """What a field takes, in brackets."""
    named = choices(about)
    if named:
        said = "/".join(named)
    elif about.get("type") == "boolean":
        said = "y/n"
    elif about.get("type") == "array":
        items = about.get("items")
        of = choices(items) if isinstance(items, dict) else []
        said = "several of " + "/".join(of) + ", with commas" if of else "several, with commas"
    else:
        said = str(about.get("format") or about.get("type") or "")
    default = about.get("default")
    if default is not None:
        said += f", default {default}"
    return f" [{said}]" if said else ""


def choices(about: dict[str, Any]) -> list[str]:
    """The values that a field may have, where they are counted."""
    for key in ("enum", "oneOf", "anyOf"):
        found = about.get(key)
        if isinstance(found, list):
            return [str(each.get("const")) if isinstance(each, dict) else str(each) for each in found]
    return []


def field_value(typed: str, about: dict[str, Any], *, is_required: bool) -> object:
    """What was typed, as the form wants it; None to leave it out. Raises `WrongAnswer`."""
    if not typed.strip():
        if about.get("default") is not None:
            found: object = about["default"]
            return found
        if is_required:
            raise WrongAnswer("an answer is needed here")
        return None
    text = typed.strip()
    kind = about.get("type")
    if kind == "array":
        items = about.get("items")
        of = items if isinstance(items, dict) else {}
        return [_one(each.strip(), of) for each in text.split(",") if each.strip()]
    return _one(text if kind != "string" else typed, about)


def _one(text: str, about: dict[str, Any]) -> object:
    named = choices(about)
    if named and text.strip() not in named:
        raise WrongAnswer(f"one of {', '.join(named)}")
    kind = about.get("type")
    if kind == "boolean":
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise WrongAnswer("y or n")
    if kind in ("integer", "number"):
        try:
            number = int(text) if kind == "integer" else float(text)
        except ValueError:
            raise WrongAnswer("a whole number" if kind == "integer" else "a number") from None
        least, most = about.get("minimum"), about.get("maximum")
        if (least is not None and number < least) or (most is not None and number > most):
            raise WrongAnswer(f"a number from {least} to {most}")
        return number
    least, most = about.get("minLength"), about.get("maxLength")
    if (isinstance(least, int) and len(text) < least) or (isinstance(most, int) and len(text) > most):
        raise WrongAnswer(f"between {least or 0} and {most or 'any number of'} characters")
    return text.strip() if named else text
