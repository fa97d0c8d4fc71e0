"""The protocol between a front end and the shared workbench: the single definition for both sides.

A connection begins with a line of JSON, the hello (`sharing.hello` reads it). The workbench answers with a control
line: `CONTROL`, a verb and, after a space, its value. After `ACCEPTED`, the messages of the client are copied in both
directions, and control lines may come between them.

A front end of one version may connect to a workbench of another, because an update leaves running processes alone: a
front end ignores verbs that it does not know, and changes that an older side could not follow raise `PROTOCOL`.
"""

from __future__ import annotations

import os
from _json import encode_basestring_ascii as quoted
from time import monotonic

from mcp_workbench.engine.version import full_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

PROTOCOL: Final = 1
# When this process was started: a later one may run a later commit.
STARTED: Final = monotonic()
# A line that starts with this is not a message: outside of strings, JSON has no control characters except white space.
CONTROL: Final = b"\x01"

# Commands that a hello may carry instead of a client; the answer begins with the same word, or is `ENDING_NOW`. `KEEP`
# has the user's own configuration ready without clients; `BORROW` is a client that is one of our commands.
PING: Final = "ping"
RELOAD: Final = "reload"
KEEP: Final = "keep"
DOWN: Final = "down"
RESTART: Final = "restart"
BORROW: Final = "borrow"

# Answers to a hello: accepted, with version and process; serve alone silently; serve alone and report why; connect
# again, because this workbench is ending; the process and the number of its clients, for a command that ends it.
ACCEPTED: Final = "accepted"
ALONE: Final = "alone"
UNABLE: Final = "unable"
AGAIN: Final = "again"
ENDING_NOW: Final = "ending"

# Later, to the front end: text for its stderr; the state with which another workbench takes the client over; the id of
# a long-lasting request; others go first; the answer to a ping; what to do when the connection ends.
NOTE: Final = b"note"
RESUME: Final = b"resume"
LASTING: Final = b"lasting"
OTHERS_FIRST: Final = b"held"
PONG: Final = b"pong"
BYE: Final = b"bye"
COME_AGAIN: Final = BYE + b" again"
SERVE_ALONE: Final = BYE + b" down"
# And the only one from the front end: a ping.
PING_LINE: Final = CONTROL + b"ping\n"


def written_hello(arguments: Sequence[str], resume: bytes = b"", command: str = "") -> bytes:
    """Return the first line of a connection: who connects, from where, with what. Its first member is the same in all
    versions."""
    try:
        folder = os.getcwd()
    except OSError:
        # It has been removed. Paths must be resolved from a folder that exists.
        folder = "/"
    environ = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in os.environ.items())
    return (
        (
            f'{{"hello":{PROTOCOL},"version":{quoted(full_version())},"pid":{os.getpid()},"started":{STARTED!r},'
            f'"command":{quoted(command)},'
            f'"arguments":[{",".join(map(quoted, arguments))}],"folder":{quoted(folder)},"environ":{{{environ}}},'
            f'"resume":'
        ).encode()
        + (resume or b"null")
        + b"}\n"
    )
