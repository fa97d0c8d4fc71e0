"""What servers offered last time, remembered on disk.

A manifest lies under a hash of the server's configuration, so that a changed command line is another server. It is a
cache: a file that is corrupt, foreign or unreadable is the same as none, and a disk that cannot be written is no
reason to fail. Files are replaced as a whole, so that two processes never see half of one. What nobody has used for a
season is dropped, so that the folder does not grow with every change of a configuration.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable
from functools import cached_property
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from mcp_workbench.catalog.offer import KINDS, Offer, by_identity
from mcp_workbench.config.model import ServerConfig
from mcp_workbench.jsonrpc.messages import decode_object, encode
from mcp_workbench.protocol.handshake import ServerProfile

FORMAT: Final = 2
# A list beyond this is not remembered; reading it back would cost more than asking the server.
LARGEST_MANIFEST: Final = 64 * 1024 * 1024
# Longer than a project rests between two times that somebody works on it. Listing a server again is all it costs.
KEPT_UNUSED: Final = 90 * 86400.0
# A file that is read says so by its time, this much late: a write for each read would be too many.
USE_NOTED_AFTER: Final = 86400.0
# Looking for what is unused is done once in a day, by whoever saves, and takes a moment at most.
LOOKED_AFTER: Final = 86400.0
MOST_LOOKED_AT: Final = 256
MOST_DROPPED: Final = 32
# How the names of files begin that are about users other than our own.
OF_USER: Final = "user-"
# Of these, so many are kept, each some ten kilobytes. Another listing is all that a lost one costs.
MOST_OF_USERS: Final = 4_000
# They are counted once in so many that are written.
COUNTED_AFTER: Final = 100
_ASKS: Final = "-asks"
_ENDINGS: Final = (".json", ".bin", ".new")


class _Manifest(Struct):
    format: int
    key: str
    profile: ServerProfile
    lists: dict[str, list[Raw]]
    oversized: dict[str, dict[str, int]] = field(default_factory=dict)
    transport: str | None = None


_decode: Final = Decoder(_Manifest).decode


def identity_of(server: ServerConfig, folder: str | None = None) -> tuple[object, ...]:
    """Everything that decides which server this is and what it may offer. `folder` is where its client runs, where that
    is not where this process does.

    Timeouts, filters and names do not: they change what we do with the offer, not the offer.
    """
    return (
        server.transport,
        server.command,
        server.args,
        sorted(server.env.items()),
        server.inherit_env,
        _working_folder(server, folder),
        server.url,
        sorted(server.headers.items()),
        server.protocol,
        # It learns different capabilities from its clients.
        *(() if server.ask else ("ask",)),
        # Another account sees other tools.
        *((server.oauth.account,) if server.oauth is not None and server.oauth.account else ()),
        # What is fetched at the start counts by what it is called: nothing is fetched to tell servers apart.
        *((server.env_files, server.references) if server.env_files or server.references else ()),
    )


def _working_folder(server: ServerConfig, folder: str | None) -> str | None:
    """Where the program runs: it may be found by it, and may offer something else in each folder. That goes for
    commands on PATH, too: `uv run` and `npx` look for the project around them. Not for addresses."""
    if server.command is None or server.cwd is not None:
        return server.cwd
    if folder is not None:
        return folder
    try:
        return os.getcwd()
    except OSError:
        # The folder is gone. What is found from nowhere is remembered for nowhere.
        return None


def manifest_key(server: ServerConfig, folder: str | None = None, principal: str = "") -> str:
    """What a server is remembered under: a hash of its identity, and of the user's where it is not our own."""
    import hashlib

    identity = identity_of(server, folder)
    if principal:
        return OF_USER + hashlib.sha256(written_identity([principal, identity])).hexdigest()
    return hashlib.sha256(written_identity(identity)).hexdigest()


def written_identity(identity: object) -> bytes:
    """For a hash. Paths and variables may be no Unicode, which JSON cannot write."""
    try:
        return encode(identity)
    except UnicodeEncodeError:
        return repr(identity).encode(errors="surrogatepass")


