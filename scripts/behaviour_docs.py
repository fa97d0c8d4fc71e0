"""The tables of docs/reference/client-behaviour.md, made from `behaviour.json`. Pure."""

from __future__ import annotations

from typing import Final

from mcp_workbench.engine.face.client_behaviour import Behaviour, behaviours

START: Final = (
    "<!-- made from src/mcp_workbench/engine/face/client_behaviour.json by scripts/write_client_docs.py -->\n"
)
_CHECKED: Final = {
    "measured": "measured",
    "code": "read in code",
    "documentation": "documented",
    "guess": "not verified",
}
# What every client is known to take, for those of which no more is known.
_ASSUMED_NAMES: Final = (64, "mcp__{server}__")


def table() -> str:
    """What is known of each client, in the order of the table."""
    rows = list(behaviours().values())
    return "\n".join(
        [
            START,
            "## What it sees",
            "",
            "| client | name | calls itself | defers tools | face `auto` | reads of instructions | longest name |",
            "|---|---|---|---|---|---|---|",
            *(_seen(row) for row in rows),
            "",
            "## What it waits for, and what it can be asked",
            "",
            "| client | until we are ready | for a call | progress extends that | declares | sign-in |",
            "|---|---|---|---|---|---|",
            *(_asked(row) for row in rows),
            "",
            "## What it does with what it gets",
            "",
            "| client | results | text and structured content | changed lists | read-only tools | tries 2026-07-28 |",
            "|---|---|---|---|---|---|",
            *(_taken(row) for row in rows),
            "",
            "## Where this is from",
            "",
            *(f"- **{row.title}**, {row.date}, {_CHECKED[row.checked]}: {row.source}." for row in rows),
            "",
        ]
    )


def _seen(row: Behaviour) -> str:
    face = row.face + (f", up to {row.flat_up_to} tools" if row.flat_up_to else "")
    instructions = {None: "all", 0: "nothing"}.get(row.instructions_length, f"{row.instructions_length} characters")
    if row.instructions_length == 2048:
        instructions = "?"
    longest = "any" if row.name_length is None else f"{row.name_length} with `{row.name_prefix}`"
    if (row.name_length, row.name_prefix) == _ASSUMED_NAMES:
        longest = "?"
    names = ", ".join(f"`{each}`" for each in row.match)
    defers = row.defers or "?"
    return f"| {row.title} | `{row.name}` | {names} | {defers} | {face} | {instructions} | {longest} |"


def _asked(row: Behaviour) -> str:
    declares = "?" if row.declares is None else ", ".join(row.declares) or "nothing"
    if row.answers_undeclared is False:
        declares += "; never answers a question"
    waits = f"| {_seconds(row.connect_seconds)} | {_seconds(row.call_seconds)} | {_said(row.progress_extends)} |"
    return f"| {row.title} {waits} {declares} | {row.sign_in} |"


def _taken(row: Behaviour) -> str:
    structured = {"only": "structured content alone", "both": "both", "text": "text alone", None: "?"}[row.structured]
    skips = {True: "run without asking", False: "ask as well", None: "?"}[row.read_only_skips_prompt]
    changed = {"fetches": "fetched again", "ignores": "ignored", None: "?"}[row.list_changed]
    return f"| {row.title} | {row.results or '?'} | {structured} | {changed} | {skips} | {_said(row.probes_modern)} |"


def _seconds(seconds: int | None) -> str:
    return "?" if seconds is None else f"{seconds} s"


def _said(said: bool | None) -> str:
    return {True: "yes", False: "no", None: "?"}[said]
