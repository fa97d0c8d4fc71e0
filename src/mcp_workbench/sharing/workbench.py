"""The shared workbench: admits clients, serves them concurrently, and exits after some time without clients.

Owns the listening socket, who is connected and why we end. The lock that marks the shared workbench is held by the
process (`sharing.front.joining`), and is released with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from mcp_workbench import __version__
from mcp_workbench.app.runtime import ProcessOwner, Runtime
from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.catalog.registry import SharedServers
from mcp_workbench.engine.config.choose import ConfigSource, user_folder
from mcp_workbench.engine.config.model import DEFAULT_SHARED_IDLE_EXIT
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.file_watch import Fingerprint, Watched, fingerprint
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.engine.printable import report_json
from mcp_workbench.engine.process_context import LOCK_FILE, PAGE_FILE, WANTED_FILE, WITHIN, make_private
from mcp_workbench.engine.socket_peers import may_ask, peer_uid
from mcp_workbench.engine.version import full_version
from mcp_workbench.errors import ConfigError
from mcp_workbench.sharing.budgets import ClientBudgets
from mcp_workbench.sharing.catalogs import Catalogs
from mcp_workbench.sharing.client import ClientContext, SharedClient
from mcp_workbench.sharing.front.joining import is_at, listen, release_lock, sign_lock, take_lock
from mcp_workbench.sharing.front.line_protocol import (
    ACCEPTED,
    AGAIN,
    ALONE,
    BORROW,
    COME_AGAIN,
    CONTROL,
    DOWN,
    ENDING_NOW,
    KEEP,
    NOTE,
    PING,
    PROTOCOL,
    RELOAD,
    RESTART,
    SERVE_ALONE,
    UNABLE,
)
from mcp_workbench.sharing.hello import MAX_HELLO_BYTES, BadHello, Hello, read_hello
from mcp_workbench.sharing.status import describe

if TYPE_CHECKING:
    from mcp_workbench.app.page_serving import OwnPage

log = logging.getLogger(__name__)
# A front end sends its hello at once.
HELLO_TIMEOUT: Final = 5.0
# Connections without a hello yet. Twenty clients that start at once are usual, hundreds are a mistake.
MAX_GREETINGS: Final = 256
# A configuration is read within milliseconds; on a disk that hangs, never. Front ends wait a little longer.
CONFIG_READ_TIMEOUT: Final = 10.0
# Without free descriptors a connection stays in the queue, and the system keeps reporting it.
ACCEPT_RETRY_DELAY: Final = 1.0
# Between attempts to make a removed socket again, on a disk that is full or read-only.
SOCKET_RESTORE_INTERVAL: Final = 5.0
# What `reload` reports about configurations that cannot be used.
MAX_RELOAD_PROBLEMS: Final = 8
MAX_PROBLEM_LENGTH: Final = 1000
# What all first lines together may take. Those that arrive in one read, nearly all of them, do not count.
MAX_HELLO_BYTES_IN_ALL: Final = 4 * MAX_HELLO_BYTES
_SOCKET_READ_BYTES: Final = 64 * 1024
# Nothing but `no_new_privs` tells servers from others, and some sandboxes set it too.
OF_A_SERVER: Final = (
    "the shared workbench does not serve processes of servers, nor others that run with no_new_privs, as in a sandbox"
)
_VERSION_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


# Where the shared workbench listens: its socket and its lock, in a folder that others may clean up.
# If the socket is removed while we run, nobody can reach us, and if the lock's file is, a second workbench can start.
# So both are watched and made again. Owns these files; knows nothing about connections. Everything here may block.
class Displaced(Exception):
    """Another shared workbench has started meanwhile, and holds the lock."""


class SocketPlace:
    def __init__(self, listener: socket.socket, lock: int | None) -> None:
        """`lock` is the descriptor of the lock that we hold; without one, nothing is made again."""
        self._lock = lock
        self.path: str = listener.getsockname()
        self.folder = os.path.dirname(self.path)
        self.page_file = os.path.join(self.folder, PAGE_FILE)
        self._file = _identity(self.path)
        # `mcp-workbench up` leaves this file; it is gone with the folder.
        self._is_wanted = os.path.lexists(os.path.join(self.folder, WANTED_FILE))

    def watched(self, changed: Callable[[Fingerprint], None]) -> Watched:
        """Return what to watch. `changed` is called in the watching thread, first with what is there now: a socket that
        is removed before anybody has looked at it would never differ from what was seen."""
        return Watched((self.path, os.path.join(self.folder, LOCK_FILE)), None, changed)

    def restore(self) -> socket.socket | None:
        """Make again what is missing. Returns the new socket to listen on; None if ours is in place. Raises `Displaced`
        and `OSError`."""
        if self._lock is None:
            return None
        if not is_at(self._lock, os.path.join(self.folder, LOCK_FILE)):
            make_private(self.folder)
            taken = take_lock(self.folder)
            if taken is None:
                raise Displaced
            # The descriptor stays the same for whoever closes it.
            os.dup2(taken, self._lock, inheritable=False)
            os.close(taken)
            sign_lock(self._lock)
            if self._is_wanted:
                os.close(os.open(os.path.join(self.folder, WANTED_FILE), os.O_WRONLY | os.O_CREAT, 0o600))
        if self._file is not None and _identity(self.path) == self._file:
            return None
        listener = socket.socket(fileno=listen(self.folder).detach())
        self._file = _identity(self.path)
        return listener

    def release(self) -> None:
        """Let another workbench have the lock. The descriptor stays with whoever closes it."""
        if self._lock is not None:
            release_lock(self._lock)

    def remove(self) -> None:
        """Remove the socket, unless it belongs to another workbench."""
        if self._file is not None and _identity(self.path) == self._file:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _identity(path: str) -> tuple[int, int] | None:
    """Return which file it is; None if there is none. The inode is not reused while the socket is open."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Refused(Exception):
    """A client that is not served here. `verb` is one of the answers of `sharing.front.line_protocol`."""

    def __init__(self, verb: str, reason: str) -> None:
        super().__init__(reason)
        self.verb = verb


