"""`mcp-workbench up`: start the shared workbench, which `serve` joins from then on."""

from __future__ import annotations

import logging
import os
import signal
import socket
from typing import Final

from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.process_context import WANTED_FILE, make_private, runtime_folder
from mcp_workbench.sharing.front.commanding import ask
from mcp_workbench.sharing.front.joining import (
    HANDED_OVER,
    SOCKET_BACKLOG,
    CannotJoin,
    NotRunning,
    listen,
    log_path,
    sign_lock,
    take_lock,
)
from mcp_workbench.sharing.front.line_protocol import KEEP, PING, written_hello

# `EX_TEMPFAIL` of sysexits.h: another workbench replaces us, so a service manager starts us again. It does not after
# `down`, which exits with 0.
REPLACED: Final = 75


def run(parsed: Parsed) -> int:
    if parsed.has("print-service"):
        from mcp_workbench.setup.service import service_text

        print(service_text(), end="")
        return 0
    if parsed.has("foreground"):
        return _be_it()
    try:
        enable_sharing()
        try:
            print(f"The shared workbench is running already (process {ask(PING)}).")
        except NotRunning:
            print(f"The shared workbench is running (process {start_shared()}).", flush=True)
        return load_own()
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED_STATUS)


def load_own() -> int:
    """Make it read the user's own configuration now, instead of with the first client. Returns the exit status. Raises
    `CannotJoin`."""
    from msgspec.json import decode

    from mcp_workbench.engine.config.choose import CONFIG_VARIABLE, own_file

    problems = decode(ask(KEEP).encode(), type=list[str])
    # Before `init` there is nothing to read.
    if not problems or (own_file() is None and not os.environ.get(CONFIG_VARIABLE)):
        return 0
    return complain(
        problems[0],
        "correct the file: the shared workbench runs, and reads it again when it changes",
        status=FAILED_STATUS,
    )


def enable_sharing() -> None:
    """Make `serve` join it from now on, and start it if it is not running. Raises `CannotJoin`."""
    folder = runtime_folder()
    try:
        make_private(folder)
        with open(os.path.join(folder, WANTED_FILE), "wb"):
            pass
    except OSError as error:
        raise CannotJoin(f"`{folder}` cannot be used for sockets: {error.strerror or error}") from None


def disable_sharing() -> None:
    """Make `serve` work without it from now on, unless the configuration says differently. Raises `CannotJoin`."""
    path = os.path.join(runtime_folder(), WANTED_FILE)
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CannotJoin(f"`{path}` cannot be removed: {error.strerror}") from None


def _is_wanted() -> bool:
    return os.path.lexists(os.path.join(runtime_folder(), WANTED_FILE))


def start_shared() -> int:
    """Start it if it is not running. Returns its process id. Raises `CannotJoin`."""
    return int(ask(PING, may_start=True))


def _be_it() -> int:
    from mcp_workbench.cli.serving_context import Contexts
    from mcp_workbench.engine.config.redact import Redactor
    from mcp_workbench.engine.observe.log import set_up
    from mcp_workbench.engine.observe.rotated_log import RotatedLog
    from mcp_workbench.engine.run import run as run_loop
    from mcp_workbench.engine.session.questions import number_questions_elsewhere
    from mcp_workbench.engine.transport.open_files import raise_limit
    from mcp_workbench.sharing.hello import read_hello
    from mcp_workbench.sharing.workbench import SharedWorkbench

    # Clients of a previous workbench are taken over.
    number_questions_elsewhere()
    # A front end that starts it hands over socket and lock; without those, a user or a service manager started it and
    # watches it.
    stays = HANDED_OVER not in os.environ
    try:
        listener, lock = _descriptors()
    except (CannotJoin, OSError) as error:
        return complain(f"the shared workbench cannot be started: {error}", status=FAILED_STATUS)
    if listener is None or lock is None:
        remark("note", "the shared workbench was stopped by `mcp-workbench up --stop`")
        return 0
    sign_lock(lock)
    redactor = Redactor(frozenset())
    stream = None if stays else RotatedLog(log_path())
    set_up(debug=False, file=None, format="text", redactor=redactor, stream=stream)
    # Servers' stderr is shown by `logs SERVER`.
    logging.getLogger("mcp_workbench.app.server_links").setLevel(logging.DEBUG)

    is_replaced = False
    raise_limit()

    async def serve() -> None:
        nonlocal is_replaced
        # Otherwise `up` or a client says whose configuration to read.
        kept = read_hello(written_hello(())) if stays else None
        workbench = SharedWorkbench(listener, Contexts().of, redactor, stays=stays, lock=lock, kept=kept)
        await workbench.run()
        is_replaced = workbench.is_replaced

    try:
        run_loop(serve())
    finally:
        if stays and not is_replaced:
            # As with `down`: otherwise the next client would start another one.
            disable_sharing()
        os.close(lock)
    return REPLACED if stays and is_replaced else 0


def _descriptors() -> tuple[socket.socket | None, int | None]:
    """Return the socket and the lock, which were handed over or are our own. None if we waited for another workbench
    and it was shut down with `down`."""
    handed = os.environ.pop(HANDED_OVER, "")
    if handed:
        listener, _, lock = handed.partition(",")
        for descriptor in (int(listener), int(lock)):
            # They were inherited on purpose; servers must not inherit them.
            os.set_inheritable(descriptor, False)
        found = socket.socket(fileno=int(listener))
        # Once more: clients check the process that listened last, and the one that started us may end.
        found.listen(SOCKET_BACKLOG)
        return found, int(lock)
    folder = runtime_folder()
    make_private(folder)
    taken = take_lock(folder)
    if taken is None:
        was_wanted = _is_wanted()
        taken = _wait_for_lock(folder)
        if was_wanted and not _is_wanted():
            os.close(taken)
            return None, None
    enable_sharing()
    return socket.socket(fileno=listen(folder).detach()), taken


def _wait_for_lock(folder: str) -> int:
    """Wait for the lock and return it.

    Front ends start a workbench as soon as ours has died, before the service manager restarts ours, which would stop
    trying if we failed then. Signals end the wait, except the one that service managers send for reloading files.
    """
    if not os.isatty(0):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    remark("note", "a shared workbench is running already; taking its place when it ends")
    while True:
        make_private(folder)
        lock = take_lock(folder, waits=True)
        if lock is not None:
            return lock
