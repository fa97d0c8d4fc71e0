"""Which tools of a server are shown: `toolFilters`. Pure."""

from __future__ import annotations


def is_shown(name: str, filters: tuple[str, ...] | None) -> bool:
    """Exact names and `*` globs include, `!name` excludes, and the last match counts.

    No filters, or `["*"]`, shows everything; an empty list shows nothing; a list with only exclusions shows the rest.
    """
    if filters is None:
        return True
    shown = bool(filters) and all(entry.startswith("!") for entry in filters)
    for entry in filters:
        pattern = entry.removeprefix("!")
        if _matches(name, pattern):
            shown = not entry.startswith("!")
    return shown


def _matches(name: str, pattern: str) -> bool:
    if "*" not in pattern:
        return name == pattern
    from fnmatch import fnmatchcase

    # `*` is the only documented wildcard; fnmatch's others are escaped.
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))
