"""Replaces a file that belongs to somebody else, so that nothing is ever lost.

Whoever looks, at any moment and after any crash, finds the old content or the new one, whole. Owns the order: lock,
read again, back up, write beside, sync, rename, look. A link is followed and stays a link; permissions stay. What must
not be written is refused before anything happens. Refuses to know what is in the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final

from mcp_workbench.errors import ConfigError

# What another of us may take for its replacement, which takes milliseconds.
LOCK_SECONDS: Final = 10.0
_LOCK_POLL_SECONDS: Final = 0.05
# Settings of clients; Claude Code's, with its history, has several megabytes.
LARGEST_FILE: Final = 16 * 1024 * 1024
_NEW_FILE_MODE: Final = 0o600
_DRAFT: Final = re.compile(r"\.[0-9]+-[0-9a-f]{8}\.new$")


class ChangedAfterwards(ConfigError):
    """The file was written, and somebody else has written it since."""


def read_file(path: str) -> bytes | None:
    """What is in the file; None where there is none. Raises `ConfigError`."""
    try:
        # Without waiting: opening a named pipe would block until something writes to it.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"`{path}` is no file", hint="move it away, and try again")
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        if os.path.islink(path):
            raise ConfigError(f"`{path}` is a link that leads nowhere", hint="repair or remove the link") from None
        return None
    except PermissionError:
        hint = "check its permissions; on macOS, allow the access under Privacy & Security, or run `tccutil reset All`"
        raise ConfigError(f"`{path}` cannot be read: permission denied", hint=hint) from None
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise ConfigError(f"`{path}` is larger than {LARGEST_FILE // 1024**2} MiB, too large for a configuration")
    return content


def replace_file(path: str, expected: bytes | None, content: bytes | None, lock_folder: str) -> None:
    """Put `content` in the place of `expected`, which is what the caller has seen there; None is no file at all.

    Raises `ConfigError`. Then nothing has changed, unless it is `ChangedAfterwards`.
    """
    # Settings are often links into a repository of dotfiles: the file behind the link is replaced, and the link stays.
    target = os.path.realpath(path)
    is_written = False
    try:
        with locked(target, lock_folder):
            _refuse_changes(path, target, expected)
            refuse_what_is_not_ours(path)
            _remove_drafts(target)
            if content is None:
                os.unlink(target)
                _sync_folder(target)
            else:
                # Once more when all is written: a slow disk takes its time, and the client may have used it.
                write_whole(target, content, lambda: _refuse_changes(path, target, expected))
            is_written = True
            if read_file(target) != content:
                raise ChangedAfterwards(
                    f"`{path}` was changed by another program right after it was written",
                    hint="quit the client, look at the file, and run the command again",
                )
    except OSError as error:
        if is_written:
            # Only the lock was left to let go of, and it ends with us.
            return
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        raise ConfigError(f"`{path}` cannot be written: {why}; it is as it was", hint="run the command again") from None


def _remove_drafts(target: str) -> None:
    """Of one of us who was killed: they hold whatever secrets the file holds. Under the lock nobody else has one."""
    folder, name = os.path.split(target)
    with contextlib.suppress(OSError):
        for each in os.listdir(folder):
            if each.startswith(f"{name}.") and _DRAFT.search(each):
                os.unlink(os.path.join(folder, each))


def _refuse_changes(path: str, target: str, expected: bytes | None) -> None:
    if read_file(target) != expected:
        raise ConfigError(
            f"`{path}` has been changed by another program meanwhile; nothing was written",
            hint="quit the client, and run the command again",
        )


@contextlib.contextmanager
def locked(path: str, folder: str) -> Iterator[None]:
    """Only one of us at a time. The lock is in our folder, so as not to clutter the client's."""
    import hashlib

    make_private(folder)
    name = os.path.join(folder, f".{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.lock")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def make_private(folder: str) -> None:
    """A folder for its user alone, and so what has to be made above it. Raises `OSError`."""
    above = os.path.dirname(folder)
    if above != folder and not os.path.isdir(above):
        make_private(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)


def _lock(descriptor: int, path: str) -> None:
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        return
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            # Unlike `fcntl` locks, it does not end when another descriptor of the same file is closed; like them, it
            # ends with the process, so a crash leaves no stale lock behind.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                hint = "wait for the other mcp-workbench to end, and try again"
                raise ConfigError(f"another mcp-workbench is writing `{path}`", hint=hint) from None
            time.sleep(_LOCK_POLL_SECONDS)


def refuse_what_is_not_ours(path: str) -> None:
    """Raises `ConfigError` for a file that must not be written, whatever the system would allow."""
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        raise ConfigError(f"`{path}` belongs to another user", hint="fix its owner with `chown`, or run as that user")
    if not about.st_mode & stat.S_IWUSR:
        raise ConfigError(f"`{path}` is read-only", hint="allow writing with `chmod u+w`, or use --print and paste it")


def back_up(path: str, content: bytes, folder: str) -> str:
    """Keep the content under a name with the time in it; the path of that. Raises `OSError`, `ConfigError`."""
    make_private(folder)
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1000):
        suffix = f"-{number}" if number else ""
        name = os.path.join(folder, f"{moment}{suffix}-{os.path.basename(path)}")
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        try:
            _write_all(descriptor, content)
        except BaseException:
            # Half a backup under such a name would be taken for a whole one.
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        return name
    raise ConfigError(f"`{folder}` holds too many backups of this second")


def write_whole(target: str, content: bytes, check: Callable[[], None] = lambda: None) -> None:
    """Write a file beside and rename it, so that it is never seen in part; `check` may still refuse before the
    renaming. Raises `OSError`, and what `check` raises."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    draft = f"{target}.{os.getpid()}-{os.urandom(4).hex()}.new"
    try:
        mode = stat.S_IMODE(os.stat(target).st_mode)
    except FileNotFoundError:
        mode = _NEW_FILE_MODE
    try:
        # For the owner alone until `fchmod`, whatever the umask: the file may hold secrets.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o700 | 0o200)
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        _write_all(descriptor, content)
        check()
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    _sync_folder(target)


def _write_all(descriptor: int, content: bytes) -> None:
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        # Before the rename: after a power failure, a file system may know the new name and not the content.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: str) -> None:
    # A rename is durable once its folder is on disk. Some network file systems cannot sync folders.
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _link(draft: str, path: str, content: bytes) -> None:
    """Unlike a rename, a link never takes the place of anything. Some disks (exFAT, a few network ones) have none."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _NEW_FILE_MODE)
        try:
            _write_all(descriptor, content)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise


def create_file(path: str, content: bytes) -> None:
    """Make a file for the user alone, whole or not at all. Raises `ConfigError`, also where there is one already."""
    draft = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.new"
    try:
        make_private(os.path.dirname(path))
        _write_all(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _NEW_FILE_MODE), content)
        try:
            _link(draft, path, content)
        finally:
            os.unlink(draft)
        _sync_folder(path)
    except FileExistsError:
        raise ConfigError(f"`{path}` exists already; it is left as it is", hint="move it away, and try again") from None
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be written: {error.strerror}") from None
