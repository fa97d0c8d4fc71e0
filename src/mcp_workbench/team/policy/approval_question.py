"""The question for an approval: what the user is shown, and what counts as a yes. Pure.

The whole call is shown exactly as it will be sent, with nothing that a terminal or a window would hide.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final, Literal, get_args

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.printable import one_line

Duration = Literal["once", "session", "hour"]
DURATIONS: Final = get_args(Duration)
_SAID: Final = {"once": "Once", "session": "For this session", "hour": "For an hour"}
ALLOW_MEMBER: Final = "allow"
# Users do not read more in a form, and windows outgrow the screen. The question states how much is left out, with its
# hash; all of it can be read elsewhere.
MAX_QUESTION_LENGTH: Final = 4000
MAX_SHOWN_DIFFERENCES: Final = 20
_MAX_VALUE_LENGTH: Final = 200


class _Choice(Struct):
    allow: str = ""


class _ElicitResult(Struct):
    action: str = ""
    content: Raw = Raw(b"{}")


_decode_answer: Final = Decoder(_ElicitResult).decode
_decode_choice: Final = Decoder(_Choice).decode


def question(
    place: str,
    params: bytes,
    last: bytes | None,
    *,
    has_session: bool,
    meta: bytes | None = None,
    id: str | None = None,
) -> dict[str, object]:
    """The params of an `elicitation/create`: a message and a form. `id` is how to see all of it if it is cut."""
    lines = [f"Allow this call of {one_line(place)}?", ""]
    if is_cut(params, meta):
        how = (
            "decline what you cannot judge"
            if id is None
            else f"to see all of it, run: mcp-workbench team approve {id} --show"
        )
        lines += [f"It is too long for this question, which shows the beginning; {how}", ""]
    lines += ["It will be sent as:", shown(params)]
    if meta is not None:
        lines += ["", "with this `_meta`:", shown(meta)]
    if last is not None:
        changes = differences(last, params)
        said = "\n".join(changes) if changes else "nothing"
        lines += ["", "Different from what you approved last:", said]
    # Without a session there is no end of one.
    choices = [duration for duration in DURATIONS if has_session or duration != "session"]
    form = {
        "type": "object",
        "properties": {
            ALLOW_MEMBER: {
                "type": "string",
                "title": "Allow exactly this call",
                "enum": choices,
                # Supported since forms exist (2025-06-18); titles in `oneOf` came with 2025-11-25.
                "enumNames": [_SAID[choice] for choice in choices],
            }
        },
        "required": [ALLOW_MEMBER],
    }
    return {"message": "\n".join(lines), "requestedSchema": form}


def chosen(answer: Raw | bytes, *, has_session: bool) -> Duration | None:
    """For how long the user allows it; None for anything but a plain yes."""
    try:
        read = _decode_answer(answer)
        choice = _decode_choice(read.content).allow if read.action == "accept" else ""
    except (DecodeError, ValidationError, RecursionError):
        return None
    if choice == "session" and not has_session:
        return None
    return choice if choice in DURATIONS else None  # type: ignore[return-value]


def shown(params: bytes) -> str:
    """The parameters as they will be sent, for users."""
    # As written: an object that repeats a member is shown with both.
    text = one_line(params.decode(errors="backslashreplace"))
    if len(text) <= MAX_QUESTION_LENGTH:
        return text
    mark = sha256(params).hexdigest()
    return (
        f"{text[:MAX_QUESTION_LENGTH]}… and {len(text) - MAX_QUESTION_LENGTH:,} characters more (sha256 of all: {mark})"
    )


def is_cut(params: bytes, meta: bytes | None) -> bool:
    """Whether a question shows only the beginning of one of them."""
    return any(
        len(one_line(each.decode(errors="backslashreplace"))) > MAX_QUESTION_LENGTH for each in (params, meta or b"")
    )


def differences(before: bytes, after: bytes) -> list[str]:
    """What differs, by JSON Pointer."""
    try:
        found = list(_compared("", json.loads(before), json.loads(after)))
    except (ValueError, RecursionError):
        return ["they cannot be compared"]
    if len(found) > MAX_SHOWN_DIFFERENCES:
        return [*found[:MAX_SHOWN_DIFFERENCES], f"and {len(found) - MAX_SHOWN_DIFFERENCES} more"]
    return found


def _compared(pointer: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for name in sorted({*before, *after}):
            below = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in after:
                found.append(f"{one_line(below)}: left out, was {_brief(before[name])}")
            elif name not in before:
                found.append(f"{one_line(below)}: new, {_brief(after[name])}")
            else:
                found += _compared(below, before[name], after[name])
        return found
    # Numbers and booleans are different in JSON, but may be equal in Python.
    if json.dumps(before) == json.dumps(after):
        return []
    return [f"{one_line(pointer) or '/'}: {_brief(after)}, was {_brief(before)}"]


def _brief(value: Any) -> str:
    text = one_line(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"
