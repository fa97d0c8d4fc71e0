"""Images for terminals that can show them, according to the environment. Pure.

Sixel is not supported: it needs pixels, and nothing here decodes images. Terminals with nothing else (foot, xterm)
would have to be queried on the line that the user types on, and waited for. Conservative: only what is known to work is
used, because a terminal without support shows pages of letters. Inside tmux and screen nothing is shown: they pass such
sequences on only if configured to.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final, Literal

Protocol = Literal["kitty", "iterm2"]
# The kitty protocol transmits chunks of this size.
_PIECE: Final = 4096
# Larger images are slow, and not what people look at in a terminal.
MAX_IMAGE_BYTES: Final = 8 * 1024 * 1024
# VS Code's terminal can too, but only with a setting that the environment does not reveal.
_ITERM2_PROGRAMS: Final = ("iTerm.app", "WezTerm", "mintty")


def protocol_of(environ: Mapping[str, str]) -> Protocol | None:
    """Return the image protocol of this terminal; None if it has none or it is unknown."""
    if environ.get("TMUX") or environ.get("STY") or environ.get("TERM", "").startswith(("screen", "tmux", "dumb")):
        return None
    # Over ssh the terminal's variables are not passed on, but `TERM` is.
    if environ.get("KITTY_WINDOW_ID") or environ.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    return "iterm2" if environ.get("TERM_PROGRAM") in _ITERM2_PROGRAMS else None


def shown(data: bytes, type: str, environ: Mapping[str, str]) -> bytes | None:
    """Return what to write to the terminal for an image; None if it cannot be shown."""
    protocol = protocol_of(environ)
    if protocol is None or not type.startswith("image/") or len(data) > MAX_IMAGE_BYTES:
        return None
    encoded = base64.b64encode(data)
    if protocol == "iterm2":
        # Without `inline=1`, the terminal offers the image as a download.
        return b"\x1b]1337;File=inline=1;size=%d:%b\x07\n" % (len(data), encoded)
    if type != "image/png":
        # The only format that the kitty protocol decodes itself.
        return None
    pieces = [encoded[start : start + _PIECE] for start in range(0, len(encoded), _PIECE)]
    written = []
    for number, piece in enumerate(pieces):
        more = int(number < len(pieces) - 1)
        # `a=T` transmits and shows, `f=100` is PNG, `m=1` means that more chunks follow; only the first has the other
        # keys.
        control = b"a=T,f=100,m=%d" % more if number == 0 else b"m=%d" % more
        written.append(b"\x1b_G%b;%b\x1b\\" % (control, piece))
    return b"".join(written) + b"\n"
