"""What the users of this machine need, in files of theirs: for the ranking of searches, and for proposals of pins.

Owns the files (0600, one for each user in the state folder) and their bounds. They hold stems of needs, names of tools
and days, and neither arguments nor results. Read at the first search of a client, written when a client has left.
Whatever goes wrong with them costs nothing but what was learned.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.own_files import lock, replace_whole
from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK, is_own

if TYPE_CHECKING:
    from mcp_workbench.engine.economy.learned_needs import LearnedNeeds

MAX_NEEDS: Final = 500
MAX_CLIENTS: Final = 50
# What was learned last is worth no more of an exit: a home folder may be on a network disk that does not respond.
LAST_SAVE_TIMEOUT: Final = 2.0
MAX_USE_DAYS: Final = 90
# Ours are below 100 KiB; anything larger is not ours.
MAX_USE_FILE_BYTES: Final = 1024 * 1024
# Another workbench of the same user may be writing, which takes milliseconds.
USE_LOCK_TIMEOUT: Final = 2.0
_SECONDS_PER_DAY: Final = 86_400
_USE_FILE_FORMAT: Final = 1
USE_FOLDER: Final = "use"
_USE_FILE: Final = re.compile(r"[0-9a-f]{32}\.json(\.lock|\.[0-9]+-[0-9a-f]{8}\.new)?")
# Of the last ones a client may still be leaving.
MAX_GONE_HOLDERS: Final = 1000

Contents = dict[str, Any]


class UseMemory:
    """Of all users of one process (`face.use.UseRecorder`)."""

    def __init__(
        self, folder: str | None = None, holder_of: Callable[[str], str] = lambda principal: principal
    ) -> None:
        """`holder_of`: whom a principal's name stands for now, as somebody else may be given that of a revoked key."""
        self._folder = folder
        self.holder_of = holder_of
        self._saving: asyncio.Task[None] | None = None
        # By holder, what has not been written yet.
        self._learned: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        self._ended: dict[str, list[list[str]]] = {}
        # Whose keys were revoked: nothing more is kept of them.
        self._gone: deque[str] = deque(maxlen=MAX_GONE_HOLDERS)
        self._is_swept = False

    def needs_of(self, principal: str) -> LearnedNeeds:
        from mcp_workbench.engine.economy.learned_needs import LearnedNeeds

        path = use_file(principal, self._folder)
        written = [] if path is None else read(path)["needs"]
        pending = self._learned.get(principal, [])
        return LearnedNeeds([*((words, tool) for _, words, tool in written), *pending])

    def learn(self, principal: str, words: tuple[str, ...], tool: str) -> None:
        if principal in self._gone:
            return
        learned = self._learned.setdefault(principal, [])
        learned.append((words, tool))
        del learned[:-MAX_NEEDS]

    def end(self, principal: str, tools: list[str]) -> None:
        if principal in self._gone:
            return
        ended = self._ended.setdefault(principal, [])
        ended.append(tools)
        del ended[:-MAX_CLIENTS]
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save())

    async def drop(self, holders: Collection[str]) -> None:
        """Delete what was kept of these."""
        from mcp_workbench.engine.blocking_work import aside

        self._gone.extend(holders)
        for each in holders:
            self._learned.pop(each, None)
            self._ended.pop(each, None)
        if self._saving is not None:
            # It may be writing one of them.
            await asyncio.wait({self._saving})
        for each in holders:
            await aside(partial(discard, use_file(each, self._folder)))

    async def close(self) -> None:
        """Write everything that has not been written yet, if the disk lets us."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SAVE_TIMEOUT):
                if self._saving is not None:
                    await asyncio.wait({self._saving})
                await self._save()

    async def _save(self) -> None:
        from mcp_workbench.engine.blocking_work import aside

        if not self._is_swept and (self._learned or self._ended):
            self._is_swept = True
            await aside(partial(sweep, use_file("", self._folder)))
        while self._learned or self._ended:
            principal = next(iter(self._learned or self._ended))
            path = use_file(principal, self._folder)
            new = self._learned.pop(principal, []), self._ended.pop(principal, [])
            if path is not None and any(new):
                await aside(partial(add, path, *new))


def use_file(principal: str, folder: str | None = None) -> str | None:
    """The file of a user; None if there is no folder for it."""
    if folder is None:
        from mcp_workbench.engine.config.state_folder import state_path

        folder = state_path(USE_FOLDER)
    if folder is None:
        return None
    if principal in OWN_PRINCIPALS:
        return os.path.join(folder, "own.json")
    import hashlib

    return os.path.join(folder, f"{hashlib.sha256(principal.encode()).hexdigest()[:32]}.json")


def read(path: str) -> Contents:
    """What a file has that is not too old; nothing, if it is missing, damaged or not the user's alone."""
    from msgspec import MsgspecError
    from msgspec.json import decode

    empty: Contents = {"needs": [], "clients": []}
    try:
        descriptor = os.open(path, os.O_RDONLY | NOFOLLOW | NONBLOCK)
        with open(descriptor, "rb") as file:
            stat = os.fstat(descriptor)
            content = file.read(MAX_USE_FILE_BYTES + 1)
        if not is_own(stat) or stat.st_mode & 0o077 or len(content) > MAX_USE_FILE_BYTES:
            return empty
        found = decode(content)
        oldest = int(time.time()) // _SECONDS_PER_DAY - MAX_USE_DAYS
        needs = [
            (int(day), tuple(map(str, words)), str(tool)) for day, words, tool in found["needs"] if int(day) >= oldest
        ]
        clients = [(int(day), list(map(str, tools))) for day, tools in found["clients"] if int(day) >= oldest]
    except (OSError, MsgspecError, ValueError, TypeError, KeyError):
        return empty
    return {"needs": needs[-MAX_NEEDS:], "clients": clients[-MAX_CLIENTS:]}


