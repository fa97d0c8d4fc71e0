"""Runs a program and collects its output, without a shell and with limits on time and output.

Owns the process until nothing is left of its process group. Knows nothing about what the output means.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.processes import ProcessTable

# How much of stderr is quoted in errors.
MAX_QUOTED_STDERR_BYTES: Final = 4096
# A killed process is gone at once, unless it is stuck in the kernel.
KILL_TIMEOUT: Final = 1.0
_PROGRAM_READ_BYTES: Final = 64 * 1024


class ProgramEnd(Struct, frozen=True):
    # Negative: terminated by that signal. None: killed, because it took too long or printed too much.
    status: int | None
    output: bytes
    errors: bytes
    is_late: bool = False


class Program:
    """A running program. `finish` blocks, so call it in a thread; call `release` on the event loop."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None = None,
        *,
        given: bytes = b"",
        table: ProcessTable | None = None,
    ) -> None:
        """Start it. Raises OSError. With a `table`, call this on the event loop: the process table must know the
        program before it collects orphans."""
        self._given = given
        self._table = table
        self._is_over = False
        environment = dict(env)
        tagging: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if table is not None:
            from mcp_workbench.engine.transport.processes import PROCESS_MARK_VARIABLE

            table.prepare()
            environment[PROCESS_MARK_VARIABLE] = mark = table.mark()
            tagging = table.tagging(mark)
        with tagging:
            self._process = subprocess.Popen(
                command,
                # Our own stdin is the client's protocol.
                stdin=subprocess.PIPE if given else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=cwd,
                bufsize=0,
                # In its own group, so that `_kill` reaches everything it starts; and without a terminal, so that it
                # cannot prompt for a password on the one the client's user is typing at.
                start_new_session=True,
            )
        if table is not None:
            table.add(self._process.pid)

    def finish(self, seconds: float, most_bytes: int) -> ProgramEnd:
        """Wait until it exits. Nothing of its group is left afterwards."""
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        ends_at = time.monotonic() + seconds
        status: int | None = None
        try:
            # Cannot block: the pipe holds far more than is ever written.
            self._give(process.stdin)
            output, errors, is_over = _read(process.stdout, process.stderr, ends_at, most_bytes)
            if is_over:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(max(0.0, ends_at - time.monotonic()))
        finally:
            self._kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_TIMEOUT)
            self._is_over = True
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        return ProgramEnd(status, output, errors, is_late=status is None and len(output) <= most_bytes)

    def release(self) -> None:
        """Called when it has exited or its waiter was cancelled."""
        if not self._is_over:
            # The thread in `finish` sees it exit.
            self._kill()
        if self._table is not None:
            self._table.remove(self._process.pid)

    def _give(self, pipe: IO[bytes] | None) -> None:
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.write(self._given)
                pipe.close()

    def _kill(self) -> None:
        # macOS reports EPERM for a group that has only zombies left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _read(stdout: IO[bytes], stderr: IO[bytes], ends_at: float, most_bytes: int) -> tuple[bytes, bytes, bool]:
    """Read stdout and stderr until both end or a limit is reached. Also returns whether both ended."""
    taken: dict[IO[bytes], bytearray] = {stdout: bytearray(), stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe in taken:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and (left := ends_at - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                pipe = stdout if key.fileobj is stdout else stderr
                piece = os.read(key.fd, _PROGRAM_READ_BYTES)
                if not piece:
                    selector.unregister(pipe)
                taken[pipe] += piece
            if len(taken[stdout]) > most_bytes:
                break
            del taken[stderr][:-MAX_QUOTED_STDERR_BYTES]
        return bytes(taken[stdout]), bytes(taken[stderr]), not selector.get_map()
