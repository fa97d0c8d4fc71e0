"""Caches on disk what servers offered last time.

A manifest is stored under a hash of the server's configuration, so that a changed command line is a different server.
It is only a cache: a corrupt or unreadable file counts as missing, and a disk that cannot be written to is not an
error. Files are replaced atomically, so that no process ever sees half of one. Manifests that have not been used for
three months are deleted, so that the folder does not grow with every change of a configuration.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.offer import KINDS, Offer, by_identity
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.jsonrpc.messages import decode_object, encode
from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK, is_own
from mcp_workbench.engine.protocol.handshake import ServerProfile

FORMAT: Final = 2
# Larger manifests are not stored: reading them would take longer than listing the server again.
MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024
# Longer than most projects lie idle. Deleting a manifest too early only costs listing the server again.
KEPT_UNUSED: Final = 90 * 86400.0
# Using a file updates its time of access, but at most this often, to avoid a write for each use.
USE_NOTED_AFTER: Final = 86400.0
# Unused files are looked for at most once a day, when a manifest is saved.
LOOKED_AFTER: Final = 86400.0
MAX_EXAMINED_MANIFESTS: Final = 256
MAX_DROPPED_MANIFESTS: Final = 32
# The prefix of files for users other than the workbench's owner.
OF_USER: Final = "user-"
# How many of these are kept, of some ten kilobytes each. Deleting one costs listing the server again, or that it is
# forgotten which names the tools of this user had.
MAX_USER_MANIFESTS: Final = 4_000
# They are counted once in this many writes.
COUNTED_AFTER: Final = 100
_ASKS_SUFFIX: Final = "-asks"
_SKILLS: Final = "-skills"
_BY_FOLDER: Final = "-by-folder"
_LISTED: Final = "-listed"
_ENDINGS: Final = (".json", ".bin", ".new")
# They look for a project around their folder, or run whatever they are told to there.
PROJECT_RUNNERS: Final = frozenset(
    {
        "uv",
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "deno",
        "poetry",
        "pdm",
        "pipenv",
        "hatch",
        "rye",
        "pixi",
        "conda",
        "cargo",
        "go",
    }
    | {
        "make",
        "just",
        "task",
        "mise",
        "nix",
        "devbox",
        "direnv",
        "dotnet",
        "mvn",
        "gradle",
        "bundle",
        "composer",
        "mix",
    }
    | {"docker-compose", "sh", "bash", "dash", "zsh", "fish", "pwsh", "powershell", "cmd", "env"}
)
# The exceptions: these commands of theirs ignore the project.
ISOLATED: Final = frozenset({("uv", "tool"), ("pnpm", "dlx"), ("yarn", "dlx")})
# They prefer a package of a surrounding project to the one that they would download.
NODE_RUNNERS: Final = frozenset({"npx", "bunx"})


# Whether what a program offers may depend on the folder it runs in, as far as its command line tells.
# Most servers offer the same everywhere, and a new project should not have to list them again. What the command line
# does not tell is learnt: a server that offers something else in another folder has a manifest for each
# (`ManifestStore.depends_on_folder`).
def folder_that_counts(server: ServerConfig, folder: str) -> str | None:
    """The folder that determines what the server offers if it runs in `folder`; None if it is the same everywhere."""
    command = server.command or ""
    program = os.path.basename(command).lower().removesuffix(".exe").rstrip("0123456789.")
    if os.path.dirname(command) and not os.path.isabs(command):
        return folder
    if program in PROJECT_RUNNERS and (program, *server.args[:1]) not in ISOLATED:
        return folder
    if (program, *server.args[:1]) in {("docker", "compose"), ("podman", "compose")}:
        return folder
    if any(_is_relative(value) for value in server.env.values()):
        return folder
    if any(_is_relative(value) or os.path.exists(os.path.join(folder, value)) for value in _values(server.args)):
        return folder
    if program == "python" and "-m" in server.args[:-1]:
        return folder if _has_module(folder, server.args[server.args.index("-m") + 1]) else None
    return _node_project(server.args, folder) if program in NODE_RUNNERS else None


def _values(args: tuple[str, ...]) -> Iterator[str]:
    """The arguments and values of options that may be paths in the folder."""
    for arg in args:
        value = arg.partition("=")[2] if arg.startswith("-") else arg
        # An absolute path and an address mean the same everywhere.
        if value and not os.path.isabs(value) and "://" not in value:
            yield value
            # What a container mounts: `.:/work`, `type=bind,source=./data,target=/data`.
            for each in value.split(","):
                mounted = each.partition("=")[2] or each.partition(":")[0]
                if mounted and not os.path.isabs(mounted):
                    yield mounted


def _is_relative(value: str) -> bool:
    # With a separator, because `..` begins no other word, but `.5` and `.NET` are words.
    return value in (".", "..") or value.startswith(("./", "../", ".\\", "..\\"))


def _has_module(folder: str, name: str) -> bool:
    """Whether `python -m` finds this module in its folder."""
    path = os.path.join(folder, name.partition(".")[0])
    return os.path.exists(path) or os.path.exists(f"{path}.py")


def _node_project(args: tuple[str, ...], folder: str) -> str | None:
    """The surrounding project that has installed one of the packages that are named."""
    names = [arg.partition("=")[2] if arg.startswith("--package=") else arg for arg in args if arg.strip(".-@/")]
    # Joined to a folder, an absolute path would be found in every one.
    packages = {name[:1] + name[1:].partition("@")[0] for name in names if not name.startswith("-")}
    packages = {each for each in packages if not os.path.isabs(each)}
    while True:
        modules = os.path.join(folder, "node_modules")
        if any(os.path.exists(os.path.join(modules, package)) for package in packages):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


class _Manifest(Struct):
    format: int
    key: str
    profile: ServerProfile
    lists: dict[str, list[Raw]]
    oversized: dict[str, dict[str, int]] = field(default_factory=dict)
    transport: str | None = None


_decode: Final = Decoder(_Manifest).decode

_SERVER_SETTINGS: Final = ServerConfig.SETTINGS.values()
# In the order of the manifests on disk, which begins with the transport.
_ALWAYS: Final = sorted(
    (each.field for each in _SERVER_SETTINGS if each.identity == "always"), key=lambda name: name != "transport"
)
_IF_SET: Final = tuple((each.field, each.default) for each in _SERVER_SETTINGS if each.identity == "if set")


def identity_of(server: ServerConfig, folder: str | None = None) -> tuple[object, ...]:
    """Everything that determines which server this is and what it may offer. `folder` is its client's working folder,
    if that is not ours.

    Each setting says whether it belongs here. Timeouts, filters and names do not: they change what we do with the
    offer, not the offer.
    """
    return _identity(server, _working_folder(server, folder))


def offer_identity(server: ServerConfig, folder: str | None = None) -> tuple[object, ...]:
    """Everything that determines what the server offers: its identity, with the folder only if that may matter."""
    ours = _working_folder(server, folder)
    if ours is None or server.cwd is not None:
        return _identity(server, ours)
    return _identity(server, folder_that_counts(server, ours))


def _identity(server: ServerConfig, folder: str | None) -> tuple[object, ...]:
    parts: list[object] = []
    for name in _ALWAYS:
        value = folder if name == "cwd" else getattr(server, name)
        parts.append(sorted(value.items()) if isinstance(value, dict) else value)
    parts += [(name, getattr(server, name)) for name, default in _IF_SET if getattr(server, name) != default]
    # Different accounts may see different tools.
    if server.oauth is not None and server.oauth.account:
        parts.append(("account", server.oauth.account))
    # References count by name, because nothing is fetched just to identify servers.
    if server.references:
        parts.append(("references", server.references))
    return tuple(parts)


def _working_folder(server: ServerConfig, folder: str | None) -> str | None:
    """The working folder of a program; None for addresses."""
    if server.command is None or server.cwd is not None:
        return server.cwd
    if folder is not None:
        return folder
    try:
        return os.getcwd()
    except OSError:
        # Our working folder was deleted.
        return None


def manifest_key(
    server: ServerConfig, folder: str | None = None, principal: str = "", *, by_folder: bool = False
) -> str:
    """The key of a server's manifest: a hash of what determines its offer, and of the user unless it is the workbench's
    owner. With `by_folder`, the folder counts in any case."""
    import hashlib

    identity = identity_of(server, folder) if by_folder else offer_identity(server, folder)
    if principal:
        return OF_USER + hashlib.sha256(written_identity([principal, identity])).hexdigest()
    return hashlib.sha256(written_identity(identity)).hexdigest()


def written_identity(identity: object) -> bytes:
    """An identity as bytes for hashing. Not JSON, because paths and variables may not be valid Unicode."""
    try:
        return encode(identity)
    except UnicodeEncodeError:
        return repr(identity).encode(errors="surrogatepass")


def written_offer(offer: Offer, key: str = "") -> bytes:
    """An offer as the content of a manifest."""
    lists = {kind: list(definitions.values()) for kind, definitions in offer.lists.items()}
    return encode(_Manifest(FORMAT, key, offer.profile, lists, offer.oversized, offer.transport))


def read_offer(data: bytes, key: str = "") -> Offer:
    """Read what `written_offer` has written under the same key. Raises `ValueError`."""
    try:
        found = _decode(data)
        decode_object(found.profile.capabilities)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if found.format != FORMAT or found.key != key:
        raise ValueError("of another version or server")
    lists = {kind: by_identity(kind, found.lists[kind])[0] for kind in KINDS if kind in found.lists}
    return Offer(found.profile, lists, oversized=found.oversized, transport=found.transport)


class ManifestStore:
    """A folder of manifests. If `locate` returns None, nothing is stored."""

    def __init__(self, locate: Callable[[], str | None]) -> None:
        self._locate = locate
        self._looked_at: float | None = None
        self._saved_of_users = 0

    @cached_property
    def _folder(self) -> str | None:
        # Determined on first use, because start-up does not need it.
        return self._locate()

    def load(self, key: str) -> Offer | None:
        """The offer stored under this key."""
        if self._folder is None:
            return None
        try:
            return read_offer(_read(self._path(key)), key)
        except (OSError, ValueError):
            return None

    def save(self, key: str, offer: Offer) -> str:
        """Store an offer. Best effort: returns its `state`, empty if it could not be stored."""
        if self._folder is None:
            return ""
        data = written_offer(offer, key)
        return self._replace(self._path(key), data) if len(data) <= MAX_MANIFEST_BYTES else ""

    def drop_users(self) -> None:
        """Delete what servers offered to users other than the workbench's owner. A key was revoked, and its name may be
        given to somebody else; no file says whose it is, and for all others it only costs listing again."""
        if self._folder is not None:
            _drop_oldest_of_users(self._folder, 0)

    def load_asks(self, key: str) -> bool:
        """Whether the server is recorded as one that sends requests to clients."""
        return self.load_blob(f"{key}{_ASKS_SUFFIX}") is not None

    def save_asks(self, key: str) -> None:
        """Record that. In a separate file, because another process that does not know it may replace the offer."""
        self.save_blob(f"{key}{_ASKS_SUFFIX}", b"")

    def has_skills(self, key: str) -> bool:
        """Whether the server is recorded as one with skills, which a search has to read."""
        return self.load_blob(f"{key}{_SKILLS}") is not None

    def save_has_skills(self, key: str) -> None:
        """Record that, unless it is known."""
        if not self.has_skills(key):
            self.save_blob(f"{key}{_SKILLS}", b"")

    def depends_on_folder(self, key: str) -> bool:
        """Whether the server is recorded as one that offers something else in another folder."""
        return self.load_blob(f"{key}{_BY_FOLDER}") is not None

    def save_depends_on_folder(self, key: str) -> None:
        """Record that."""
        self.save_blob(f"{key}{_BY_FOLDER}", b"")

    def note_listed(self, key: str) -> None:
        """Record that the server has listed its offer now, whether it has changed or not. In a separate file, because
        an offer that has not changed is not written again."""
        self.save_blob(f"{key}{_LISTED}", b"")

    def age(self, key: str) -> float:
        """Seconds since the server listed its offer; infinite if that is not known."""
        if self._folder is None:
            return float("inf")
        try:
            return max(0.0, time.time() - os.lstat(os.path.join(self._folder, f"{key}{_LISTED}.bin")).st_mtime)
        except OSError:
            return float("inf")

    def state(self, key: str) -> str:
        """A value that changes whenever the offer under this key does; empty if there is none. To ask is to use it:
        what was computed from an offer is used instead of it."""
        if self._folder is None:
            return ""
        path = self._path(key)
        try:
            found = os.stat(path)
        except OSError:
            return ""
        _note_use(path, found)
        return _state(found)

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is stored."""
        if self._folder is None:
            return True
        try:
            with os.scandir(self._folder) as found:
                return next(found, None) is None
        except OSError:
            return True

    def load_blob(self, name: str) -> bytes | None:
        """Load other data that was computed from offers. The caller must validate it."""
        if self._folder is None:
            return None
        try:
            return _read(os.path.join(self._folder, f"{name}.bin"))
        except OSError:
            return None

    def save_blob(self, name: str, data: bytes) -> None:
        """Store such data. Best effort."""
        if self._folder is not None and len(data) <= MAX_MANIFEST_BYTES:
            self._replace(os.path.join(self._folder, f"{name}.bin"), data)

    def _replace(self, path: str, data: bytes) -> str:
        from mcp_workbench.engine.own_files import replace_whole

        state = ""
        with contextlib.suppress(OSError):
            # Definitions may be private, so only the user may read them.
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            state = _state(replace_whole(path, data))
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at > LOOKED_AFTER:
            self._looked_at = now
            _drop_unused(os.path.dirname(path))
        if os.path.basename(path).startswith(OF_USER):
            if self._saved_of_users % COUNTED_AFTER == 0:
                _drop_oldest_of_users(os.path.dirname(path), MAX_USER_MANIFESTS)
            self._saved_of_users += 1
        return state

    def _path(self, key: str) -> str:
        assert self._folder is not None
        return os.path.join(self._folder, f"{key}.json")


