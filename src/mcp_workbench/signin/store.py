"""Tokens and registrations at rest: one file of mode 0600, replaced atomically under a lock.

In plain text, or encrypted with a key in the system's keychain (`token_encryption`). There is one record for each
principal, server, issuer, client and resource. The disk is authoritative: a change locks, reads again, writes and
unlocks. A damaged file is renamed, never overwritten. Knows nothing about where tokens come from or whom they belong
to.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import MsgspecError, Struct, field
from msgspec.json import decode, encode, format

from mcp_workbench.blocking_work import aside
from mcp_workbench.signin import store_location
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.store_location import FILE_NAME, SEALED_HEAD, StoreUnusable

if TYPE_CHECKING:
    from mcp_workbench.signin.token_encryption import MasterKey

log = logging.getLogger(__name__)

FORMAT: Final = 1
# Enough for hundreds of servers with large tokens; anything larger is not our file.
LARGEST_STORE: Final = 16 * 1024 * 1024
# Reading and writing take milliseconds; a process that holds the lock longer than this is hung.
LOCK_SECONDS: Final = 10.0
LOCK_LOOK_SECONDS: Final = 0.02


class SignInRecord(Struct, frozen=True, kw_only=True):
    principal: str
    # The address of the MCP server, with `#account` where the user has several there.
    server: str
    # The identifier of the authorization server. Nothing in this record is sent to any other.
    issuer: str
    client: OAuthClient
    token_endpoint: str
    revocation_endpoint: str | None = None
    resource: str | None = None
    scopes: tuple[str, ...] = ()
    # "" if not signed in, or no longer, though the client is registered.
    access_token: str = ""
    refresh_token: str | None = None
    # Seconds since 1970; None if unknown.
    expires_at: float | None = None
    obtained_at: float = 0.0
    signed_in_at: float = 0.0
    # Every scope requested, granted or not, so that a refused one is not requested over and over.
    asked: tuple[str, ...] = ()
    account: str | None = None
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    # Why the user has to sign in again; "" if they do not.
    ended: str = ""
    # When the grant expires even if it is refreshed, and when the refresh token does, if the server said so.
    grant_limit_at: float | None = None
    refresh_ends_at: float | None = None

    @property
    def key(self) -> tuple[str | None, ...]:
        return self.principal, self.server, self.issuer, self.client.id, self.resource


class WantedSignIn(Struct, frozen=True, kw_only=True):
    """A server that requires a sign-in, with its challenge, from which the next sign-in starts."""

    principal: str
    server: str
    challenge: str
    # The scopes granted before, which a step-up requests again.
    scopes: tuple[str, ...] = ()


class Contents(Struct, kw_only=True):
    format: int = FORMAT
    records: list[SignInRecord] = field(default_factory=list)
    clients: list[OAuthClient] = field(default_factory=list)
    wanted: list[WantedSignIn] = field(default_factory=list)

    def put(self, record: SignInRecord) -> None:
        """Store a record, replacing the one with the same key."""
        self.records = [each for each in self.records if each.key != record.key] + [record]

    def clients_by_issuer(self) -> dict[str, OAuthClient]:
        return {client.issuer: client for client in self.clients}

    def put_client(self, client: OAuthClient) -> None:
        """Store a registration, replacing an earlier one with the same issuer."""
        self.clients = [each for each in self.clients if each.issuer != client.issuer] + [client]

    def want(self, wanted: WantedSignIn) -> None:
        """Store a server's challenge."""
        self.satisfy(wanted.principal, wanted.server)
        self.wanted.append(wanted)

    def wanted_at(self, principal: str, server: str) -> WantedSignIn | None:
        """The latest challenge of this server, unless the user has signed in since."""
        return next((each for each in self.wanted if (each.principal, each.server) == (principal, server)), None)

    def satisfy(self, principal: str, server: str) -> None:
        """Remove the challenge of this server."""
        self.wanted = [each for each in self.wanted if (each.principal, each.server) != (principal, server)]


