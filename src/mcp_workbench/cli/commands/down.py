"""`mcp-workbench up --stop`: stop the shared workbench."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Final

from mcp_workbench.cli.commands.up import disable_sharing
from mcp_workbench.cli.error_output import FAILED_STATUS, complain
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.engine.observe.status_socket import running_workbenches
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.sharing.front.commanding import Ended, end
from mcp_workbench.sharing.front.joining import WORKBENCH_END_TIMEOUT, CannotJoin, NotRunning
from mcp_workbench.sharing.front.line_protocol import DOWN

# Between checks on a workbench that is ending.
_PAUSE: Final = 0.05


def run(parsed: Parsed) -> int:
    try:
        # First, or else a client that starts in the meantime would start it again.
        disable_sharing()
        # As would the clients of one that was restarted, once it has finished their calls.
        ended = _hurry_ending()
        hurried = {each.pid for each in ended}
        with suppress(NotRunning):
            ended.append(end(DOWN))
        if hurried:
            _wait_for(hurried)
    except CannotJoin as reason:
        return complain(str(reason), status=FAILED_STATUS)
    for each in ended:
        print(f"The shared workbench (process {each.pid}) has ended.{each.about_clients()}")
    if not ended:
        print("No shared workbench is running.")
    return 0


def _hurry_ending() -> list[Ended]:
    """Have those that finish calls after a restart end now. Returns them."""
    ending = [each for each in run_loop(running_workbenches()) if each.get("serving") == "ending"]
    for each in ending:
        with suppress(OSError):
            os.kill(each["pid"], signal.SIGTERM)
    return [Ended(each["pid"], len(each.get("clients") or ())) for each in ending]


def _wait_for(pids: set[int]) -> None:
    """Raises `CannotJoin`."""
    deadline = time.monotonic() + WORKBENCH_END_TIMEOUT
    while left := pids.intersection(each["pid"] for each in run_loop(running_workbenches())):
        if time.monotonic() > deadline:
            raise CannotJoin(
                f"the shared workbench (process {min(left)}) did not end within {WORKBENCH_END_TIMEOUT:.0f} s"
            )
        time.sleep(_PAUSE)
