"""The copies of each server as one: what `status` and `top` say of a server that runs several times.

A workbench has a copy of a server for each user, folder or client that may not share one. Pure: status reports in, text
out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, MAX_NAMED_WITHHELD_ITEMS

# States of servers that have never been used here: there is no copy yet. People see one word for both.
_NEVER_USED: Final = ("configured", "known")
UNUSED: Final = "unused"
# In these, a server does not work until its error is dealt with.
BROKEN: Final = ("backoff", "failed", "needs sign-in")
# Those that matter most to somebody who looks for trouble come last, next to the explanation.
_ORDER: Final = ("ready", "starting", "stopped", "backoff", "needs sign-in", "failed")
# A copy per client of a large team would fill the screen; all of them are in `--json`.
MAX_PLACES_SHOWN: Final = 8


class ServerCopies(Struct, frozen=True):
    """All reports of one server of one workbench."""

    toolbox: str
    server: str
    reports: tuple[dict[str, Any], ...]

    @property
    def label(self) -> str:
        return f"{self.toolbox}/{self.server}"

    @property
    def is_used(self) -> bool:
        return any(each["state"] not in _NEVER_USED for each in self.reports)

    @property
    def started(self) -> tuple[dict[str, Any], ...]:
        """The reports of copies that have been used; all of them if none has."""
        return tuple(each for each in self.reports if each["state"] not in _NEVER_USED) or self.reports[:1]

    @property
    def state(self) -> str:
        """`ready` of one copy; `2 ready, 1 failed` of several; `unused` without any."""
        if not self.is_used:
            return UNUSED
        states = Counter(each["state"] for each in self.started)
        if len(self.started) == 1:
            return str(next(iter(states)))
        named = sorted(states, key=lambda state: _ORDER.index(state) if state in _ORDER else len(_ORDER))
        return ", ".join(f"{states[state]} {state}" for state in named)

    @property
    def profile(self) -> str:
        """The sandbox of a program; empty for an address."""
        # Older versions do not report it.
        return next((str(each["sandbox"]["profile"]) for each in self.reports if each.get("sandbox")), "")

    def total(self, member: str) -> int:
        return sum(each[member] for each in self.reports)

    def largest(self, member: str) -> Any:
        """Of all copies; None if none has a value."""
        return max((each[member] for each in self.reports if each[member] is not None), default=None)

    def reasons(self, states: Container[str] | None = None) -> list[str]:
        """Why copies failed, or those that are in one of these states: each reason once, with how many copies it
        concerns and when it was last."""
        found: dict[str, list[dict[str, Any]]] = {}
        for each in self.started:
            if each.get("lastError") and (states is None or each["state"] in states):
                # The lines of stderr that follow are in the log.
                found.setdefault(each["lastError"].splitlines()[0], []).append(each)
        return [text + _remark(len(same), same) for text, same in found.items()]


def grouped(servers: Iterable[dict[str, Any]]) -> list[ServerCopies]:
    """One for each server, in the order of their first reports."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in servers:
        found.setdefault((each["toolbox"], each["server"]), []).append(each)
    return [ServerCopies(toolbox, name, tuple(reports)) for (toolbox, name), reports in found.items()]


def details_of(copies: ServerCopies, clients: Mapping[int, str]) -> list[str]:
    """What its row does not say: who uses which copy where, why some failed, what is withheld, when sign-ins end.
    `clients` has the names of clients by their process."""
    return [
        *_places(copies, clients),
        *_sandbox(copies),
        *copies.reasons(),
        *_changed(copies),
        *(f"withheld {each} (mcp-workbench team lock diff)" for each in withheld_in(copies)),
        *_sign_ins(copies),
    ]


def lacking_in(copies: ServerCopies) -> list[str]:
    """What this machine cannot enforce of the sandbox that was asked for, with `bestEffort`. A server without a setting
    has as much of `guard` as there is."""
    found = [each["sandbox"] for each in copies.reports if each.get("sandbox")]
    asked = [each for each in found if each["profile"] != "guard" or each.get("bestEffort")]
    lacking = dict.fromkeys(what for each in asked for what in each.get("missing") or ())
    return [f"this machine {each}" for each in lacking]


