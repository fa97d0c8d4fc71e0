"""Images on a terminal that can show them, by what the environment says of it. Pure.

Sixel is left out: it takes pixels, and nothing here decodes images. Terminals that have nothing else (foot, xterm)
would have to be asked on the line that the user types on, and waited for.
Conservative: what is not known to work is not tried, because a terminal that does not understand it shows pages of
letters. Inside tmux and screen nothing is shown: they pass such sequences on only if configured to.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final, Literal

Protocol = Literal["kitty", "iterm2"]
# The kitty protocol takes pieces of this size.
_PIECE: Final = 4096
# Larger ones are slow to show, and nobody looks at them in a terminal.
MOST_BYTES: Final = 8 * 1024 * 1024
# VS Code's can as well, but only with a setting that the environment does not tell.
_ITERM2_PROGRAMS: Final = ("iTerm.app", "WezTerm", "mintty")


def protocol_of(environ: Mapping[str, str]) -> Protocol | None:
    """How this terminal shows images, None where it does not, or that cannot be found out."""
    if environ.get("TMUX") or environ.get("STY") or environ.get("TERM", "").startswith(("screen", "tmux", "dumb")):
        return None
    # Over ssh the variables of the terminal are not passed on, but `TERM` is.
    if environ.get("KITTY_WINDOW_ID") or environ.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    return "iterm2" if environ.get("TERM_PROGRAM") in _ITERM2_PROGRAMS else None


def shown(data: bytes, type: str, environ: Mapping[str, str]) -> bytes | None:
    """What to write to the terminal for an image; None where it cannot be shown."""
    protocol = protocol_of(environ)
    if protocol is None or not type.startswith("image/") or len(data) > MOST_BYTES:
        return None
    encoded = base64.b64encode(data)
    if protocol == "iterm2":
        # `inline=1`, or the terminal offers the image as a download.
        return b"\x1b]1337;File=inline=1;size=%d:%b\x07\n" % (len(data), encoded)
    if type != "image/png":
        # The only format that the kitty protocol decodes itself.
        return None
    pieces = [encoded[start : start + _PIECE] for start in range(0, len(encoded), _PIECE)]
    written = []
    for number, piece in enumerate(pieces):
        more = int(number < len(pieces) - 1)
        # `a=T` transmits and shows, `f=100` is PNG, `m=1` says that more pieces follow; only the first has the rest.
        control = b"a=T,f=100,m=%d" % more if number == 0 else b"m=%d" % more
        written.append(b"\x1b_G%b;%b\x1b\\" % (control, piece))
    return b"".join(written) + b"\n"