class SharedWorkbench(ProcessOwner):
    def __init__(
        self,
        listener: socket.socket,
        context_of: Callable[[Hello], Awaitable[ClientContext]],
        redactor: Redactor,
        *,
        stays: bool = False,
        lock: int | None = None,
        kept: Hello | None = None,
    ) -> None:
        """`stays`: a user or service manager watches the process, and ends it when it is no longer wanted. `lock`: the
        descriptor of the lock that marks the shared workbench. `kept`: whose own configuration to have ready."""
        # Read now: an update in place changes what the files say.
        self._runs = RunningVersion(full_version(), time.monotonic())
        self.catalogs = Catalogs(Runtime(redactor, self, SharedServers()))
        self.catalogs.runtime.offer_page(self._make_page)
        self._listener = listener
        self._place = SocketPlace(listener, lock)
        self._watched_place: Watched | None = None
        self._context_of = context_of
        self._stays = stays
        self._kept = kept
        # Seconds without clients after which we exit, from the configuration of the last client; None: never.
        self._idle_exit = None if stays else DEFAULT_SHARED_IDLE_EXIT
        self.clients: set[SharedClient] = set()
        self._was_joined = False
        self._budgets = ClientBudgets()
        self._greeting = 0
        self._hello_bytes = 0
        # Greetings and commands in progress: a second signal ends them, whatever they wait for.
        self._unserved: set[asyncio.Task[None]] = set()
        self._awaiting_end: list[socket.socket] = []
        self._ending = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._goodbye = SERVE_ALONE
        self._reason = ""
        # Whether another workbench starts while we finish the calls of our clients.
        self._is_succeeded = False
        self._signals = 0
        self._is_restoring = False
        # The user's own configuration, while it cannot be used.
        self._unkept: Watched | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._accept_timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._page: OwnPage | None = None

    @property
    def own_info(self) -> bytes:
        return encode({"name": "mcp-workbench", "title": "MCP Workbench", "version": __version__})

    def describe(self) -> bytes:
        return report_json(self.status())

    def _make_page(self) -> OwnPage:
        if self._page is None:
            from mcp_workbench.app.page_serving import OwnPage

            self._page = OwnPage(self.catalogs.runtime, lambda: self.catalogs.gateways, self._place.page_file)
        return self._page

    async def look_up(self) -> None:
        await self.catalogs.read_manifests()

    async def run(self) -> None:
        """Serve until told to end, or until there has been no client for a while."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._listener.setblocking(False)
        self._wait_for_clients()
        log.info("shared workbench %s ready, process %d", self._runs.version, os.getpid())
        async with self.catalogs.runtime.running(), asyncio.TaskGroup() as self._tasks:
            self.catalogs.runtime.pool.serve_many()
            # Always: whoever looks later wants to know what has happened before.
            _ = self.catalogs.runtime.count_calls()
            if os.path.lexists(self._place.page_file):
                # Before somebody can ask for the page.
                await self._make_page().reopen()
            await self.catalogs.runtime.open_status_socket()
            self._listen()
            if self._kept is not None:
                self._keep_again(self._kept)
            self._watch_place(loop)
            try:
                await self._ending.wait()
            finally:
                self._unwatch_place()
                self._stop_listening()
                # From now on new clients cannot connect, and start another workbench once we have released the lock.
                self._place.remove()
                self._listener.close()
            log.info("shutting down: %s", self._reason)
            if self._page is not None:
                await self._page.close()
            self.catalogs.close()
            if self._is_succeeded:
                try:
                    await self._make_room()
                except Exception:
                    # The next workbench starts when we are gone. Our clients must still get their instructions.
                    log.exception("room for the next workbench could not be made; please report this")
            for client in list(self.clients):
                client.end(self._reason, self._goodbye, between_calls=self._is_succeeded)
        self._budgets.close()
        await self.catalogs.stop_recording()
        log.info("bye")

    @property
    def is_replaced(self) -> bool:
        """Whether another workbench is to replace us."""
        # Not after a signal: a service manager that stops us must not start us again.
        return self._goodbye == COME_AGAIN and not self._signals

    def end(self, reason: str, goodbye: bytes, *, is_succeeded: bool = False) -> None:
        """Begin to end; front ends get their instructions. `is_succeeded`: another workbench may start at once."""
        if not self._ending.is_set():
            self._reason, self._goodbye, self._is_succeeded = reason, goodbye, is_succeeded
            self._ending.set()

    async def _make_room(self) -> None:
        """Leave to the next workbench what only one of us can have."""
        await self.catalogs.runtime.close_metrics()
        self._place.release()
        # The command that waits for this starts it.
        for connection in self._awaiting_end:
            connection.close()
        self._awaiting_end.clear()

    # ── connections ──

    def _listen(self) -> None:
        self._accept_timer = None
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _stop_listening(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        if self._accept_timer is not None:
            self._accept_timer.cancel()

    def _accept(self) -> None:
        assert self._tasks is not None
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("a connection could not be accepted: %s", error.strerror)
            self._stop_listening()
            self._accept_timer = asyncio.get_running_loop().call_later(ACCEPT_RETRY_DELAY, self._listen)
            return
        connection.setblocking(False)
        if self._greeting >= MAX_GREETINGS:
            connection.close()
            return
        task = self._tasks.create_task(self._take_in(connection))
        self._unserved.add(task)
        task.add_done_callback(self._unserved.discard)

    def _watch_place(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched_place = self._place.watched(lambda _: self._on_place_changed(loop))
        self.catalogs.watch.add(self._watched_place)

    def _unwatch_place(self) -> None:
        if self._watched_place is not None:
            self.catalogs.watch.discard(self._watched_place)

    def _on_place_changed(self, loop: asyncio.AbstractEventLoop) -> None:
        _call_soon(loop, self._look_after_socket)

    def _look_after_socket(self) -> None:
        if not self._ending.is_set() and not self._is_restoring:
            _ = self.catalogs.runtime.start_task(self._restore_socket())

    async def _restore_socket(self) -> None:
        """Make the socket again if it was removed, or end if another workbench has taken our place."""
        self._is_restoring = True
        try:
            listener = await aside(self._place.restore)
        except Displaced:
            self.end("its folder was removed, and another shared workbench has been started since", COME_AGAIN)
            return
        except OSError as error:
            log.warning("the socket cannot be made again: %s", error.strerror or error)
            asyncio.get_running_loop().call_later(SOCKET_RESTORE_INTERVAL, self._look_after_socket)
            return
        finally:
            self._is_restoring = False
        if listener is None:
            return
        if self._ending.is_set():
            listener.close()
            self._place.remove()
            return
        log.warning("the socket `%s` was removed, and has been made again", self._place.path)
        # Anew: if this one is removed before the next look, nothing seems to have changed since the last.
        self._unwatch_place()
        self._watch_place(asyncio.get_running_loop())
        self._stop_listening()
        self._listener.close()
        self._listener = listener
        listener.setblocking(False)
        self._listen()
        await self.catalogs.runtime.reopen_status_socket()

    async def _take_in(self, connection: socket.socket) -> None:
        self._greeting += 1
        try:
            try:
                hello, rest = await self._read_hello(connection)
                context = await self._admit(hello)
            except BadHello as error:
                log.warning("a connection was refused: %s", error)
                refused = Refused(UNABLE, f"the shared workbench refused the connection: {error}")
                await self._answer(connection, f"{refused.verb} {_in_one_line(str(refused))}")
                return
            except Refused as error:
                await self._answer(connection, f"{error.verb} {_in_one_line(str(error))}")
                return
            finally:
                self._greeting -= 1
            if context is not None:
                task = asyncio.current_task()
                assert task is not None
                # From here on it is notified when we end, and has time to finish.
                self._unserved.discard(task)
                await self._serve(connection, hello, context, rest)
            else:
                await self._carry_out(connection, hello)
        except (OSError, TimeoutError):
            return
        except Exception:
            log.exception("a client could not be served; please report this")
        finally:
            connection.close()

    async def _read_hello(self, connection: socket.socket) -> tuple[Hello, bytes]:
        # Some systems ignore the mode of a socket (unix(7)).
        uid = peer_uid(connection)
        if uid is not None and uid != os.getuid():
            raise BadHello(f"it comes from another user (uid {uid})")
        loop = asyncio.get_running_loop()
        data = bytearray()
        counted = 0
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                while (end := data.find(b"\n")) < 0:
                    piece = await loop.sock_recv(connection, _SOCKET_READ_BYTES)
                    if not piece:
                        raise BadHello("it ended before its first line did")
                    if len(data) > MAX_HELLO_BYTES:
                        raise BadHello(f"its first line is longer than {MAX_HELLO_BYTES} bytes")
                    if data:
                        counted += len(piece)
                        self._hello_bytes += len(piece)
                        if self._hello_bytes > MAX_HELLO_BYTES_IN_ALL:
                            raise Refused(
                                AGAIN, "too many other clients are connecting with long first lines right now"
                            )
                    data += piece
        finally:
            self._hello_bytes -= counted
        hello = read_hello(bytes(data[:end]))
        if not may_ask(connection):
            # A server that is a workbench itself expects this.
            raise Refused(ALONE if WITHIN in hello.environ else UNABLE, OF_A_SERVER)
        return hello, bytes(data[end + 1 :])

    async def _admit(self, hello: Hello) -> ClientContext | None:
        """Return what a client is served with; None for a command. Raises `Refused`."""
        if self._ending.is_set():
            raise Refused(AGAIN, self._reason)
        if hello.command and hello.command != BORROW:
            return None
        is_newer = replaces(RunningVersion(hello.version, hello.started), self._runs)
        if is_newer and not self.clients:
            # There is no one to disturb, so an update takes effect with the next client.
            self.end(f"version {hello.version} takes the place of {self._runs.version}", COME_AGAIN)
            raise Refused(AGAIN, self._reason)
        if hello.hello != PROTOCOL:
            remedy = "run `mcp-workbench up --restart`" if is_newer else "restart the client"
            raise Refused(
                UNABLE,
                f"the shared workbench is version {self._runs.version}, this is {hello.version}, and they do not "
                f"understand each other; {remedy}",
            )
        context = await self._context(hello)
        # Again, because reading the configuration took time.
        if self._ending.is_set():
            raise Refused(AGAIN, self._reason)
        if not context.config.shared and not os.path.lexists(os.path.join(self._place.folder, WANTED_FILE)):
            if not self._was_joined and not self._stays:
                # A front end started us at the moment of `down`: no client would come, however long we wait.
                self.end("no client wants a shared workbench any more", COME_AGAIN)
            raise Refused(ALONE, f"`{context.config.path}` is not shared, and `mcp-workbench up` was not run")
        return context

    async def _context(self, hello: Hello) -> ClientContext:
        """Raises `Refused`, whatever happens: a front end without an answer would retry endlessly."""
        try:
            async with asyncio.timeout(CONFIG_READ_TIMEOUT):
                return await self._context_of(hello)
        except TimeoutError:
            reason = f"its configuration could not be read within {CONFIG_READ_TIMEOUT:.0f} s"
        except Refused:
            raise
        except Exception:
            log.exception("the client of process %d cannot be served; please report this", hello.pid)
            reason = "the shared workbench cannot serve this client; `mcp-workbench logs` says why"
        raise Refused(UNABLE, reason)

    async def _answer(self, connection: socket.socket, line: str) -> None:
        async with asyncio.timeout(HELLO_TIMEOUT):
            await asyncio.get_running_loop().sock_sendall(connection, CONTROL + line.encode() + b"\n")

    # ── clients ──

    async def _serve(self, connection: socket.socket, hello: Hello, context: ClientContext, first: bytes) -> None:
        async with contextlib.AsyncExitStack() as stack:
            try:
                gateway = await stack.enter_async_context(self.catalogs.serving(context))
            except ConfigError as error:
                # For the user to fix, such as an audit log that cannot be written.
                log.warning("the client of process %d cannot be served: %s", hello.pid, error.message)
                await self._answer(connection, f"{UNABLE} {_in_one_line(error.message)}")
                return
            except Exception:
                log.exception("the client of process %d cannot be served; please report this", hello.pid)
                await self._answer(
                    connection, f"{UNABLE} the shared workbench cannot serve this client; `mcp-workbench logs` says why"
                )
                return
            await self._answer(connection, f"{ACCEPTED} {self._runs.version} {os.getpid()}")
            for note in context.notes:
                await self._answer(connection, f"{NOTE.decode()} {_in_one_line(note)}")
            client = SharedClient(hello, context, gateway, connection.detach(), self._budgets)
            self.clients.add(client)
            self._was_joined = True
            self._stop_idling()
            log.info("client of process %d joins from %s with %s", hello.pid, context.folder, context.config.path)
            try:
                # `run` has only ended the clients that it found then.
                if self._ending.is_set():
                    client.end(self._reason, self._goodbye, between_calls=self._is_succeeded)
                await client.serve(first, self._is_urgent)
            finally:
                self.clients.discard(client)
                if not self._stays:
                    self._idle_exit = context.config.shared_idle_exit
                self._wait_for_clients()

    # ── commands ──

    async def _carry_out(self, connection: socket.socket, hello: Hello) -> None:
        if hello.command == PING:
            await self._answer(connection, f"{PING} {os.getpid()}")
        elif hello.command == RELOAD:
            rejected = await self.catalogs.reload()
            # The other end limits the size of answers (`sharing.front.joining`); `status` and the log have everything.
            reported = [problem[:MAX_PROBLEM_LENGTH] for problem in rejected[:MAX_RELOAD_PROBLEMS]]
            await self._answer(connection, f"{RELOAD} {os.getpid()} {encode(reported).decode()}")
        elif hello.command == KEEP:
            problem = await self.keep(hello)
            reported = [] if problem is None else [problem[:MAX_PROBLEM_LENGTH]]
            await self._answer(connection, f"{KEEP} {encode(reported).decode()}")
        elif hello.command in (DOWN, RESTART):
            count = len(self.clients)
            if hello.command == DOWN:
                with contextlib.suppress(OSError):
                    os.unlink(self._place.page_file)
            is_restart = hello.command == RESTART
            reason = f"requested by `mcp-workbench up --{'restart' if is_restart else 'stop'}` (process {hello.pid})"
            self.end(reason, COME_AGAIN if is_restart else SERVE_ALONE, is_succeeded=is_restart)
            # Kept open until we are gone, or have made room, which is what the command waits for.
            self._awaiting_end.append(connection.dup())
            await self._answer(connection, f"{ENDING_NOW} {os.getpid()} {count}")
        else:
            await self._answer(connection, f"{UNABLE} the shared workbench does not know the command `{hello.command}`")

    async def keep(self, hello: Hello) -> str | None:
        """Have the user's own configuration ready, not that of a project: it shows servers, and serves metrics, before
        a client joins. Returns what is wrong with it, until which is corrected it is watched."""
        own = user_folder(hello.environ)
        if own is None:
            return None
        hello = replace(hello, folder=own, arguments=())
        if self._unkept is not None:
            self.catalogs.watch.discard(self._unkept)
            self._unkept = None
        files = ConfigSource(None, None, hello.environ, own).files()
        # Before reading, so that a write in between counts as a change.
        before = await aside(lambda: fingerprint(files))
        try:
            await self.catalogs.keep(await self._context(hello))
        except (Refused, ConfigError) as error:
            loop = asyncio.get_running_loop()
            self._unkept = Watched(files, before, lambda _: _call_soon(loop, lambda: self._keep_again(hello)))
            self.catalogs.watch.add(self._unkept)
            return error.message if isinstance(error, ConfigError) else str(error)
        return None

    def _keep_again(self, hello: Hello) -> None:
        async def keep() -> None:
            problem = await self.keep(hello)
            if problem is not None:
                log.warning("%s", problem)

        if not self._ending.is_set():
            _ = self.catalogs.runtime.start_task(keep())

    def status(self) -> dict[str, object]:
        """Return our status, who is connected, and who shares what."""
        return describe(self.catalogs, self.clients, is_ending=self._ending.is_set())

    # ── the end ──

    def _wait_for_clients(self) -> None:
        if not self.clients and self._idle_exit is not None and self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self._idle_exit, self._on_idle)

    def _stop_idling(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _on_idle(self) -> None:
        self._idle_timer = None
        if self._greeting:
            # A client is about to join.
            self._wait_for_clients()
        else:
            self.end("no client for a while", COME_AGAIN)

    def _reload(self) -> None:
        async def reload() -> None:
            await self.catalogs.reload()

        _ = self.catalogs.runtime.start_task(reload())

    def _on_signal(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals > 1:
            self._is_urgent.set()
            for task in list(self._unserved):
                task.cancel()
        elif self._is_succeeded:
            # Whoever wants us to end now does not wait for the calls of a restart, and may end the next workbench too
            # (`up --stop`): our clients must not start another one.
            self._is_succeeded, self._goodbye = False, SERVE_ALONE
            for client in self.clients:
                client.end(self._reason, self._goodbye)
        # If a user or service manager watches us, the signal means that we should end; otherwise it may have meant the
        # machine, or nothing.
        self.end(f"received {number.name}", SERVE_ALONE if self._stays else COME_AGAIN)


def _call_soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """From the watching thread. The loop may have been closed meanwhile."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


# Whether a process of one version takes the place of an idle workbench of another.
# An update in place leaves running processes alone, so old front ends meet a new workbench, and must not end it. Of
# two releases the newer one counts. Commits between releases have no order; of those, the process that was started
# later runs what was installed later.
class RunningVersion(NamedTuple):
    """What a process runs, and since when."""

    # As `version.full_version` has it.
    version: str
    # By the monotonic clock of the machine; 0 if it does not say.
    started: float


def replaces(other: RunningVersion, own: RunningVersion) -> bool:
    """Whether the other one replaces us, if nobody is served."""
    if other.version == own.version:
        return False
    others, ours = _order(other.version), _order(own.version)
    return others > ours or (others == ours and other.started > own.started)


def _order(version: str) -> tuple[tuple[int, ...], bool, str]:
    """`1.0.0rc1` comes before `1.0.0`, which is the same release as `1.0.0+g1ee18ce`."""
    public = version.partition("+")[0]
    found = _VERSION_NUMBERS.match(public)
    numbers = tuple(map(int, found[0][:50].split("."))) if found else ()
    rest = public[found.end() :] if found else public
    return numbers, not rest, rest
