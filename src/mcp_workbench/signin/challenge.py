"""`WWW-Authenticate` as servers really write it. Pure.

RFC 9110 has one grammar and servers have several: values without quotes, the same parameter twice, no space after a
comma, two challenges in one header, or no challenge at all. None of that is a reason not to sign in.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

# A name is tried where it begins and nowhere inside, and nothing is tried again shorter: the work stays linear.
_PARAMETER: Final = re.compile(
    r'(?<![A-Za-z0-9_-])([A-Za-z][A-Za-z0-9_-]*+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))'
)
_ESCAPED: Final = re.compile(r"\\(.)")
# A header beyond this is no challenge; what is looked at stays bounded.
MOST_OF_CHALLENGE: Final = 8 * 1024


class Challenge(Struct, frozen=True):
    """What a server said when it refused us, as far as it matters for signing in."""

    resource_metadata: str | None = None
    scope: tuple[str, ...] = ()


def parse(header: str) -> Challenge:
    """Every parameter that we know, each as it was first given."""
    found: dict[str, str] = {}
    for name, quoted, bare in _PARAMETER.findall(header[:MOST_OF_CHALLENGE]):
        found.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if quoted else bare)
    return Challenge(
        resource_metadata=found.get("resource_metadata"),
        scope=tuple(found.get("scope", "").split()),
    )
