"""Who uses the page: one-time codes, sessions and their cookies. In memory alone, so that all end with the process."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextvars import copy_context
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench.engine.transport.http.server.authentication import (
    UNAVAILABLE,
    Authentication,
    AuthenticationChallenge,
)

# A code is opened by the command that asked for it, at once.
SIGN_IN_CODE_LIFETIME: Final = 60.0
PAGE_SESSION_LIFETIME: Final = 12 * 3600.0
_RANDOM_BYTES: Final = 32
# More than a person opens, in all browsers; the oldest are dropped.
MAX_CODES: Final = 16
# So that nobody drops the sessions of others by signing in again and again.
MAX_SESSIONS_OF_ONE: Final = 16
MAX_SESSIONS: Final = 1024
# How often the key or token of a session is checked again while it is used: it may expire.
CHECK_INTERVAL: Final = 5.0
COOKIE: Final = "wb_page"


class PageUser(Struct, frozen=True):
    """Who looks at the page."""

    principal: str
    # Who sees everything and may act: our own user, and the holder of the token.
    is_owner: bool
    # Who it is, for the audit and for whoever decides second.
    name: str
    # Whether it is certainly a person and no server: only then may it approve.
    may_decide: bool = True
    # What its key or token proves besides the principal, by which rules decide; None if nothing. Its type is theirs.
    identity: object = None

    def may_see(self, principal: str) -> bool:
        """Whether calls of this principal are shown."""
        return self.is_owner or principal == self.principal


# Whose key or token it is now, after telling what it proves.
Check = Callable[[Callable[[object], None]], "Authentication | asyncio.Future[Authentication]"]


class PageSession(Struct, eq=False):
    """One browser that has signed in."""

    user: PageUser
    # What each request must carry besides the cookie, and whether the page has been given it.
    csrf: str
    expires: float
    # None if no key or token began it.
    check: Check | None = None
    checked: float = 0.0
    is_key_given: bool = False

    def prove(self, identity: object) -> None:
        """Groups change: what is shown follows."""
        if identity is not None and identity != self.user.identity:
            self.user = replace(self.user, identity=identity)


class PageSignIns:
    """All codes and sessions of one page."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._codes: OrderedDict[str, tuple[float, PageUser]] = OrderedDict()
        self._sessions: OrderedDict[str, PageSession] = OrderedDict()

    def new_code(self, user: PageUser) -> str:
        """A code that signs this user in, once and soon."""
        code = secrets.token_urlsafe(_RANDOM_BYTES)
        self._codes[code] = (self._now() + SIGN_IN_CODE_LIFETIME, user)
        if len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    def use_code(self, given: str) -> PageUser | None:
        """Whom this code signs in. It is used up by this."""
        # Compared in constant time with each: there are a few at most.
        found = [code for code in self._codes if hmac.compare_digest(code.encode(), given.encode())]
        expires, user = self._codes.pop(found[0]) if found else (0.0, None)
        return user if user is not None and expires > self._now() else None

    def begin(self, user: PageUser, check: Check | None = None) -> str:
        """Begin a session. Returns what its cookie holds."""
        own = [id for id, each in self._sessions.items() if each.user.principal == user.principal]
        if len(own) >= MAX_SESSIONS_OF_ONE:
            del self._sessions[own[0]]
        elif len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        id = secrets.token_urlsafe(_RANDOM_BYTES)
        csrf = secrets.token_urlsafe(_RANDOM_BYTES)
        now = self._now()
        self._sessions[id] = PageSession(user, csrf, now + PAGE_SESSION_LIFETIME, check, now)
        return id

    def find(self, id: str) -> PageSession | None:
        session, now = self._sessions.get(id), self._now()
        if session is None:
            return None
        if session.expires <= now:
            del self._sessions[id]
        elif session.check is not None and now - session.checked >= CHECK_INTERVAL:
            session.checked = now
            # What it proves is of this check alone, not of what else is done here.
            found = copy_context().run(session.check, session.prove)
            if isinstance(found, asyncio.Future):
                found.add_done_callback(lambda done: None if done.cancelled() else self._judge(id, done.result()))
            else:
                self._judge(id, found)
        return self._sessions.get(id)

    def _judge(self, id: str, found: Authentication) -> None:
        """End a session whose key or token is no longer valid."""
        if isinstance(found, AuthenticationChallenge) and found.status == UNAVAILABLE:
            return
        session = self._sessions.get(id)
        if session is not None and found != session.user.principal:
            del self._sessions[id]

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
    age = int(PAGE_SESSION_LIFETIME) if id else 0
    secure = "; Secure" if is_tls else ""
    return f"set-cookie: {name}={id}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}\r\n".encode("latin-1")


def cookie_in(header: str | None, name: str) -> str:
    """The value of a cookie; empty if it is missing, or given twice."""
    pairs = (pair.strip().partition("=") for pair in (header or "").split(";"))
    found = [value for key, _, value in pairs if key == name]
    return found[0] if len(found) == 1 else ""
