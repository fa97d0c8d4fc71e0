"""`WWW-Authenticate` as servers really write it. Pure.

RFC 9110 defines one grammar, and servers use several: unquoted values, repeated parameters, no space after a comma, two
challenges in one header, or no challenge at all. None of these should prevent a sign-in.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

# Names are matched only at a word boundary and the quantifiers are possessive, so matching takes linear time.
_PARAMETER: Final = re.compile(
    r'(?<![A-Za-z0-9_-])([A-Za-z][A-Za-z0-9_-]*+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))'
)
_QUOTED_PAIR: Final = re.compile(r"\\(.)")
# Longer headers are not challenges; parsing stays bounded.
MAX_CHALLENGE_BYTES: Final = 8 * 1024


class Challenge(Struct, frozen=True):
    """The parts of a server's challenge that matter for signing in."""

    resource_metadata: str | None = None
    scope: tuple[str, ...] = ()
    # Whether the server said anything, and whether it wants tokens with proof of possession (RFC 9449, section 7.1).
    is_known: bool = False
    is_dpop: bool = False


def parse(header: str) -> Challenge:
    """Read the parameters we know. Of a repeated one, the first counts."""
    found: dict[str, str] = {}
    for name, quoted, bare in _PARAMETER.findall(header[:MAX_CHALLENGE_BYTES]):
        found.setdefault(name.lower(), _QUOTED_PAIR.sub(r"\1", quoted) if quoted else bare)
    return Challenge(
        resource_metadata=found.get("resource_metadata"),
        scope=tuple(found.get("scope", "").split()),
        is_known=bool(header),
        is_dpop="dpop" in _PARAMETER.sub(" ", header[:MAX_CHALLENGE_BYTES]).lower().replace(",", " ").split(),
    )
