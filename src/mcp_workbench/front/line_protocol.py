"""What a front end and the shared workbench say to each other: the one place where both find how it is written.

A connection begins with a line of JSON, the hello (`shared.hello` reads it). The workbench answers with a control line:
`CONTROL`, a verb and, after a space, its value. Once it has said `ACCEPTED` the messages of the client are copied in
both directions, and control lines may stand between them.

A front end of one version may meet a workbench of another, because an update leaves running processes alone: a front
end ignores verbs that it does not know, and what an older end could not follow raises `PROTOCOL`.
"""

from __future__ import annotations

import os
from _json import encode_basestring_ascii as quoted

from mcp_workbench import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

PROTOCOL: Final = 1
# A line that starts with this is no message: JSON has no control characters outside of strings but white space.
CONTROL: Final = b"\x01"

# Commands that a hello may bring instead of a client; the answer begins with the same word, or is `ENDING`. `BORROW`
# is a client that is a command of ours.
PING: Final = "ping"
RELOAD: Final = "reload"
DOWN: Final = "down"
RESTART: Final = "restart"
BORROW: Final = "borrow"

# Answers to a hello: with version and process; serve alone, without a word; serve alone, and say why; connect again,
# because this one is ending; with the process and the number of its clients, to a command that ends it.
ACCEPTED: Final = "accepted"
ALONE: Final = "alone"
UNABLE: Final = "unable"
AGAIN: Final = "again"
ENDING: Final = "ending"

# Later, to the front end: something for its stderr; the value with which another workbench takes the client over; the
# id of a request that lasts; others go first; the answer to a ping; what to do when the connection ends.
NOTE: Final = b"note"
RESUME: Final = b"resume"
LASTING: Final = b"lasting"
HELD: Final = b"held"
PONG: Final = b"pong"
BYE: Final = b"bye"
COME_AGAIN: Final = BYE + b" again"
SERVE_ALONE: Final = BYE + b" down"
# And from it, the only one: whether somebody is there.
PING_LINE: Final = CONTROL + b"ping\n"


def written_hello(arguments: Sequence[str], resume: bytes = b"", command: str = "") -> bytes:
    """The first line of a connection: who comes, from where, with what. All versions write the first member alike."""
    try:
        folder = os.getcwd()
    except OSError:
        # It was removed. Paths are resolved from somewhere that exists.
        folder = "/"
    environ = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in os.environ.items())
    return (
        (
            f'{{"hello":{PROTOCOL},"version":{quoted(__version__)},"pid":{os.getpid()},"command":{quoted(command)},'
            f'"arguments":[{",".join(map(quoted, arguments))}],"folder":{quoted(folder)},"environ":{{{environ}}},'
            f'"resume":'
        ).encode()
        + (resume or b"null")
        + b"}\n"
    )