def add(path: str, needs: list[tuple[tuple[str, ...], str]], clients: list[list[str]]) -> None:
    """Add to a file what was learned, and which tools each client used. A need that is known is renewed."""
    from msgspec.json import encode

    day = int(time.time()) // _SECONDS_PER_DAY
    with suppress(OSError), _locked(path):
        contents = read(path)
        kept = {(words, tool): known for known, words, tool in contents["needs"]}
        for words, tool in needs:
            # Again at the end: the oldest are dropped first.
            kept.pop((words, tool), None)
            kept[words, tool] = day
        contents["needs"] = [(known, words, tool) for (words, tool), known in kept.items()][-MAX_NEEDS:]
        contents["clients"] = [*contents["clients"], *((day, tools) for tools in clients)][-MAX_CLIENTS:]
        replace_whole(path, encode({"format": _USE_FILE_FORMAT, **contents}))


def forget(path: str) -> bool:
    """Delete a file. False if there was none. Raises `OSError`."""
    with _locked(path):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
    return True


def discard(path: str | None) -> None:
    """Delete a file that nobody will write again."""
    if path is not None:
        with suppress(OSError):
            forget(path)
        with suppress(OSError):
            os.unlink(f"{path}.lock")


def sweep(own: str | None) -> None:
    """Delete the files beside the user's own in which everything is too old: of users who never came back."""
    oldest = time.time() - MAX_USE_DAYS * _SECONDS_PER_DAY
    with suppress(OSError), os.scandir(os.path.dirname(own or "")) as found:
        for each in found:
            if _USE_FILE.fullmatch(each.name) and each.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(each.path)


def proposed_pins(contents: Contents, least_clients: int, least_share: float) -> list[tuple[str, int, int]]:
    """The tools that many clients used, most first: the name, how many did, and how many there were."""
    clients = contents["clients"]
    used = Counter(tool for _, tools in clients for tool in set(tools))
    if len(clients) < least_clients:
        return []
    often = [(tool, times) for tool, times in used.items() if times >= least_share * len(clients)]
    return [(tool, times, len(clients)) for tool, times in sorted(often, key=lambda each: (-each[1], each[0]))]


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Alone with the file. Raises `OSError`."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o600)
    try:
        lock(descriptor, USE_LOCK_TIMEOUT)
        yield
    finally:
        os.close(descriptor)
