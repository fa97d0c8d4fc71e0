"""The processes in which programs run: each in the sandbox `sealed`, as a server can be.

Owns them: none before the first program, a program has one for itself, at most two are kept warm for their user's next
program, and one that a program did not leave in good order is ended. Knows nothing about what a program does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from mcp_workbench import programs
from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.config.environment import server_environment
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.sandbox.backends import choose
from mcp_workbench.engine.sandbox.decide import ServerProgram, decide
from mcp_workbench.engine.sandbox.machine import capabilities, this_machine
from mcp_workbench.engine.sandbox.program_files import own_files
from mcp_workbench.engine.sandbox.sandbox import Machine
from mcp_workbench.engine.sandbox.server_sandbox import enforce
from mcp_workbench.engine.transport.child import ChildLink, spawn
from mcp_workbench.engine.transport.processes import ProcessTable
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import DownstreamError, package_hint

# An interpreter is ready in a fifth of a second; a busy machine takes longer.
START_TIMEOUT: Final = 30.0
MAX_WARM_WORKERS: Final = 2
WARM_WORKER_LIFETIME: Final = 60.0
# Twice what the worker lets a program hand over (`MAX_VALUE_BYTES`).
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
NO_MONTY: Final = "programs need `pydantic-monty`"
NO_INTERPRETER_HINT: Final = package_hint("pydantic-monty")
_WORKER_SANDBOX: Final = SandboxConfig(profile="sealed")
CANNOT_SEAL: Final = "`programs` is on, and the sandbox that programs run in cannot be enforced"
SEAL_HINT: Final = (
    "programs need a Linux with Landlock and seccomp, or bubblewrap (`apt install bubblewrap`), or macOS; "
    "`mcp-workbench doctor` says what this machine can enforce"
)


def why_not() -> DownstreamError | None:
    """Why no program can run here. Starts nothing."""
    if not programs.is_installed():
        return DownstreamError(programs.NO_INTERPRETER, hint=NO_INTERPRETER_HINT)
    # What it may read depends on paths; what can be enforced does not.
    sandbox = decide(_WORKER_SANDBOX, _described({}, ()), Machine("", "", (), lambda path: None))
    try:
        choose(sandbox, capabilities())
    except DownstreamError as error:
        return DownstreamError(f"{CANNOT_SEAL}: {error.message.removeprefix('sandbox: ')}", hint=SEAL_HINT)
    return None


def _described(environment: dict[str, str], files: Sequence[str]) -> ServerProgram:
    return ServerProgram(
        args=(),
        own_environment={},
        environment=environment,
        folder=None,
        is_folder_named=False,
        files=files,
        script=None,
        home_name="programs",
    )


class WorkerMeans(Protocol):
    """What the process of the workbench provides for its children."""

    processes: ProcessTable
    batch: WriteBatch | None

    def reap_strays_when_they_end(self) -> None: ...


class WorkerEnded(Exception):
    """The process has ended, or said something that is no message."""


class Worker:
    """One process (`Receiver`). Its messages are read one at a time, as it writes them."""

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.link: ChildLink | None = None
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.idle_timer: asyncio.TimerHandle | None = None
        self.has_ended = False

    def send(self, message: dict[str, object]) -> None:
        assert self.link is not None
        self.link.send(json.dumps(message).encode())

    async def receive(self) -> dict[str, Any]:
        """The next message. Raises `WorkerEnded`."""
        message = await self._messages.get()
        if message is None:
            raise WorkerEnded
        return message

    def on_message(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        self._messages.put_nowait(message if isinstance(message, dict) else None)

    def on_oversized(self, remains: Oversized) -> None:
        self._messages.put_nowait(None)

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        self._messages.put_nowait(None)

    def on_closed(self, reason: str) -> None:
        self.has_ended = True
        self._messages.put_nowait(None)


class ProgramPool:
    def __init__(self, means: WorkerMeans, environ: Callable[[], dict[str, str]] = lambda: dict(os.environ)) -> None:
        self._means = means
        self._environ = environ
        self._warm: list[Worker] = []
        self._ending: set[asyncio.Future[None]] = set()

    async def take(self, principal: str) -> Worker:
        """A process for one program of this user. Raises `DownstreamError`."""
        for worker in [each for each in self._warm if each.has_ended]:
            # While nobody used it: the system may have needed its memory.
            self.cool_down(worker)
        for worker in self._warm:
            if worker.principal == principal:
                self._warm.remove(worker)
                if worker.idle_timer is not None:
                    worker.idle_timer.cancel()
                return worker
        return await self._start(principal)

    def give_back(self, worker: Worker) -> None:
        """A program has left its process in good order."""
        if len(self._warm) >= MAX_WARM_WORKERS:
            self.end(self._warm.pop(0))
        self._warm.append(worker)
        worker.idle_timer = asyncio.get_running_loop().call_later(WARM_WORKER_LIFETIME, self.cool_down, worker)

    def cool_down(self, worker: Worker | None = None) -> None:
        """End a process that is kept warm, or all of them."""
        for each in [each for each in self._warm if worker in (None, each)]:
            self._warm.remove(each)
            self.end(each)

    def end(self, worker: Worker) -> None:
        """End a process and everything that it started."""
        if worker.idle_timer is not None:
            worker.idle_timer.cancel()
        if worker.link is not None:
            link, worker.link = worker.link, None
            # What it was doing is of no interest any more.
            link.kill()
            ending = asyncio.ensure_future(link.stop())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Wait until nothing is left of any process."""
        self.cool_down()
        await asyncio.gather(*self._ending)

    async def _start(self, principal: str) -> Worker:
        means = self._means
        assert means.batch is not None
        binary = os.path.join(sysconfig.get_path("scripts"), "monty")
        environ = self._environ()
        arguments = ("-m", "mcp_workbench.programs.worker", binary if os.path.exists(binary) else "")
        described = _described(
            {
                **server_environment(environ, (), {}),
                **{name: environ[name] for name in ("PYTHONPATH",) if name in environ},
            },
            own_files(),
        )
        home = environ.get("HOME") or os.path.expanduser("~")
        # Looks at folders, which may be on a disk that hangs.
        enforced = await aside(lambda: enforce(decide(_WORKER_SANDBOX, described, this_machine(home))))
        if not means.processes.is_prepared:
            means.reap_strays_when_they_end()
        worker = Worker(principal)
        worker.link = spawn(
            sys.executable,
            arguments,
            enforced.sandbox.environment,
            enforced.sandbox.folder,
            table=means.processes,
            batch=means.batch,
            receiver=worker,
            limit=MAX_LINE_BYTES,
            launch=enforced.launch,
        )
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await worker.receive()
        except (TimeoutError, WorkerEnded):
            said = "; ".join(worker.link.stderr_lines(3))
            self.end(worker)
            if "pydantic_monty" in said:
                raise DownstreamError(NO_MONTY, hint=NO_INTERPRETER_HINT) from None
            raise DownstreamError(f"the interpreter of programs does not start: {said or 'it says nothing'}") from None
        except asyncio.CancelledError:
            self.end(worker)
            raise
        return worker