def _sandbox(copies: ServerCopies) -> list[str]:
    """How it is confined, where that is not what every server is, and what this machine lacks for it."""
    # Older versions do not report it.
    found = next((each["sandbox"] for each in copies.reports if each.get("sandbox")), None)
    if found is None or (found["profile"] == "guard" and not found.get("missing")):
        return []
    missing = "".join(f"; this machine {each}" for each in found.get("missing", ()))
    image = f" from the image {found['image']}" if found.get("image") else ""
    lines = [
        f"sandbox: {found['profile']}{image}{missing}",
        *([f"its home folder: {found['home']}"] if found.get("home") else []),
        *(f"not granted: {each}" for each in found.get("skipped", ())),
    ]
    if unprotected := found.get("unprotected"):
        lines.append(f"writable, because only bwrap could keep it read-only: {', '.join(unprotected)}")
    return lines


def _places(copies: ServerCopies, clients: Mapping[int, str]) -> list[str]:
    places = Counter(filter(None, (place_of(each, clients) for each in copies.started)))
    several = len(copies.started) > 1
    lines = [f"{count} {place}" if several else place for place, count in places.items()]
    more = len(lines) - MAX_PLACES_SHOWN
    return lines if more <= 0 else [*lines[:MAX_PLACES_SHOWN], f"and {more} more; --json lists all"]


def place_of(report: dict[str, Any], clients: Mapping[int, str]) -> str:
    """A copy's state, user, folder and clients; empty if only the state is known."""
    user, folder = report.get("user"), report.get("folder")
    used_by = report.get("clientNames") or [
        f"{clients[pid]} ({pid})" if clients.get(pid) else str(pid) for pid in report.get("users") or ()
    ]
    if not user and not used_by and (not folder or not report["starts"]):
        return ""
    whose = f" for {user}" if user else ""
    where = f" in {folder}" if folder else ""
    share = f" (share: {report['share']})" if report.get("share") else ""
    by = f": used by {', '.join(used_by)}" if used_by else ": no client uses it" if "users" in report else ""
    return f"{report['state']}{whose}{where}{share}{by}"


def _remark(copies: int, reports: list[dict[str, Any]]) -> str:
    ago = min(
        (each["lastErrorSecondsAgo"] for each in reports if each.get("lastErrorSecondsAgo") is not None), default=None
    )
    parts = [f"{copies} copies"] if copies > 1 else []
    if ago is not None:
        parts.append(f"{duration(ago)} ago")
    return f" ({', '.join(parts)})" if parts else ""


def _changed(copies: ServerCopies) -> list[str]:
    found = dict.fromkeys(what for each in copies.reports for what in each.get("changed") or ())
    return [f"describes itself differently than before: {', '.join(found)}"] if found else []


def withheld_in(copies: ServerCopies) -> list[str]:
    """What is withheld of any copy because it is not as locked: `tools: a, b`."""
    found: dict[str, set[str]] = {}
    for each in copies.reports:
        for kind, names in (each.get("withheld") or {}).items():
            found.setdefault(kind, set()).update(names)
    said = {kind: f": {', '.join(sorted(names)[:MAX_NAMED_WITHHELD_ITEMS])}" for kind, names in found.items()}
    # A server has one text of them.
    said |= {INSTRUCTIONS: ""} if INSTRUCTIONS in found else {}
    return [f"{kind}{names}" for kind, names in said.items()]


def _sign_ins(copies: ServerCopies) -> list[str]:
    lines = []
    for each in copies.reports:
        if each.get("signInNote"):
            lines.append(each["signInNote"])
        elif isinstance(each.get("signInEndsAt"), int | float):
            lines.append(f"signed in until {time.strftime('%Y-%m-%d', time.localtime(each['signInEndsAt']))}")
    return list(dict.fromkeys(lines))


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")
