"""`mcp-workbench up`: start the shared workbench, which `serve` joins from then on."""

from __future__ import annotations

import logging
import os
import signal
import socket
from typing import Final

from mcp_workbench.cli.error_output import FAILED, complain, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.front.commanding import ask
from mcp_workbench.front.joining import HANDED_OVER, CannotJoin, NotRunning, listen, log_path, take_lock
from mcp_workbench.front.line_protocol import PING
from mcp_workbench.process_context import WANTED, make_private, runtime_folder

# `EX_TEMPFAIL` of sysexits.h: another one is to take our place, so a service manager starts us again. After `down`,
# which ends with 0, it does not.
REPLACED: Final = 75


def run(parsed: Parsed) -> int:
    if parsed.has("print-service"):
        from mcp_workbench.cli.service import service_text

        print(service_text(), end="")
        return 0
    if parsed.has("foreground"):
        return _be_it()
    try:
        want_it()
        try:
            print(f"The shared workbench is running already (process {ask(PING)}).")
        except NotRunning:
            print(f"The shared workbench is running (process {start_it()}).")
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED)
    return 0


def want_it() -> None:
    """From now on `serve` joins it, and starts it where it is not running. Raises `CannotJoin`."""
    folder = runtime_folder()
    try:
        make_private(folder)
        with open(os.path.join(folder, WANTED), "wb"):
            pass
    except OSError as error:
        raise CannotJoin(f"`{folder}` cannot be used for sockets: {error.strerror or error}") from None


def unwant_it() -> None:
    """From now on everybody serves alone, unless their file says otherwise. Raises `CannotJoin`."""
    path = os.path.join(runtime_folder(), WANTED)
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CannotJoin(f"`{path}` cannot be removed: {error.strerror}") from None


def _is_wanted() -> bool:
    return os.path.lexists(os.path.join(runtime_folder(), WANTED))


def start_it() -> int:
    """Have it running; its process id. Raises `CannotJoin`."""
    return int(ask(PING, may_start=True))


def _be_it() -> int:
    from mcp_workbench.cli.serving_context import context_of
    from mcp_workbench.config.redact import Redactor
    from mcp_workbench.observe.log import set_up
    from mcp_workbench.observe.rotated_log import RotatedLog
    from mcp_workbench.run import run as run_loop
    from mcp_workbench.session.questions import number_questions_elsewhere
    from mcp_workbench.shared.workbench import SharedWorkbench

    # Clients of an earlier one are taken over.
    number_questions_elsewhere()
    # Started by a front end it gets socket and lock with it; started by hand or by a service manager it has somebody
    # who watches it.
    stays = HANDED_OVER not in os.environ
    try:
        listener, lock = _descriptors()
    except (CannotJoin, OSError) as error:
        return complain(f"the shared workbench cannot be started: {error}", status=FAILED)
    if listener is None or lock is None:
        remark("note", "the shared workbench was stopped by `mcp-workbench down`")
        return 0
    redactor = Redactor(frozenset())
    stream = None if stays else RotatedLog(log_path())
    set_up(debug=False, file=None, format="text", redactor=redactor, stream=stream)
    # What servers write to stderr is asked for with `logs SERVER`.
    logging.getLogger("mcp_workbench.server_links").setLevel(logging.DEBUG)

    is_replaced = False

    async def serve() -> None:
        nonlocal is_replaced
        workbench = SharedWorkbench(listener, context_of, redactor, stays=stays)
        await workbench.run()
        is_replaced = workbench.is_replaced

    try:
        run_loop(serve())
    finally:
        if stays and not is_replaced:
            unwant_it()
        os.close(lock)
    return REPLACED if stays and is_replaced else 0


def _descriptors() -> tuple[socket.socket | None, int | None]:
    """The socket and the lock: those that we were handed, or our own. None where we waited for another one to end, and
    it was taken down."""
    handed = os.environ.pop(HANDED_OVER, "")
    if handed:
        listener, _, lock = handed.partition(",")
        for descriptor in (int(listener), int(lock)):
            # They were inherited on purpose; servers must not get them.
            os.set_inheritable(descriptor, False)
        return socket.socket(fileno=int(listener)), int(lock)
    folder = runtime_folder()
    make_private(folder)
    taken = take_lock(folder)
    if taken is None:
        was_wanted = _is_wanted()
        taken = _wait_for_lock(folder)
        if was_wanted and not _is_wanted():
            os.close(taken)
            return None, None
    want_it()
    return socket.socket(fileno=listen(folder).detach()), taken


def _wait_for_lock(folder: str) -> int:
    """The lock, as soon as nobody else has it.

    Front ends start a workbench as soon as ours has died, before a service manager starts ours again: to fail then
    would have it give up. A signal ends the wait, but for the one that service managers send to have files read again.
    """
    if not os.isatty(0):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    remark("note", "a shared workbench is running already; taking its place when it ends")
    while True:
        make_private(folder)
        lock = take_lock(folder, waits=True)
        if lock is not None:
            return lock
