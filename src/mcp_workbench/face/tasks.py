"""Tasks (the extension `io.modelcontextprotocol/tasks`): which server a task lives on.

A server answers a call with a handle instead of a result; the client comes back with that handle. We remember who
gave it out. Handles may outlive us: where one is unknown, the only server that has tasks at all is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.face.base import Face, Params, open_body
from mcp_workbench.face.decisions import Decision, Forward, Reject
from mcp_workbench.face.view import View
from mcp_workbench.jsonrpc.messages import INVALID_PARAMS, decode_object, encode

EXTENSION: Final = "io.modelcontextprotocol/tasks"
METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
# Handles remembered for one principal; beyond, the oldest are forgotten.
MOST_TASKS: Final = 10_000
# How long a server is kept running for a task that does not say how long it lives.
DEFAULT_LIFE: Final = 3600.0
LONGEST_LIFE: Final = 24 * 3600.0


class _Task(Struct):
    taskId: str
    ttlMs: float | None = None


_decode_task: Final = Decoder(_Task).decode


class Tasks:
    """Who gave out which handle."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._owners: OrderedDict[tuple[str, str], ServerEntry] = OrderedDict()

    def remember(self, view: View, entry: ServerEntry, result: bytes) -> float:
        """Take note of a handle; returns how many seconds its server has to stay up for it."""
        try:
            task = _decode_task(result)
        except (DecodeError, ValidationError):
            return 0.0
        self._owners[view.principal, task.taskId] = entry
        while len(self._owners) > MOST_TASKS:
            self._owners.popitem(last=False)
        return DEFAULT_LIFE if task.ttlMs is None else min(max(task.ttlMs / 1000, 0.0), LONGEST_LIFE)

    def resolve(self, view: View, method: str, params: Params) -> Decision:
        """What to do with a request about a task."""
        try:
            task_id = Decoder(str).decode(params["taskId"])
        except (KeyError, DecodeError, ValidationError):
            return Reject(INVALID_PARAMS, "`taskId` must be a string")
        owner = self._owners.get((view.principal, task_id))
        if owner is None:
            having = [entry for entry in self._face.entries(view) if EXTENSION in extensions(entry)]
            owner = having[0] if len(having) == 1 else None
        if owner is None:
            return Reject(INVALID_PARAMS, f"task `{task_id[:200]}` is not known")
        return Forward(owner, task_id, encode(method), open_body(params))


def extensions(entry: ServerEntry) -> dict[str, Raw]:
    """The extensions that a server declares."""
    try:
        return decode_object(entry.capabilities.get("extensions", b"{}"))
    except (DecodeError, ValidationError):
        return {}
