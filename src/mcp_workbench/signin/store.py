"""Tokens and registrations at rest: one file of mode 0600, replaced atomically under a lock.

In plain text, or encrypted with a key in the system's keychain (`token_encryption`). There is one record for each
principal, server, issuer, client and resource. The disk is authoritative: a change locks, reads again, writes and
unlocks. Refreshed tokens that cannot be written are part of what is read, and written later. A damaged file is
renamed, never overwritten. Knows nothing about where tokens come from or whom they belong to.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, Final

from msgspec import MsgspecError, Struct, field
from msgspec.json import decode, encode, format

from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.portable_os import NOFOLLOW, NONBLOCK, is_own
from mcp_workbench.signin import store_location
from mcp_workbench.signin.client_registration import OAuthClient
from mcp_workbench.signin.profiles import GrantKind
from mcp_workbench.signin.refresh_turn import RefreshTurn, is_kept, try_lock
from mcp_workbench.signin.store_location import SEALED_HEAD, SIGN_INS_FILE, StoreUnusable

if TYPE_CHECKING:
    from mcp_workbench.signin.token_encryption import MasterKey

log = logging.getLogger(__name__)

STORE_FORMAT: Final = 1
# Enough for hundreds of servers with large tokens; anything larger is not our file.
MAX_SIGN_IN_STORE_BYTES: Final = 16 * 1024 * 1024
# Reading and writing take milliseconds; a process that holds the lock longer than this is hung.
STORE_LOCK_TIMEOUT: Final = 10.0
STORE_LOCK_POLL_INTERVAL: Final = 0.02
# Reserved before a refresh is sent, in addition to the size of the file. Tokens are a few kilobytes at most.
ANSWER_ROOM_BYTES: Final = 64 * 1024
# How soon storing is tried again after it failed, doubled each time.
SAVE_RETRY_DELAY: Final = 1.0
MAX_SAVE_RETRY_DELAY: Final = 30.0


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
    grant: GrantKind = "authorization_code"
    # Why the user has to sign in again; "" if they do not.
    ended: str = ""
    # When the grant expires even if it is refreshed, and when the refresh token does, if the server said so.
    grant_limit_at: float | None = None
    refresh_ends_at: float | None = None
    # The private key that the tokens are bound to, as a JWK; "" for bearer tokens.
    dpop_key: str = ""
    # Of a sign-in to an identity provider; "" for all others, which have no use for it.
    id_token: str = ""

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
    format: int = STORE_FORMAT
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


class UnsavedRenewal(Struct, frozen=True):
    """A refreshed record that is not on disk yet."""

    record: SignInRecord
    # The refresh token that it replaces on disk.
    replaced: str | None
    # Drop the registration too, so that the next sign-in registers again.
    forgets_client: bool = False

    def apply(self, contents: Contents) -> None:
        """Unless the user has signed in or out in the meantime: the user's action wins."""
        current = next((each for each in contents.records if each.key == self.record.key), None)
        if current is not None and current.refresh_token == self.replaced:
            contents.put(self.record)
        if self.forgets_client:
            contents.clients = [client for client in contents.clients if client.id != self.record.client.id]


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
        self.path = os.path.join(self._folder, SIGN_INS_FILE)
        # What could not be written, by key, the turns that are held for it, and the task that writes it later.
        self._unsaved: dict[tuple[str | None, ...], UnsavedRenewal] = {}
        self._kept: dict[str, RefreshTurn] = {}
        self._saving: asyncio.Task[None] | None = None

    def read(self) -> Contents:
        """Read the file, with what waits to be written to it. Raises `StoreUnusable` if other users could have written
        it or it is in the wrong form."""
        contents = self._read_contents()
        for renewal in self._unsaved.values():
            renewal.apply(contents)
        return contents

    def _read_contents(self) -> Contents:
        content = self._read_file()
        if content is None:
            self.is_sealed = self._keychain is True
            return Contents()
        self.is_sealed = content.startswith(SEALED_HEAD)
        try:
            contents = decode(self._unsealed(content) if self.is_sealed else content, type=Contents)
            if contents.format > STORE_FORMAT:
                # Not renamed like a damaged file: an older version running alongside would sign the user out.
                raise StoreUnusable(
                    f"the sign-ins in `{self.path}` were written by a newer workbench", hint="update this one"
                )
            if contents.format == STORE_FORMAT and len(content) <= MAX_SIGN_IN_STORE_BYTES:
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
        async with self.locked("store", STORE_LOCK_TIMEOUT):
            contents = await aside(self.read)
            self.is_sealed = sealed
            await aside(lambda: self._write(contents, None))
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
            with self._opened() as file:
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

    def _opened(self) -> BinaryIO:
        """Follows no link, and a pipe does not block."""
        more = NOFOLLOW | NONBLOCK
        return open(self.path, "rb", opener=lambda path, flags: os.open(path, flags | more))

    def _read_file(self) -> bytes | None:
        try:
            with self._opened() as file:
                self._check(os.fstat(file.fileno()))
                return file.read(MAX_SIGN_IN_STORE_BYTES + 1)
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

    async def change(self, change: Callable[[Contents], None], room: str | None = None) -> Contents:
        """Lock, read again, apply `change`, and write, into a reserved file if there is one. Returns what is now on
        disk."""
        await self.unlock()
        async with self.locked("store", STORE_LOCK_TIMEOUT):
            contents = self.read()
            change(contents)
            self._write(contents, room)
            self._unsaved.clear()
            for turn in self._kept.values():
                turn.settle()
                if not turn.is_busy:
                    turn.close()
            self._kept.clear()
            return contents

    @contextlib.asynccontextmanager
    async def refreshing(self, name: str, seconds: float) -> AsyncIterator[RefreshTurn]:
        """Wait for the turn to refresh the sign-in with this `lock_name`. Raises `StoreUnusable`."""
        lock, descriptor = self._open_lock(name)
        until = time.monotonic() + seconds
        try:
            while (turn := self._turn(name, descriptor)) is None:
                if name not in self._kept and is_kept(descriptor):
                    raise StoreUnusable(
                        f"another workbench has refreshed this sign-in and has not been able to store it in "
                        f"`{self.path}`",
                        hint="free some space on that disk; until then, only that workbench can use the sign-in",
                    )
                await _next_look(lock, until, seconds)
        except BaseException:
            os.close(descriptor)
            raise
        turn.is_busy = True
        try:
            yield turn
        finally:
            turn.is_busy = False
            if not turn.is_kept:
                turn.close()

    def _turn(self, name: str, descriptor: int) -> RefreshTurn | None:
        kept = self._kept.get(name)
        if kept is None:
            room = os.path.join(self._folder, f"{name}.reserved")
            return RefreshTurn(name, descriptor, room) if try_lock(descriptor) else None
        if kept.is_busy:
            return None
        os.close(descriptor)
        return kept

    def reserve(self, turn: RefreshTurn, refresh_token: str) -> None:
        """Make sure that the answer to a refresh can be stored. Raises `StoreUnusable`."""
        try:
            turn.prepare(refresh_token, os.stat(self.path).st_size + ANSWER_ROOM_BYTES)
        except OSError as error:
            turn.give_up_room()
            raise StoreUnusable(
                f"the token was not refreshed, because a new one could not be stored in `{self.path}`: "
                f"{error.strerror}",
                hint=_FOLDER_HINT,
            ) from None

    async def renew(
        self, record: SignInRecord, earlier: SignInRecord, turn: RefreshTurn, *, forgets_client: bool = False
    ) -> Contents:
        """Store a refreshed record, now or as soon as it can be. Returns what is in force."""
        unsaved = self._unsaved.get(record.key)
        replaced = earlier.refresh_token if unsaved is None else unsaved.replaced
        self._unsaved[record.key] = UnsavedRenewal(record, replaced, forgets_client)
        try:
            contents = await self.change(lambda contents: None, turn.room)
        except StoreUnusable as error:
            log.warning("%s; the new token is used all the same, and stored as soon as that is possible", error.message)
            if turn.keep():
                self._kept[turn.name] = turn
            if self._saving is None or self._saving.done():
                self._saving = asyncio.ensure_future(self._save_later())
            with contextlib.suppress(StoreUnusable):
                return self.read()
            return Contents(records=[record])
        turn.settle()
        return contents

    async def close(self) -> None:
        """Write what could not be written so far."""
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait({self._saving})
        if self._unsaved:
            try:
                await self.change(lambda contents: None)
            except StoreUnusable as error:
                servers = ", ".join(dict.fromkeys(each.record.server for each in self._unsaved.values()))
                log.error("%s; you have to sign in again to %s", error.message, servers)
        for turn in self._kept.values():
            turn.close()
        self._kept.clear()

    async def _save_later(self) -> None:
        pause = SAVE_RETRY_DELAY
        while self._unsaved:
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_SAVE_RETRY_DELAY)
            with contextlib.suppress(StoreUnusable):
                await self.change(lambda contents: None)
        log.warning("the sign-ins that could not be written before are now in %s", self.path)

    @contextlib.asynccontextmanager
    async def locked(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Hold a lock of this name across all of the user's processes. Raises `StoreUnusable`."""
        lock, descriptor = self._open_lock(name)
        try:
            until = time.monotonic() + seconds
            while not try_lock(descriptor):
                await _next_look(lock, until, seconds)
            yield
        finally:
            # Closing unlocks.
            os.close(descriptor)

    def _open_lock(self, name: str) -> tuple[str, int]:
        self._make_folder()
        lock = os.path.join(self._folder, f"{name}.lock")
        try:
            return lock, os.open(lock, os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreUnusable(f"`{lock}` cannot be opened: {error.strerror}", hint=_FOLDER_HINT) from None

    def _write(self, contents: Contents, room: str | None) -> None:
        content = format(encode(contents), indent=1) + b"\n"
        if self.is_sealed:
            from mcp_workbench.signin.token_encryption import seal

            servers = {each.server for each in contents.records} | {each.server for each in contents.wanted}
            content = seal(content, self._unlocked(), (name for each in servers for name in _spellings(each)))
        if room is not None:
            with contextlib.suppress(OSError):
                self._replace_file(room, os.O_WRONLY | NOFOLLOW, content)
                return
        self._remove_drafts()
        draft = f"{self.path}.{os.getpid()}-{os.urandom(4).hex()}.new"
        try:
            self._replace_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, content)
        except OSError as error:
            raise StoreUnusable(f"`{self.path}` cannot be written: {error.strerror}", hint=_FOLDER_HINT) from None

    def _remove_drafts(self) -> None:
        """A process that was killed leaves its draft, with tokens. Under the lock, no other one is in use."""
        with contextlib.suppress(OSError):
            for each in os.listdir(self._folder):
                if each.startswith(f"{SIGN_INS_FILE}.") and each.endswith(".new"):
                    os.unlink(os.path.join(self._folder, each))

    def _replace_file(self, draft: str, flags: int, content: bytes) -> None:
        try:
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(content)
                # A reserved file is larger.
                file.truncate()
                file.flush()
                # With rotation, the old refresh token is already invalid: losing the new one loses the sign-in.
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise

    def _make_folder(self) -> None:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreUnusable(f"`{self._folder}` cannot be created: {error.strerror}", hint=_FOLDER_HINT) from None

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode) or not is_own(found):
            raise StoreUnusable(
                f"`{self.path}` does not belong to you alone, so the tokens in it are not used", hint="remove it"
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


async def _next_look(lock: str, until: float, seconds: float) -> None:
    if time.monotonic() > until:
        raise StoreUnusable(
            f"another workbench has held `{lock}` for {seconds:g} s", hint="try again; end it if it hangs"
        )
    await asyncio.sleep(STORE_LOCK_POLL_INTERVAL)


_FOLDER_HINT: Final = "check the permissions of the folder and the space on the disk"
