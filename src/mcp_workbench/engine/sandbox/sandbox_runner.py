"""Programs that run to their end in a server's sandbox before it starts: what npm and uv do to verify a package.

They block, so they run in a thread; whoever waits for that thread owns them. Owns each from its start until nothing is
left of its group. Knows nothing about what they do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Final

from mcp_workbench.engine.sandbox.sandbox import Sandbox
from mcp_workbench.engine.sandbox.server_sandbox import enforce
from mcp_workbench.engine.transport.confinement import CannotConfine, Launch, start_confined
from mcp_workbench.engine.transport.processes import PROCESS_MARK_VARIABLE, ProcessTable

if TYPE_CHECKING:
    import subprocess

# To install a package.
RUN_TIMEOUT: Final = 300.0
# Of what a program says, the end is kept: errors are there.
MAX_OUTPUT_BYTES: Final = 64 * 1024
# Until a program that was killed, or has closed its output, has ended.
_RUN_END_TIMEOUT: Final = 5.0
# How often to look whether it has ended, while it says nothing.
_EXIT_INTERVAL: Final = 0.1
_READ_SIZE: Final = 64 * 1024


class SandboxRunner:
    """Runs programs one after another, until it is cancelled. Made and cancelled on the event loop."""

    def __init__(self, table: ProcessTable) -> None:
        table.prepare()
        self._table = table
        self._mark = table.mark()
        self._group: int | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Kill what is running, with all that it has started. Nothing is started any more."""
        self._is_cancelled = True
        self._kill()
        for pid in self._table.strays(self._mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def run(self, sandbox: Sandbox, words: Sequence[str], given: bytes) -> tuple[int, str]:
        """Run a program in a sandbox to its end. Returns its exit status and the end of what it said; a negative status
        if it did not end by itself. Blocks."""
        import tempfile

        if self._is_cancelled:
            return -1, "cancelled"
        launch = enforce(sandbox).launch
        try:
            # Here, because that thread cannot write where temporary files are.
            with tempfile.TemporaryFile() as stdin:
                stdin.write(given)
                stdin.seek(0)
                # All of it in that thread: the children of the main thread are reaped as strays.
                status, said = start_confined(launch.confinement, lambda: self._run(launch, sandbox, words, stdin))
        except (OSError, CannotConfine) as error:
            return -1, str(error)
        finally:
            launch.abandon()
        return status, said.decode(errors="replace")

    def _run(self, launch: Launch, sandbox: Sandbox, words: Sequence[str], stdin: IO[bytes]) -> tuple[int, bytes]:
        import subprocess

        process = subprocess.Popen(
            [*launch.wrapper, *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**sandbox.environment, PROCESS_MARK_VARIABLE: self._mark},
            cwd=sandbox.folder,
            pass_fds=launch.descriptors,
            start_new_session=True,
            bufsize=0,
        )
        self._table.add(process.pid)
        self._group = process.pid
        try:
            if self._is_cancelled:
                self._kill()
            return self._followed(process)
        finally:
            # Also what it has left running.
            self._kill()
            self._group = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_RUN_END_TIMEOUT)
            assert process.stdout is not None
            process.stdout.close()
            self._table.remove(process.pid)

    def _followed(self, process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
        """Read what it says until it ends."""
        import selectors
        import subprocess

        assert process.stdout is not None
        end = time.monotonic() + RUN_TIMEOUT
        said = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while (seconds := end - time.monotonic()) > 0:
                if not selector.select(min(seconds, _EXIT_INTERVAL)):
                    # What it leaves running, even bubblewrap's first process, holds its output open.
                    if process.poll() is not None:
                        return process.returncode, bytes(said)
                    continue
                chunk = os.read(process.stdout.fileno(), _READ_SIZE)
                if not chunk:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return process.wait(min(seconds, _RUN_END_TIMEOUT)), bytes(said)
                    break
                said += chunk
                del said[:-MAX_OUTPUT_BYTES]
        return -1, bytes(said) + f"\ntimed out after {RUN_TIMEOUT:g} s".encode()

    def _kill(self) -> None:
        group = self._group
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
