"""Servers' questions while a command runs, asked at the terminal: forms, field by field, and pages to visit.

Owns the questions and how answers are read. Everything goes to stderr, because stdout is data. Without a terminal, no
capability is declared.
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

from mcp_workbench.cli.screen import stderr
from mcp_workbench.engine.economy.prose import clip
from mcp_workbench.engine.printable import one_line
from mcp_workbench.team.policy.approval_question import ALLOW_MEMBER, DURATIONS

# The declared capabilities, in the spelling that connections are compared by.
CAPABILITIES: Final = b'{"elicitation":{"form":{},"url":{}}}'
DECLINE_ANSWER: Final = {"action": "decline"}
CANCEL_ANSWER: Final = {"action": "cancel"}
# Wrong answers to one question before the command is aborted.
MAX_INPUT_TRIES: Final = 5
# A prompt that fills the screen would hide who asks.
_MAX_TITLE_LENGTH: Final = 80
_MAX_CHOICES_LENGTH: Final = 300
_TRUE: Final = ("y", "yes", "true")
_FALSE: Final = ("n", "no", "false")


def can_ask() -> bool:
    """Whether a user is at a terminal, to read questions and type answers."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class WrongAnswer(Exception):
    """The text typed is not valid for the field; the question is repeated."""


class TerminalAsker:
    """Asks at the terminal. `paused` is entered while the user types, so that nothing moves on the screen."""

    def __init__(self, where: str, paused: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._where = where
        self._paused = paused
        self._screen = stderr()
        self._lock = asyncio.Lock()

    async def answer(self, method: str, params: Raw) -> object:
        """Answer a server's request; None if it cannot be answered here."""
        # Sampling and roots are not declared, but a server may request them anyway.
        if method != "elicitation/create":
            return None
        try:
            asked = decode(params)
        except MsgspecError:
            return None
        if not isinstance(asked, dict):
            return None
        # The workbench puts the server in front of each question, and our prompt names the tool as well.
        message = _without_place(str(asked.get("message", "")), self._where)
        # One question at a time, whatever the server does.
        async with self._lock:
            with self._paused():
                return await (self._page(asked, message) if asked.get("mode") == "url" else self._form(asked, message))

    async def _page(self, asked: dict[str, Any], message: str) -> object:
        self._screen.line((f"[{self._where}] ", "dim"), message)
        self._screen.line(one_line(str(asked.get("url", ""))), indent=2, wrap=False)
        # The specification requires consent before a page is opened, and the whole address to be shown: it comes from
        # the server.
        typed = await self._line("Open this page in a browser? [y/N] ")
        if typed is None:
            return CANCEL_ANSWER
        if typed.strip().lower() not in _TRUE:
            return DECLINE_ANSWER
        import webbrowser

        # `webbrowser` waits for browsers that run in the terminal, such as `lynx`.
        await asyncio.to_thread(webbrowser.open, str(asked.get("url", "")))
        return {"action": "accept"}

    async def _form(self, asked: dict[str, Any], message: str) -> object:
        self._screen.line((f"[{self._where}] ", "dim"), message)
        schema = asked.get("requestedSchema")
        fields, required = _fields(schema if isinstance(schema, dict) else {})
        is_approval = _is_approval(fields)
        self._screen.line((_keys(fields, required, is_approval=is_approval), "dim"))
        content: dict[str, object] = {}
        for name, about in fields.items():
            value = await self._field(name, about, is_required=name in required, is_approval=is_approval)
            if value is DECLINE_ANSWER:
                return DECLINE_ANSWER
            if value is not None:
                content[name] = value
        if not fields:
            # A form without fields is a yes-or-no question, and Enter alone is not consent.
            typed = await self._line("Agree? [y/N] ")
            return {"action": "accept", "content": {}} if (typed or "").strip().lower() in _TRUE else DECLINE_ANSWER
        return {"action": "accept", "content": content}

    async def _field(self, name: str, about: dict[str, Any], *, is_required: bool, is_approval: bool) -> object:
        if isinstance(about.get("description"), str):
            self._screen.line((about["description"], "dim"), indent=2)
        # A pipe that looks like a terminal could give wrong answers forever.
        for _ in range(MAX_INPUT_TRIES):
            title = clip(str(about.get("title") or name), _MAX_TITLE_LENGTH)
            wanted = _expected_of_approval(about) if is_approval else clip(expected(about), _MAX_CHOICES_LENGTH)
            typed = await self._line(f"{title}{wanted}{'' if is_required else '?'}: ")
            if typed is None or (is_approval and typed.strip().lower() in _FALSE):
                return DECLINE_ANSWER
            if is_approval and typed.strip().lower() in _TRUE:
                # An approval also offers longer durations; a user who types `y` has agreed to this call only.
                return "once"
            try:
                return field_value(typed.rstrip("\n"), about, is_required=is_required)
            except WrongAnswer as error:
                self._screen.line((str(error), "warn"), indent=2)
        return DECLINE_ANSWER

    async def _line(self, prompt: str) -> str | None:
        """Return what was typed; None at the end of input. Not in a thread, because Ctrl-C has to end it."""
        self._screen.flush()
        # The server's text stays on this line, and this line says who asks.
        sys.stderr.write(one_line(f"[{self._where}] {prompt}"))
        sys.stderr.flush()
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        # A terminal returns whole lines.
        typed = os.read(descriptor, 65_536)
        if not typed:
            sys.stderr.write("\n")
            return None
        return typed.decode(errors="replace")


def _without_place(message: str, where: str) -> str:
    """Remove the `[toolbox/server]` that the workbench puts before a question, if `where` says more than that."""
    place, bracket, rest = message.removeprefix("[").partition("] ")
    return rest if bracket and message.startswith("[") and f"{where}/".startswith(f"{place}/") else message


def _fields(schema: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], list[object]]:
    """Return the fields of a form by name, and the required ones; servers may write anything there."""
    fields, required = schema.get("properties"), schema.get("required")
    found = fields.items() if isinstance(fields, dict) else ()
    return (
        {name: about if isinstance(about, dict) else {} for name, about in found},
        required if isinstance(required, list) else [],
    )