class TokenStore:
    """The file. `folder` is created on the first write.

    `keychain`: whether the file must be encrypted; None: either is fine. Only `convert` turns one into the other.
    """

    def __init__(
        self, folder: str | None = None, *, keychain: bool | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder or store_location.folder()
        self._keychain = keychain
        self._environ = environ
        self._key: MasterKey | None = None
        # As of the last read.
        self.is_sealed = keychain is True
        self.path = os.path.join(self._folder, FILE_NAME)

    def read(self) -> Contents:
        """Read the file. Raises `StoreUnusable` if other users could have written it or it is in the wrong form."""
        content = self._read_file()
        if content is None:
            self.is_sealed = self._keychain is True
            return Contents()
        self.is_sealed = content.startswith(SEALED_HEAD)
        try:
            contents = decode(self._unsealed(content) if self.is_sealed else content, type=Contents)
            if contents.format > FORMAT:
                # Not renamed like a damaged file: an older version running alongside would sign the user out.
                raise StoreUnusable(
                    f"the sign-ins in `{self.path}` were written by a newer workbench", hint="update this one"
                )
            if contents.format == FORMAT and len(content) <= LARGEST_STORE:
                self._check_kind(contents)
                return contents
        except (MsgspecError, UnicodeError, RecursionError):
            pass
        self._set_aside()
        return Contents()

    async def unlock(self) -> None:
        """Fetch the key, if one is needed, without blocking the event loop, as `read` would."""
        is_known = self._key is not None and self._key.is_known
        if not is_known and (self._keychain is True or self._has_sealed_head()):
            await aside(self._unlocked)

    async def convert(self, *, sealed: bool) -> Contents:
        """Rewrite the file encrypted, or in plain text."""
        async with self.locked("store", LOCK_SECONDS):
            contents = await aside(self.read)
            self.is_sealed = sealed
            await aside(lambda: self._write(contents))
            return contents

    def _unlocked(self) -> bytes:
        # Imported only where sign-ins are encrypted.
        from mcp_workbench.signin.token_encryption import MasterKey

        if self._key is None:
            self._key = MasterKey(self._environ)
        return self._key.fetch(create=not self._has_sealed_head())

    def _unsealed(self, content: bytes) -> bytes:
        """Decrypt the file; a damaged one yields content that cannot be parsed."""
        from mcp_workbench.signin.token_encryption import Damaged, unseal

        try:
            return unseal(content, self._unlocked())
        except Damaged:
            return b""

    def _has_sealed_head(self) -> bool:
        try:
            with open(self.path, "rb") as file:
                return file.read(len(SEALED_HEAD)) == SEALED_HEAD
        except OSError:
            return False

    def _check_kind(self, contents: Contents) -> None:
        if self._keychain is False and self.is_sealed:
            raise StoreUnusable(
                f"the sign-ins in `{self.path}` are encrypted, and the configuration says `keychain: false`",
                hint="remove that, or run `mcp-workbench auth --decrypt`",
            )
        if self._keychain is True and not self.is_sealed:
            if contents.records or contents.clients:
                raise StoreUnusable(
                    f"the sign-ins in `{self.path}` are not encrypted, and the configuration says `keychain: true`",
                    hint="run `mcp-workbench auth --encrypt`",
                )
            self.is_sealed = True

    def _read_file(self) -> bytes | None:
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                self._check(os.fstat(file.fileno()))
                return file.read(LARGEST_STORE + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnusable(
                f"the sign-ins in `{self.path}` cannot be read: {error.strerror}", hint="check who owns the file"
            ) from None

    def stamp(self) -> tuple[int, int, int]:
        """A value that changes whenever the file does."""
        try:
            found = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return found.st_ino, found.st_mtime_ns, found.st_size

    async def change(self, change: Callable[[Contents], None]) -> Contents:
        """Lock, read again, apply `change`, and write. Returns what is now on disk."""
        await self.unlock()
        async with self.locked("store", LOCK_SECONDS):
            contents = self.read()
            change(contents)
            self._write(contents)
            return contents

    @contextlib.asynccontextmanager
    async def locked(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Hold a lock of this name across all of the user's processes. Raises `StoreUnusable`."""
        self._make_folder()
        lock = os.path.join(self._folder, f"{name}.lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreUnusable(f"`{lock}` cannot be opened: {error.strerror}", hint=_FOLDER_HINT) from None
        try:
            until = time.monotonic() + seconds
            while not _try_lock(descriptor):
                if time.monotonic() > until:
                    raise StoreUnusable(
                        f"another workbench has held `{lock}` for {seconds:g} s", hint="try again; end it if it hangs"
                    )
                await asyncio.sleep(LOCK_LOOK_SECONDS)
            yield
        finally:
            # Closing unlocks.
            os.close(descriptor)

    def _write(self, contents: Contents) -> None:
        content = format(encode(contents), indent=1) + b"\n"
        if self.is_sealed:
            from mcp_workbench.signin.token_encryption import seal

            servers = {each.server for each in contents.records} | {each.server for each in contents.wanted}
            content = seal(content, self._unlocked(), (name for each in servers for name in _spellings(each)))
        draft = f"{self.path}.{os.getpid()}-{os.urandom(4).hex()}.new"
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                # With rotation, the old refresh token is already invalid: losing the new one loses the sign-in.
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise StoreUnusable(f"`{self.path}` cannot be written: {error.strerror}", hint=_FOLDER_HINT) from None

    def _make_folder(self) -> None:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreUnusable(f"`{self._folder}` cannot be created: {error.strerror}", hint=_FOLDER_HINT) from None

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise StoreUnusable(
                f"`{self.path}` is not a file of your own, so the tokens in it are not used", hint="remove it"
            )
        if found.st_mode & 0o077:
            raise StoreUnusable(
                f"others can read the tokens in `{self.path}`",
                hint=f"run `chmod 600 {self.path}`, and sign in again if someone may have read them",
            )

    def _set_aside(self) -> None:
        kept = f"{self.path}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path, kept)
            log.warning("the sign-ins in %s are damaged; the file was moved to %s", self.path, kept)


def _spellings(server: str) -> tuple[str, str]:
    """With and without the account."""
    return server, server.rpartition("#")[0] or server


def lock_name(principal: str, server: str) -> str:
    """The lock name for one principal at one server, hashed because addresses do not fit into file names."""
    return hashlib.sha256(f"{principal}\0{server}".encode()).hexdigest()[:32]


def _try_lock(descriptor: int) -> bool:
    try:
        # Polled, because a blocking `flock` can be neither bounded nor cancelled.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


_FOLDER_HINT: Final = "check the permissions of the folder and the space on the disk"
