"""Which backend starts a server, and what to say where none can.

A new way to enforce sandboxes is a class with the interface `Backend`, and an entry in `_BACKENDS`: the first that can
enforce all of a sandbox is used.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from mcp_workbench.engine.sandbox.sandbox import Backend, Capabilities, Sandbox
from mcp_workbench.engine.sandbox.seatbelt_backend import SeatbeltBackend
from mcp_workbench.engine.sandbox.thread_backend import ThreadBackend
from mcp_workbench.errors import DownstreamError

_BACKENDS: Final[dict[str, tuple[Backend, ...]]] = {"darwin": (SeatbeltBackend(),)}
_ELSEWHERE: Final[tuple[Backend, ...]] = (ThreadBackend(),)


class Chosen(NamedTuple):
    backend: Backend
    # What it cannot enforce here, each as what follows "this machine".
    missing: tuple[str, ...]


def choose(sandbox: Sandbox, machine: Capabilities, platform: str = sys.platform) -> Chosen:
    """The backend that enforces most of a sandbox. Raises `DownstreamError` if something would be missing, unless the
    sandbox is best effort."""
    known = _BACKENDS.get(platform, _ELSEWHERE)
    asked = [each for each in known if sandbox.backend in ("auto", each.name)]
    if not asked:
        raise DownstreamError(
            f"sandbox: the backend `{sandbox.backend}` does not exist here",
            hint=f"leave `backend` out, or use `{known[0].name}`",
        )
    chosen = min(
        (Chosen(each, tuple(each.missing(sandbox, machine))) for each in asked), key=lambda one: len(one.missing)
    )
    if chosen.missing and not sandbox.is_best_effort:
        raise DownstreamError(f"sandbox: this machine {'; it '.join(chosen.missing)}", hint=HINT)
    return chosen


HINT: Final = (
    'ask for less, such as `"sandbox": "guard"`, or start it without what is missing: `"sandbox": {"profile": …, '
    '"bestEffort": true}`'
)
