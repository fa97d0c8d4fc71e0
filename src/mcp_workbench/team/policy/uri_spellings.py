"""Other spellings of a resource's URI that a server may consider the same. Pure.

What a rule denies is denied in every spelling; so this errs on the side of too many. Follows RFC 3986, section 6, and
what the URL parsers of servers do beyond it (WHATWG: tabs and line breaks are dropped, a backslash is a slash,
`file:/x` is `file:///x`). Knows nothing about rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal
from urllib.parse import unquote

# How often a URI may be percent-encoded repeatedly. Servers decode once; gateways before them may do so too. More is
# only used to circumvent a rule.
MAX_PERCENT_ENCODINGS: Final = 4
# Longer texts are compared without Unicode normalisation, which takes quadratic time for combining marks. Whatever only
# makes a URI longer has been removed by then.
MAX_NORMALISED_LENGTH: Final = 1000
# URIs without another spelling: most in lists, which are judged by the thousand.
_PLAIN_URI: Final = re.compile(
    r"(?!file://[^/])[a-z][a-z0-9+.-]*://(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)?"
    r"(?:/[A-Za-z0-9_~!$&'()*+,;=:@-][^/%#?\\\x00-\x20\x7f-\U0010ffff]*)*"
)
_URI_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
_TAIL: Final = re.compile(r"[?#]")
_PORT: Final = re.compile(r":([0-9]*)$")
_SLASHES: Final = re.compile(r"//+")
_DEFAULT_PORT_TEXTS: Final = {"http": "80", "https": "443", "ws": "80", "wss": "443"}
# Dropped everywhere, and stripped at both ends, as in browsers.
_DROPPED_CHARACTERS: Final = {ord(each): None for each in "\t\r\n"}
_AROUND: Final = "".join(map(chr, range(0x21)))


def is_encoded_too_often(uri: str) -> bool:
    for _ in range(MAX_PERCENT_ENCODINGS):
        uri = unquote(uri)
    return unquote(uri) != uri


def other_spellings(uri: str) -> Iterator[str]:
    """The spellings that are judged in addition to the URI as written, each once."""
    if _PLAIN_URI.fullmatch(uri):
        return
    seen = {uri}
    for _ in range(MAX_PERCENT_ENCODINGS + 1):
        same = normalised(uri)
        for each in (uri, same, bare(same), bare(_as_one_path(uri))):
            if each not in seen:
                seen.add(each)
                yield each
        decoded = unquote(uri)
        if decoded == uri:
            return
        uri = decoded


def normalised(uri: str) -> str:
    """The same URI with scheme and host in lower case, and without `.` and `..` in its path."""
    scheme, rest = _cut_scheme(_cleaned(uri))
    rest, tail = _cut_tail(rest)
    authority, path = _cut_authority(rest)
    if authority is not None:
        authority = _host(authority, scheme)
    if scheme == "file" and path.startswith("/") and authority in (None, "localhost"):
        authority = ""
    if path.startswith("/"):
        path = "/" + _resolved(path[1:])
    return _composed(f"{_before(scheme)}{'' if authority is None else '//' + authority}{path}{tail}")


def bare(uri: str) -> str:
    """The part that many servers use alone: without query, fragment and user, without doubled or trailing slashes."""
    scheme, rest = _cut_scheme(uri)
    authority, path = _cut_authority(_cut_tail(rest)[0])
    place = "" if authority is None else "//" + authority.rpartition("@")[2]
    return _composed(_before(scheme) + place + _SLASHES.sub("/", path).rstrip("/"))


def globs_of_same(glob: str) -> set[str]:
    """Other spellings of a glob for URIs, so that a rule may be written in any."""
    found = {normalised(glob)}
    decoded = unquote(glob)
    # An encoded `*` or `?` is not a wildcard.
    if all(glob.count(each) == decoded.count(each) for each in "*?"):
        found |= {decoded, normalised(decoded)}
    return found - {glob}


def bare_globs(glob: str) -> set[str]:
    """Globs for the `bare` form of URIs that match this glob."""
    return {bare(each) for each in (glob, glob.removesuffix("/*"))} - {glob}


def _cleaned(uri: str) -> str:
    return uri.strip(_AROUND).translate(_DROPPED_CHARACTERS).replace("\\", "/")


def _composed(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """The text in Unicode normal form, unless it is too long."""
    if text.isascii() or len(text) > MAX_NORMALISED_LENGTH:
        return text
    from unicodedata import normalize

    return normalize(form, text)


def _as_one_path(uri: str) -> str:
    """The URI read as if everything after the scheme were a path: `note://public/../secret`."""
    scheme, rest = _cut_scheme(_cleaned(uri))
    rest, tail = _cut_tail(rest)
    if not rest.startswith("//"):
        return normalised(uri)
    return f"{_before(scheme)}//{_resolved(rest[2:])}{tail}"


def _before(scheme: str) -> str:
    return f"{scheme}:" if scheme else ""


def _cut_scheme(uri: str) -> tuple[str, str]:
    found = _URI_SCHEME.match(uri)
    return ("", uri) if found is None else (found[0].lower(), uri[found.end() + 1 :])


def _cut_tail(rest: str) -> tuple[str, str]:
    """The part before the query or fragment, and the rest."""
    found = _TAIL.search(rest)
    return (rest, "") if found is None else (rest[: found.start()], rest[found.start() :])


def _cut_authority(rest: str) -> tuple[str | None, str]:
    if not rest.startswith("//"):
        return None, rest
    authority, slash, path = rest[2:].partition("/")
    return authority, slash + path


def _host(authority: str, scheme: str) -> str:
    user, at, place = authority.rpartition("@")
    # Names are resolved in this form: fullwidth letters are letters.
    place = _composed(place, "NFKC").lower()
    port = _PORT.search(place)
    if port is None:
        return f"{user}{at}{place.rstrip('.')}"
    host = place[: port.start()].rstrip(".")
    return f"{user}{at}{host}" + ("" if port[1] in ("", _DEFAULT_PORT_TEXTS.get(scheme)) else port[0])


def _resolved(path: str) -> str:
    """The path without dot segments (RFC 3986, 5.2.4)."""
    if "." not in path:
        return path
    found: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            if found:
                found.pop()
        elif segment != ".":
            found.append(segment)
    if segments[-1] in (".", "..") and found:
        found.append("")
    return "/".join(found)