def _is_approval(fields: dict[str, dict[str, Any]]) -> bool:
    """Whether it is the question of a rule with `ask`, which people answer with yes or no."""
    named = choices(fields[ALLOW_MEMBER]) if fields.keys() == {ALLOW_MEMBER} else []
    return "once" in named and set(named) <= set(DURATIONS)


def _keys(fields: dict[str, dict[str, Any]], required: list[object], *, is_approval: bool) -> str:
    """Return what the keys do in this form."""
    if is_approval:
        longer = " or ".join(each for each in choices(fields[ALLOW_MEMBER]) if each != "once")
        return f"y allows it once{f', {longer} for longer' if longer else ''}; n or Ctrl-D declines."
    effects = []
    if any(name not in required and about.get("default") is None for name, about in fields.items()):
        effects.append("skip a field marked ?")
    if any(about.get("default") is not None for about in fields.values()):
        effects.append("accept the default")
    return f"Press Enter to {' or '.join(effects)}, Ctrl-D to decline." if effects else "Ctrl-D declines."


def _expected_of_approval(about: dict[str, Any]) -> str:
    return f" [{'/'.join(['y', 'n', *(each for each in choices(about) if each != 'once')])}]"


def expected(about: dict[str, Any]) -> str:
    """Return what a field accepts, in brackets."""
    named = _titled(about)
    if named:
        text = "/".join(named)
    elif about.get("type") == "boolean":
        text = "y/n"
    elif about.get("type") == "array":
        items = about.get("items")
        of = _titled(items) if isinstance(items, dict) else []
        text = "several of " + "/".join(of) + ", with commas" if of else "several, with commas"
    else:
        text = str(about.get("format") or about.get("type") or "")
    default = about.get("default")
    if default is not None:
        text += f"{', ' * bool(text)}default {_typed(default)}"
    return f" [{text}]" if text else ""


def _typed(value: object) -> str:
    """Return a value as a user would type it."""
    if isinstance(value, bool):
        return "y" if value else "n"
    if isinstance(value, list):
        return ", ".join(map(_typed, value))
    return str(value)


def choices(about: dict[str, Any]) -> list[str]:
    """Return the values of a field that is an enumeration, else nothing."""
    for key in ("enum", "oneOf", "anyOf"):
        found = about.get(key)
        if isinstance(found, list):
            return [str(each.get("const")) if isinstance(each, dict) else str(each) for each in found]
    return []


def _titles(about: dict[str, Any]) -> list[str]:
    """Return the text to show for each choice: `enumNames` of older revisions, `title` of newer ones."""
    named = choices(about)
    found = about.get("enumNames")
    if not isinstance(found, list):
        listed = about.get("oneOf") or about.get("anyOf") or []
        found = [each.get("title") if isinstance(each, dict) else None for each in listed]
    if len(found) != len(named):
        return named
    return [title if isinstance(title, str) and title else value for title, value in zip(found, named, strict=True)]


def _titled(about: dict[str, Any]) -> list[str]:
    """Return the choices, with their titles if these say more."""
    return [
        value if title.lower() == value.lower() else f"{value} ({title})"
        for value, title in zip(choices(about), _titles(about), strict=True)
    ]


def field_value(typed: str, about: dict[str, Any], *, is_required: bool) -> object:
    """Convert what was typed to the type of the field; None to leave the field out. Raises `WrongAnswer`."""
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
        # `multiselect` of revision 2025-11-25, separated by commas: choices that contain a comma cannot be typed.
        return [_one(each.strip(), of) for each in text.split(",") if each.strip()]
    # White space may be part of a text, but of no other type.
    return _one(text if kind != "string" else typed, about)


def _one(text: str, about: dict[str, Any]) -> object:
    named = choices(about)
    if named and text.strip() not in named:
        titles = [title.lower() for title in _titles(about)]
        if titles.count(text.strip().lower()) != 1:
            raise WrongAnswer(f"one of {', '.join(_titled(about))}")
        text = named[titles.index(text.strip().lower())]
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
        least, most = (_number(about.get(key)) for key in ("minimum", "maximum"))
        if (least is not None and number < least) or (most is not None and number > most):
            raise WrongAnswer(f"a number from {least} to {most}")
        return number
    least, most = about.get("minLength"), about.get("maxLength")
    if (isinstance(least, int) and len(text) < least) or (isinstance(most, int) and len(text) > most):
        raise WrongAnswer(f"between {least or 0} and {most or 'any number of'} characters")
    if not named:
        _check_format(text.strip(), about.get("format"))
    return text.strip() if named else text


def _check_format(text: str, name: object) -> None:
    """The formats that the specification allows in forms. Only what is certainly wrong is refused."""
    import re
    from datetime import date, datetime

    if name == "email" and not re.fullmatch(r"[^@\s]+@[^@\s]+", text):
        raise WrongAnswer("an email address, such as name@example.com")
    if name == "uri" and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text):
        raise WrongAnswer("an address with its scheme, such as https://example.com")
    if name in ("date", "date-time"):
        try:
            (date if name == "date" else datetime).fromisoformat(text)
        except ValueError:
            example = "2026-01-31" if name == "date" else "2026-01-31T09:30:00Z"
            raise WrongAnswer(f"a {'date' if name == 'date' else 'date and time'}, such as {example}") from None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None
