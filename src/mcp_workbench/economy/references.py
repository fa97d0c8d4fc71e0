"""Following `$ref` inside one schema.

Owns JSON Pointer lookup for references that stay in the document. Refuses to fetch: anything that points elsewhere is
not resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

_MOST_HOPS = 16


def resolve(root: Mapping[str, object], reference: object) -> Mapping[str, object] | None:
    """The schema a local reference ends at, through further references; None where there is none or no end."""
    for _ in range(_MOST_HOPS):
        target = point(root, reference)
        if not isinstance(target, dict):
            return None
        if "$ref" not in target:
            return target
        reference = target["$ref"]
    return None


def point(root: object, reference: object) -> object:
    """What `#` or `#/a/b` points at in `root`, or None. Anchors and other documents are not looked for."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found = root
    for step in reference[2:].split("/"):
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and key.isascii() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            return None
    return found