def _state(file: os.stat_result) -> str:
    return f"{file.st_mtime_ns}-{file.st_size}"


def _last_used(file: os.stat_result) -> float:
    return max(file.st_atime, file.st_mtime)


def _note_use(file: str | int, found: os.stat_result) -> None:
    """In the time of access, whatever the file system makes of it: the other one tells when the content changed."""
    if time.time() - _last_used(found) > USE_NOTED_AFTER:
        with contextlib.suppress(OSError):
            os.utime(file, ns=(time.time_ns(), found.st_mtime_ns))


def _own_file(path: str, flags: int) -> int:
    return os.open(path, flags | NONBLOCK | NOFOLLOW)


def _read(path: str) -> bytes:
    """Read one of our files. Raises OSError for a pipe, which would block, or a symbolic link."""
    # With an opener, the descriptor of a folder is closed when `open` refuses it.
    with open(path, "rb", opener=_own_file) as file:
        descriptor = file.fileno()
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not is_own(found):
            raise PermissionError(f"{path} is not a file of ours")
        _note_use(descriptor, found)
        # Files are replaced atomically, so the size cannot change while we read.
        return file.read(min(found.st_size, MAX_MANIFEST_BYTES) + 1)


def _drop_unused(folder: str) -> None:
    """Delete files that have not been written or read for `KEPT_UNUSED`, a limited number at a time."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(_ENDINGS)]
    except OSError:
        return
    before = time.time() - KEPT_UNUSED
    dropped = 0
    # Start at a different position each time, so that all files are reached even if many are in use.
    start = time.time_ns() % len(names) if len(names) > MAX_EXAMINED_MANIFESTS else 0
    for name in (names[start:] + names[:start])[:MAX_EXAMINED_MANIFESTS]:
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if _last_used(os.lstat(path)) < before:
                os.unlink(path)
                dropped += 1
        if dropped == MAX_DROPPED_MANIFESTS:
            return


def _drop_oldest_of_users(folder: str, most: int) -> None:
    """Delete the least recently used files of other users, down to `most`."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        paths = [each.path for each in found if each.name.startswith(OF_USER)]
        if len(paths) > most:
            paths.sort(key=lambda path: _last_used(os.lstat(path)))
            for path in paths[: len(paths) - most]:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def default_folder() -> str | None:
    """The user's cache folder; None if the user has no home."""
    if sys.platform == "linux" and os.environ.get("XDG_CACHE_HOME", "").startswith("/"):
        return os.path.join(os.environ["XDG_CACHE_HOME"], "mcp-workbench", "manifests")
    if sys.platform == "linux" and os.environ.get("HOME", "").startswith("/"):
        # The same as platformdirs, without the 8 ms to import it at start-up.
        return os.path.join(os.environ["HOME"], ".cache", "mcp-workbench", "manifests")
    import platformdirs

    try:
        folder = platformdirs.user_cache_dir("mcp-workbench", appauthor=False)
    except (RuntimeError, KeyError, OSError):
        return None
    # Without HOME and an entry in the user database, as in many containers, `~` is not expanded.
    return os.path.join(folder, "manifests") if os.path.isabs(folder) else None
