"""Replaces a file that belongs to another program, without ever losing anything.

At any moment and after any crash, either the old or the new content is there, complete. Owns the order: lock, read
again, back up, write a draft, sync, rename, verify. Symbolic links are followed and kept, and so are permissions. Files
that must not be written are refused before anything happens. Knows nothing about the content.
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

from mcp_workbench.engine.own_files import lock, replace_whole
from mcp_workbench.engine.portable_os import NONBLOCK, is_own
from mcp_workbench.errors import ConfigError

# How long to wait for another workbench to replace the file, which takes milliseconds.
FILE_LOCK_TIMEOUT: Final = 10.0
# Clients' settings are small, but Claude Code's include its history and have several megabytes.
MAX_CLIENT_FILE_BYTES: Final = 16 * 1024 * 1024
_NEW_FILE_MODE: Final = 0o600
_DRAFT: Final = re.compile(r"\.[0-9]+-[0-9a-f]{8}\.new$")


class ChangedAfterwards(ConfigError):
    """The file was written, but another program has written it since."""


def read_file(path: str) -> bytes | None:
    """The content of the file; None if it does not exist. Raises `ConfigError`."""
    try:
        # Non-blocking, because opening a named pipe would block until something writes to it.
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"`{path}` is not a file", hint="move it aside and try again")
            content = file.read(MAX_CLIENT_FILE_BYTES + 1)
    except FileNotFoundError:
        if os.path.islink(path):
            raise ConfigError(f"`{path}` is a broken link", hint="repair or remove the link") from None
        return None
    except PermissionError:
        hint = "check its permissions; on macOS, allow the access under Privacy & Security, or run `tccutil reset All`"
        raise ConfigError(f"`{path}` cannot be read: permission denied", hint=hint) from None
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror}") from None
    if len(content) > MAX_CLIENT_FILE_BYTES:
        raise ConfigError(
            f"`{path}` is larger than {MAX_CLIENT_FILE_BYTES // 1024**2} MiB, too large for a configuration"
        )
    return content


def replace_file(path: str, expected: bytes | None, content: bytes | None, lock_folder: str) -> None:
    """Replace `expected`, the content that the caller has read, by `content`; None means no file.

    Raises `ConfigError`; then nothing has changed, unless it is `ChangedAfterwards`.
    """
    # Settings are often links into a dotfiles repository: replace the target and keep the link.
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
                # Checked again after the draft is written, because a slow disk gives the client time to write too.
                write_whole(target, content, lambda: _refuse_changes(path, target, expected))
            is_written = True
            if not _is_now(target, content):
                raise ChangedAfterwards(
                    f"`{path}` was changed by another program right after it was written",
                    hint="quit the client, look at the file, and run the command again",
                )
    except OSError as error:
        if is_written:
            # Only releasing the lock failed, and it ends with the process.
            return
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        raise ConfigError(
            f"`{path}` cannot be written: {why}; it was left unchanged", hint="run the command again"
        ) from None


def _is_now(target: str, content: bytes | None) -> bool:
    try:
        return read_file(target) == content
    except ConfigError:
        # It was written, so nothing may be raised that says otherwise.
        return False


def _remove_drafts(target: str) -> None:
    """Remove drafts left by a killed process: they contain the file's secrets. Under the lock, no other one is in
    use."""
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
    """Allow one workbench at a time. The lock is in our own folder, so as not to clutter the client's."""
    import hashlib

    make_private(folder)
    name = os.path.join(folder, f".{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.lock")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            lock(descriptor, FILE_LOCK_TIMEOUT)
        except BlockingIOError:
            hint = "wait for the other mcp-workbench to end, and try again"
            raise ConfigError(f"another mcp-workbench is writing `{path}`", hint=hint) from None
        yield
    finally:
        os.close(descriptor)


def make_private(folder: str) -> None:
    """Create a private folder, and missing parents likewise. Raises `OSError`."""
    above = os.path.dirname(folder)
    if above != folder and not os.path.isdir(above):
        make_private(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)


def refuse_what_is_not_ours(path: str) -> None:
    """Raises `ConfigError` for a file that must not be written, whatever the system would allow."""
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return
    if not is_own(about):
        raise ConfigError(f"`{path}` belongs to another user", hint="fix its owner with `chown`, or run as that user")
    if not about.st_mode & stat.S_IWUSR:
        raise ConfigError(f"`{path}` is read-only", hint="allow writing with `chmod u+w`, or use --print and paste it")


def back_up(path: str, content: bytes, folder: str) -> str:
    """Store the content in a file with the time in its name, and return its path. Raises `OSError`, `ConfigError`."""
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
            # A partial backup could be mistaken for a complete one.
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        return name
    raise ConfigError(f"`{folder}` already holds too many backups from this second")


def write_whole(target: str, content: bytes, check: Callable[[], None] = lambda: None) -> None:
    """Replace a file, so that it is never incomplete; `check` may still refuse before the rename. Raises `OSError`, and
    what `check` raises."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    replace_whole(target, content, is_durable=True, keeps_mode=True, check=check)
    _sync_folder(target)


def _write_all(descriptor: int, content: bytes) -> None:
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        # Sync before the rename: after a power failure, the new name could otherwise have no content.
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
    """Unlike a rename, a hard link never replaces a file. Some file systems (exFAT, a few network ones) have none."""
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
    """Create a private file atomically. Raises `ConfigError`, also if it already exists."""
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
        raise ConfigError(
            f"`{path}` already exists; it was left unchanged", hint="move it aside and try again"
        ) from None
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be written: {error.strerror}") from None
