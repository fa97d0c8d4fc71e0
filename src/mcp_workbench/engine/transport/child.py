"""The server's end over stdio: a child process and its three pipes.

Owns one process from its start until nothing is left of its group. Knows nothing about what messages mean or whether
the process should be restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Final

from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, Part, error_response, find_id, looks_like_answer
from mcp_workbench.engine.transport.backlog import MAX_UNSENT_BYTES, fits, refusal
from mcp_workbench.engine.transport.confinement import AS_GUARDED, CannotConfine, Companion, Launch, start_confined
from mcp_workbench.engine.transport.lines import LineFeed
from mcp_workbench.engine.transport.link import Receiver
from mcp_workbench.engine.transport.open_files import give_back
from mcp_workbench.engine.transport.pipes import PipeReader, PipeWriter, describe, widen
from mcp_workbench.engine.transport.processes import PROCESS_MARK_VARIABLE, ProcessTable
from mcp_workbench.engine.transport.stderr import StderrRing
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import NO_PROCESSES, SHORTAGE_HINTS, DownstreamError, shortage

log = logging.getLogger(__name__)

# The specification: close stdin, wait, then force. A server that honours end-of-file needs milliseconds; all steps
# together fit into the 5 seconds that a shutdown may take.
EOF_GRACE: Final = 1.5
TERM_GRACE: Final = 1.5
KILL_GRACE: Final = 1.0
# How long after the process has ended to wait for its last output, and how long after the end of its output to wait for
# its exit status. Both only improve the error message.
LAST_OUTPUT_GRACE: Final = 0.1
EXIT_STATUS_GRACE: Final = 0.5
OURSELVES: Final = "mcp-workbench"
# A server that has read nothing for as long as a call may take by default, while its queue is full, is hung.
UNREAD_STDIN_TIMEOUT: Final = 120.0
_MAX_LOGGED_HEAD: Final = 300


class ChildLink:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: str,
        table: ProcessTable,
        batch: WriteBatch,
        receiver: Receiver,
        limit: int,
        companion: Companion | None = None,
        stderr: StderrRing | None = None,
    ) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.pid = process.pid
        self.exit_status: int | None = None
        self.stderr = stderr or StderrRing()
        self._process = process
        self._mark = mark
        self._table = table
        self._receiver = receiver
        self._lines = LineFeed(limit, receiver, batch)
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._output_over = asyncio.Event()
        self._ended = False
        self._closed = False
        self._writer = PipeWriter(batch, os.dup(process.stdin.fileno()), self._write_failed)
        self._reader = PipeReader(batch, os.dup(process.stdout.fileno()), self._lines.feed, self._output_ended)
        self._errors = PipeReader(batch, os.dup(process.stderr.fileno()), self.stderr.feed, self._errors_ended)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
        self._watch_exit()
        self._companion = companion
        if companion is not None:
            companion.begin()

    def __repr__(self) -> str:
        state = "running" if self.exit_status is None else describe_exit(self.exit_status)
        return f"<ChildLink pid={self.pid} {state}>"

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        writer = self._writer
        writer.write_line(parts)
        if writer.unsent_bytes > MAX_UNSENT_BYTES:
            self._make_it_fit(parts)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that have not been written to the server yet."""
        return self._writer.unsent_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes that the server has certainly not read."""
        return self._writer.unread_bytes

    def stderr_lines(self, count: int) -> list[str]:
        """The lines of stderr that best explain why it failed."""
        return self.stderr.most_relevant(count)

    def kill(self) -> None:
        """Kill the process, its group and its strays at once; `stop` cleans up."""
        self._signal_all(signal.SIGKILL)

    async def stop(self) -> None:
        """End the process, its group and its strays. Bounded by the sum of the three graces."""
        share = 0.5 if self._table.is_hurried else 1.0
        self._writer.close()
        if not await self._wait_exit(EOF_GRACE * share):
            self._signal_group(signal.SIGTERM)
            await self._wait_exit(TERM_GRACE * share)
        else:
            # Servers behind a wrapper often outlive it by a moment; whatever is left has seen end-of-file too.
            self._signal_all(signal.SIGTERM)
        if not await self._wait_gone(TERM_GRACE * share if self.exit_status is not None else 0.0):
            self._signal_all(signal.SIGKILL)
            await self._wait_exit(KILL_GRACE)
            await self._wait_gone(KILL_GRACE)
        # Many programs flush their buffers when they end.
        await self._wait_output_ended(LAST_OUTPUT_GRACE)
        self._reader.close()
        self._lines.discard()
        self._errors.close()
        self._table.remove(self.pid)
        self._table.reap_strays()
        if self._companion is not None:
            await self._companion.close()

    # What does not fit

    def _make_it_fit(self, parts: tuple[Part, ...]) -> None:
        """Too much is queued for the server: take back the newest message, unless it is small."""
        message = b"".join(parts)
        unsent = self._writer.unsent_bytes
        if fits(unsent, len(message)):
            return
        self._writer.take_back(len(parts) + 1)
        self._refuse(message)
        if self._writer.stalled_seconds() >= UNREAD_STDIN_TIMEOUT:
            self._close(f"the server has not read {unsent} bytes of requests")

    def _refuse(self, message: bytes) -> None:
        waiting = self._writer.unsent_bytes
        # All of our messages with an id begin like this; an `id` elsewhere belongs to the payload.
        id = find_id(message[:_MAX_LOGGED_HEAD]) if message.startswith(b'{"jsonrpc":"2.0","id":') else None
        if id is None:
            log.warning("a notification to process %d was dropped: %d bytes wait for it", self.pid, waiting)
        elif looks_like_answer(message):
            # The server must not be left waiting for an answer.
            self._writer.write(error_response(id, INTERNAL_ERROR, "the client's answer is too large"), b"\n")
        else:
            self._loop.call_soon(self._receiver.on_request_failed, id, refusal(waiting, len(message)))

    # What arrives

    def _errors_ended(self, error: Exception | None) -> None:
        self.stderr.finish()
        if error is not None:
            # Stderr is no longer drained, and a server that cannot write to it will block sooner or later.
            self._close(f"the server's stderr cannot be read: {describe(error)}")

    def _output_ended(self, error: Exception | None) -> None:
        if error is not None:
            self._lines.discard()
            self._close(f"the server's output cannot be read: {describe(error)}")
            return
        self._ended = True
        self._output_over.set()
        self._lines.finish()
        if self.exit_status is None:
            self._loop.call_later(EXIT_STATUS_GRACE, self._close, "the server closed its output")
        else:
            self._close(describe_exit(self.exit_status))

    def _write_failed(self, error: Exception) -> None:
        if isinstance(error, BrokenPipeError):
            self._loop.call_later(
                EXIT_STATUS_GRACE, self._close_when_read, f"the server closed its input ({error.strerror})"
            )
        else:
            self._close(f"the server's input cannot be written: {describe(error)}")

    def _close_when_read(self, reason: str) -> None:
        """Close, but not while the last message is being read in a thread."""
        if self._reader.is_busy:
            self._loop.call_later(LAST_OUTPUT_GRACE, self._close_when_read, reason)
        else:
            self._close(reason)

    def _close(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            if self.exit_status is not None:
                reason = describe_exit(self.exit_status)
            self._receiver.on_closed(reason)

    # How the process ends

    def _watch_exit(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._exit_seen)
        except (AttributeError, OSError):
            # macOS, and kernels before 5.3: a thread waits instead.
            import threading

            threading.Thread(target=self._wait_in_thread, name=f"wait-{self.pid}", daemon=True).start()

    def _exit_seen(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._set_exit(self._process.wait())

    def _wait_in_thread(self) -> None:
        status = self._process.wait()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set_exit, status)

    def _set_exit(self, status: int) -> None:
        self.exit_status = status
        self._exited.set()
        if self._ended:
            self._close(describe_exit(status))
        else:
            # A grandchild may keep the pipe open indefinitely.
            self._loop.call_later(LAST_OUTPUT_GRACE, self._close_when_read, describe_exit(status))

    async def _wait_exit(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        return self._exited.is_set()

    async def _wait_output_ended(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._output_over.wait()

    async def _wait_gone(self, seconds: float) -> bool:
        """Wait until neither the group nor a stray of this server is left."""
        end = time.monotonic() + seconds
        while self._is_group_alive() or not self._table.is_clear_of(self._mark):
            self._table.reap_strays()
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(0.02)
        return True

    def _is_group_alive(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # macOS reports this for a group that consists of zombies.
            return False
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _signal_all(self, number: signal.Signals) -> None:
        self._signal_group(number)
        for pid in self._table.strays(self._mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def spawn(
    command: str,
    args: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str | None,
    *,
    table: ProcessTable,
    batch: WriteBatch,
    receiver: Receiver,
    limit: int,
    launch: Launch = AS_GUARDED,
    stderr: StderrRing | None = None,
) -> ChildLink:
    """Start a server with exactly this environment. Closes what `launch` holds.

    Raises `DownstreamError` with the reason and what to do about it.
    """
    client = launch.client_environment
    try:
        program = find_program(command, env.get("PATH"), cwd) if client is None else launch.wrapper[0]
    except DownstreamError:
        launch.abandon()
        raise
    table.prepare()
    mark = table.mark()
    environment = {**env, PROCESS_MARK_VARIABLE: mark} if client is None else {**client}
    words = [*launch.wrapper, program, *args] if client is None else [*launch.wrapper, *args]
    if program == OURSELVES:
        # Our own command need not be on PATH: use the running installation.
        program, args = sys.executable, ("-m", "mcp_workbench", *args)
        if "PYTHONPATH" in os.environ:
            environment.setdefault("PYTHONPATH", os.environ["PYTHONPATH"])
        words = [*launch.wrapper, program, *args]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=cwd if client is None else None,
            bufsize=0,
            start_new_session=True,
            pass_fds=launch.descriptors,
        )

    try:
        # What an engine leaves running for a moment is not to be killed.
        with table.tagging(mark) if client is None else contextlib.nullcontext():
            process = start_confined(launch.confinement, start)
    except (OSError, ValueError) as error:
        launch.abandon()
        if isinstance(error, PermissionError) and launch.confinement.read is not None and os.access(program, os.X_OK):
            raise DownstreamError(
                f"command `{command}` cannot be started in its sandbox, which does not let it read the program",
                hint="add the folder that the program is installed in to `read` of its `sandbox`",
            ) from None
        raise _why_not_started(command, cwd, error) from None
    except CannotConfine as error:
        launch.abandon()
        raise DownstreamError(f"it was not started, because its sandbox cannot be set up: {error}") from None
    launch.close()
    if launch.companion is not None and launch.companion.process is not None:
        table.spare(launch.companion.process)
    table.add(process.pid)
    give_back(process.pid)
    assert process.stdout is not None
    widen(process.stdout.fileno())
    return ChildLink(process, mark, table, batch, receiver, limit, launch.companion, stderr)


def find_program(command: str, path: str | None, cwd: str | None) -> str:
    """The program that a command means; `OURSELVES` for our own where it is not on PATH. Raises `DownstreamError`."""
    import shutil

    if os.sep in command:
        return command if cwd is None else os.path.join(cwd, command)
    found = shutil.which(command, path=path)
    if found is None and command == OURSELVES:
        return OURSELVES
    if found is None:
        raise DownstreamError(
            f"command `{command}` was not found on PATH", hint="install it, or give its full path as `command`"
        )
    return found


def _why_not_started(command: str, cwd: str | None, error: OSError | ValueError) -> DownstreamError:
    if cwd is not None and not os.path.isdir(cwd):
        return DownstreamError(f"working directory `{cwd}` does not exist", hint="correct `cwd` in the configuration")
    if isinstance(error, PermissionError) and os.path.isdir(command):
        return DownstreamError(f"command `{command}` is a folder", hint="name the program inside it")
    if isinstance(error, PermissionError):
        return DownstreamError(f"command `{command}` is not executable", hint="make it executable (chmod +x)")
    if isinstance(error, FileNotFoundError):
        return DownstreamError(
            f"command `{command}` does not exist", hint="correct `command`; if it does exist, check its first line (#!)"
        )
    lacking = shortage(error)
    # "Resource temporarily unavailable" tells nobody which one.
    reason = lacking if lacking == NO_PROCESSES else error.strerror if isinstance(error, OSError) else str(error)
    hint = None if lacking is None else SHORTAGE_HINTS[lacking]
    return DownstreamError(f"command `{command}` cannot be started: {reason}", hint=hint)


def describe_exit(status: int) -> str:
    """`exit status 3`, or `killed by SIGKILL`."""
    if status >= 0:
        return f"the server exited with status {status}"
    try:
        return f"the server was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"the server was killed by signal {-status}"
