"""What a person should review in a definition that is new or has changed. Points out, never decides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Raw

from mcp_workbench.engine.catalog.hidden_text import described, in_definition, texts_in

# Sentences that instruct the model against the user. Bounded patterns, because descriptions may be of any length.
INSTRUCTIONS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:ignore|disregard|forget|override) (?:all |any |every )?(?:of )?(?:the |your |my )?"
        r"(?:previous|prior|above|earlier|other|system|safety)\b",
        r"\b(?:do not|don't|never|must not) (?:ever )?(?:tell|inform|mention|reveal|show|notify|alert|warn)"
        r"(?: this| it| that| anything)?(?: to)? (?:the |your )?(?:user|human|person|anyone|operator)\b",
        r"\bwithout (?:telling|informing|asking|notifying|alerting) (?:the |your )?(?:user|human|person)\b",
        r"\b(?:keep|hide) (?:this|it) (?:a )?(?:secret|hidden|from (?:the )?user)\b",
        # `--secret <secret>` is a placeholder.
        r"<(?:important|system|instructions?|assistant)>|(?:^|[.:\n])\s*<secret>",
        r"\b(?:your|its|their|print|reveal|show|repeat|send|include|output) (?:(?:the|own|full|whole|entire) ){0,3}"
        r"(?:system prompt|developer message)\b",
        r"\b(?:before|instead of) (?:using|calling|invoking) (?:any |all |every )?(?:other )?tools?\b",
        # "You must call X first" is common in ordinary tools; demanding it every time is not.
        r"\byou (?:must|have to|should) (?:always (?:call|invoke|use)|(?:always|also|first) "
        r"(?:read|send|include|append|copy|forward))\b",
        r"\b(?:read|open|send|include|cat)\b.{0,40}(?:id_rsa|\.ssh/|\.aws/|\.env\b)",
    )
)
MOST_INSTRUCTIONS: Final = 5
# How much of a text is searched; the rest is data.
MOST_SEARCHED: Final = 64 * 1024
_LONGEST_QUOTE: Final = 80

# Hints that restrict a tool, with the restricting value; any other value is wider. The specification's defaults:
# nothing is read-only or idempotent, everything is destructive and open, unless stated.
_NARROW: Final = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False}


def hidden_characters(definition: Raw) -> Iterator[str]:
    found = in_definition(definition)
    if found:
        yield f"hidden characters: {described(found)}"


def instructions(document: object) -> Iterator[str]:
    """Sentences in any text of a definition that address the model."""
    seen: set[str] = set()
    for text in texts_in(document):
        for pattern in INSTRUCTIONS:
            match = pattern.search(text[:MOST_SEARCHED])
            if match is not None and match[0].lower() not in seen and len(seen) < MOST_INSTRUCTIONS:
                seen.add(match[0].lower())
                around = " ".join(text[max(match.start() - 20, 0) : match.end() + 20].split())
                yield f"addresses the model: “…{around[:_LONGEST_QUOTE]}…”"


def taken_names(name: str, others: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """`others`: the tools of other servers, by the names of these servers."""
    for server, tools in others.items():
        own = server.rpartition("/")[2]
        if name in tools:
            yield f"has the name of a tool of `{server}`"
        elif len(own) > 2 and name.lower().startswith((f"{own}_".lower(), f"{own}-".lower(), f"{own}.".lower())):
            yield f"is named like one of the server `{server}`"


def wider_annotations(before: object, after: object) -> Iterator[str]:
    """Hints that promised something and no longer do."""
    old, new = _annotations(before), _annotations(after)
    for hint, promise in _NARROW.items():
        if old.get(hint) is promise and new.get(hint) is not promise:
            now = str(new[hint]).lower() if hint in new else "not said"
            yield f"wider annotations: `{hint}` was {str(promise).lower()}, is {now}"


def _annotations(document: object) -> dict[str, Any]:
    found = document.get("annotations") if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}