class ManifestStore:
    """A folder of manifests. Where `locate` finds none, nothing is remembered."""

    def __init__(self, locate: Callable[[], str | None]) -> None:
        self._locate = locate
        self._looked_at: float | None = None
        self._saved_of_users = 0

    @cached_property
    def _folder(self) -> str | None:
        # Asked for at first use: finding the folder is not needed to start.
        return self._locate()

    def load(self, key: str) -> Offer | None:
        """What is remembered under this key."""
        if self._folder is None:
            return None
        try:
            found = _decode(_read(self._path(key)))
            decode_object(found.profile.capabilities)
        except (OSError, DecodeError, ValidationError, RecursionError, UnicodeDecodeError):
            return None
        if found.format != FORMAT or found.key != key:
            return None
        lists = {kind: by_identity(kind, found.lists[kind])[0] for kind in KINDS if kind in found.lists}
        return Offer(found.profile, lists, oversized=found.oversized, transport=found.transport)

    def save(self, key: str, offer: Offer) -> None:
        """Remember an offer. Best effort."""
        if self._folder is None:
            return
        lists = {kind: list(definitions.values()) for kind, definitions in offer.lists.items()}
        data = encode(_Manifest(FORMAT, key, offer.profile, lists, offer.oversized, offer.transport))
        if len(data) <= LARGEST_MANIFEST:
            self._replace(self._path(key), data)

    def load_asks(self, key: str) -> bool:
        """Whether the server is remembered as one that asks its clients things."""
        return self.load_blob(f"{key}{_ASKS}") is not None

    def save_asks(self, key: str) -> None:
        """Remember it. In a file of its own: an offer is replaced as a whole, also by those who do not know this."""
        self.save_blob(f"{key}{_ASKS}", b"")

    def state(self, key: str) -> str:
        """Something that is another after every change of what is remembered under this key; empty for nothing."""
        if self._folder is None:
            return ""
        try:
            found = os.stat(self._path(key))
        except OSError:
            return ""
        return f"{found.st_mtime_ns}-{found.st_size}"

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is remembered."""
        if self._folder is None:
            return True
        try:
            with os.scandir(self._folder) as found:
                return next(found, None) is None
        except OSError:
            return True

    def load_blob(self, name: str) -> bytes | None:
        """Something else that was worked out from offers. Whoever made it must be able to tell that it is whole."""
        if self._folder is None:
            return None
        try:
            return _read(os.path.join(self._folder, f"{name}.bin"))
        except OSError:
            return None

    def save_blob(self, name: str, data: bytes) -> None:
        """Remember it. Best effort."""
        if self._folder is not None and len(data) <= LARGEST_MANIFEST:
            self._replace(os.path.join(self._folder, f"{name}.bin"), data)

    def _replace(self, path: str, data: bytes) -> None:
        # The process id keeps two writers apart; whoever renames last wins, and both wrote the truth.
        draft = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.new"
        try:
            # What servers say may be private: for the user's eyes only.
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            os.replace(draft, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft)
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at > LOOKED_AFTER:
            self._looked_at = now
            _drop_unused(os.path.dirname(path))
        if os.path.basename(path).startswith(OF_USER):
            if self._saved_of_users % COUNTED_AFTER == 0:
                _drop_oldest_of_users(os.path.dirname(path))
            self._saved_of_users += 1

    def _path(self, key: str) -> str:
        assert self._folder is not None
        return os.path.join(self._folder, f"{key}.json")


def _read(path: str) -> bytes:
    """What is in a file of ours. A pipe that would make us wait, or a link to elsewhere, is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not a file of ours")
        if time.time() - found.st_mtime > USE_NOTED_AFTER:
            with contextlib.suppress(OSError):
                os.utime(descriptor)
        # Replaced as a whole, so it has the size that it is found with.
        return file.read(min(found.st_size, LARGEST_MANIFEST) + 1)


def _drop_unused(folder: str) -> None:
    """Delete what was neither written nor read for long; of many files some today, others another day."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(_ENDINGS)]
    except OSError:
        return
    before = time.time() - KEPT_UNUSED
    dropped = 0
    # Begun at another place each time, so that many that are in use do not hide those that are not.
    start = time.time_ns() % len(names) if len(names) > MOST_LOOKED_AT else 0
    for name in (names[start:] + names[:start])[:MOST_LOOKED_AT]:
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if os.lstat(path).st_mtime < before:
                os.unlink(path)
                dropped += 1
        if dropped == MOST_DROPPED:
            return


def _drop_oldest_of_users(folder: str) -> None:
    """Delete what was neither written nor read for longest, down to what is kept."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        paths = [each.path for each in found if each.name.startswith(OF_USER)]
        if len(paths) > MOST_OF_USERS:
            paths.sort(key=lambda path: os.lstat(path).st_mtime)
            for path in paths[: len(paths) - MOST_OF_USERS]:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def default_folder() -> str | None:
    """The user's cache folder; None where there is no home to find it in."""
    if sys.platform == "linux" and os.environ.get("XDG_CACHE_HOME", "").startswith("/"):
        return os.path.join(os.environ["XDG_CACHE_HOME"], "mcp-workbench", "manifests")
    if sys.platform == "linux" and os.environ.get("HOME", "").startswith("/"):
        # What platformdirs does here, without the 8 ms that importing it takes: this is needed to start.
        return os.path.join(os.environ["HOME"], ".cache", "mcp-workbench", "manifests")
    import platformdirs

    try:
        folder = platformdirs.user_cache_dir("mcp-workbench", appauthor=False)
    except (RuntimeError, KeyError, OSError):
        return None
    # A user without HOME who is in no user database, as in many containers, gets an unexpanded `~`.
    return os.path.join(folder, "manifests") if os.path.isabs(folder) else None
