"""Who uses the page: one-time codes, sessions and their cookies. In memory alone, so that all end with the process."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

# A code is opened by the command that asked for it, at once.
CODE_SECONDS: Final = 60.0
SESSION_SECONDS: Final = 12 * 3600.0
_RANDOM_BYTES: Final = 32
# More than a person opens, in all browsers; the oldest are dropped.
MAX_CODES: Final = 16
MAX_SESSIONS: Final = 64
COOKIE: Final = "wb_page"


class PageUser(Struct, frozen=True):
    """Who looks at the page."""

    principal: str
    # Our own user, who sees everything and may act.
    is_owner: bool
    # Who it is, for the audit and for whoever decides second.
    name: str
    # Whether it is certainly a person and no server: only then may it approve.
    may_decide: bool = True


class PageSession(Struct, frozen=True):
    """One browser that has signed in."""

    user: PageUser
    csrf: str
    expires: float


class PageSignIns:
    """All codes and sessions of one page."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._codes: OrderedDict[str, tuple[float, PageUser]] = OrderedDict()
        self._sessions: OrderedDict[str, PageSession] = OrderedDict()

    def new_code(self, user: PageUser) -> str:
        """A code that signs this user in, once and soon."""
        code = secrets.token_urlsafe(_RANDOM_BYTES)
        self._codes[code] = (self._now() + CODE_SECONDS, user)
        if len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    def use_code(self, given: str) -> PageUser | None:
        """Whom this code signs in. It is used up by this."""
        # Compared in constant time with each: there are a few at most.
        found = [code for code in self._codes if hmac.compare_digest(code.encode(), given.encode())]
        expires, user = self._codes.pop(found[0]) if found else (0.0, None)
        return user if user is not None and expires > self._now() else None

    def begin(self, user: PageUser) -> str:
        """Begin a session. Returns what its cookie holds."""
        id = secrets.token_urlsafe(_RANDOM_BYTES)
        csrf = secrets.token_urlsafe(_RANDOM_BYTES)
        self._sessions[id] = PageSession(user, csrf, self._now() + SESSION_SECONDS)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return id

    def find(self, id: str) -> PageSession | None:
        session = self._sessions.get(id)
        if session is not None and session.expires <= self._now():
            del self._sessions[id]
            return None
        return session

    def end(self, id: str) -> None:
        self._sessions.pop(id, None)

    def end_those_of(self, principals: frozenset[str]) -> None:
        """These may no longer call, so they may not look either."""
        for id in [id for id, each in self._sessions.items() if each.user.principal in principals]:
            del self._sessions[id]


def cookie_name(host: str, *, is_tls: bool) -> str:
    """Browsers send a cookie to every port of a host: with its port in the name, two workbenches keep theirs apart."""
    port = host.rpartition(":")[2] if not host.endswith("]") else ""
    name = f"{COOKIE}_{port}" if port.isdecimal() else COOKIE
    return f"__Host-{name}" if is_tls else name


def cookie_header(name: str, id: str, *, is_tls: bool) -> bytes:
    """The `Set-Cookie` of a session; without an id, one that ends it."""
    age = int(SESSION_SECONDS) if id else 0
    secure = "; Secure" if is_tls else ""
    return f"set-cookie: {name}={id}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}\r\n".encode("latin-1")


def cookie_in(header: str | None, name: str) -> str:
    """The value of a cookie; empty if it is missing, or given twice."""
    pairs = (pair.strip().partition("=") for pair in (header or "").split(";"))
    found = [value for key, _, value in pairs if key == name]
    return found[0] if len(found) == 1 else ""
