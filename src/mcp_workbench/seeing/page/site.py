"""The page's requests: who they come from, whether they may, and which part of the workbench answers.

Owns the paths, the headers that keep other sites out, and the form of errors. Knows nothing about what a workbench is.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from html import escape
from importlib.resources import files
from time import monotonic
from typing import Any, Final
from urllib.parse import parse_qs

from msgspec import DecodeError
from msgspec.json import decode
from msgspec.structs import replace

from mcp_workbench.engine.printable import report_json
from mcp_workbench.engine.transport.http.server.authentication import Authentication, AuthenticationChallenge
from mcp_workbench.engine.transport.http.server.pages import SiteRequest
from mcp_workbench.engine.transport.http.server.response_writer import Headers, ResponseWriter, header
from mcp_workbench.seeing.page.shown_workbench import Json, PageWorkbench, Unavailable
from mcp_workbench.seeing.page.sign_in import (
    Check,
    PageSession,
    PageSignIns,
    PageUser,
    cookie_header,
    cookie_in,
    cookie_name,
)
from mcp_workbench.seeing.page.streams import Streams

_CSP: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_COMMON_HEADERS: Final[Headers] = (
    header(b"content-security-policy", _CSP)
    + header(b"x-content-type-options", b"nosniff")
    + header(b"x-frame-options", b"DENY")
    + header(b"cross-origin-opener-policy", b"same-origin")
    + header(b"cross-origin-resource-policy", b"same-origin")
    + header(b"cache-control", b"no-store")
)
_PAGE_HEADERS: Final[Headers] = _COMMON_HEADERS + header(b"referrer-policy", b"no-referrer")
# With `no-referrer`, browsers send `Origin: null` with a form.
_FORM_HEADERS: Final[Headers] = _COMMON_HEADERS + header(b"referrer-policy", b"same-origin")
_JSON_HEADER: Final[Headers] = header(b"content-type", b"application/json")
_HTML: Final[Headers] = header(b"content-type", b"text/html; charset=utf-8")
_EVENTS: Final[Headers] = header(b"content-type", b"text/event-stream") + header(b"x-accel-buffering", b"no")
_CONTENT_TYPES: Final = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
    "png": b"image/png",
}
_ASSET: Final = re.compile(r"[a-z0-9_-]+\.(html|css|js|svg|png)")
# Lines of the audits, of which there are a few.
_SEEN: Final = re.compile(r"(\d{1,15}(,\d{1,15}){0,99})?", re.ASCII)
SIGN_IN_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sign in · MCP Workbench</title><link rel="stylesheet" href="/web/style.css"></head>
<body class="sign-in"><main><h1>MCP Workbench</h1>
<p role="status">{said}</p>
<p>On the machine of the workbench, <code>mcp-workbench page</code> opens this page and signs you in.</p>{form}
</main></body></html>
"""
SIGN_IN_FORM: Final = """
<form method="post" action="/login"><label>Key or token
<input type="password" name="key" required autofocus autocomplete="current-password"></label>
<button class="primary">Sign in</button></form>"""
_NOT_SIGNED_IN: Final = "You are not signed in, or your session has ended."
# What one user may have asked for and not been answered yet: calls and threads, which go on without the browser.
MAX_REQUESTS_OF_ONE: Final = 16
EXPIRED: Final = "you are not signed in, or your session has ended: run `mcp-workbench page`"

Answer = Json | list[Json]
Handler = Callable[[PageSession, "PageInput"], Answer | Coroutine[Any, Any, Answer]]


class PageInput:
    """What a request asks for."""

    def __init__(self, request: SiteRequest) -> None:
        self.query = {key: values[-1] for key, values in parse_qs(request.query.decode("latin-1")).items()}
        self._body = request.body

    def json(self) -> Json:
        """Raises `Unavailable`."""
        try:
            found = decode(self._body)
        except (DecodeError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Unavailable(400, "the body must be a JSON object")
        return found

    def text(self, name: str) -> str:
        """A member of the body, or of the query of a GET. Raises `Unavailable`."""
        found = self.json().get(name) if self._body else self.query.get(name)
        if not isinstance(found, str):
            raise Unavailable(400, f"`{name}` must be a string")
        return found

    def number(self, name: str, default: int, most: int) -> int:
        written = self.query.get(name, str(default))
        if not (written.isascii() and written.isdecimal() and len(written) < 16):
            raise Unavailable(400, f"`{name}` must be a number")
        return min(int(written), most)


class PageSite:
    """Serves the page of one workbench."""

    def __init__(
        self,
        workbench: PageWorkbench,
        start_task: Callable[[Awaitable[None]], object],
        *,
        user_of: Callable[[str], PageUser] | None = None,
        is_tls: bool = False,
        takes_keys: bool = False,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`user_of` says who a principal is; `takes_keys`: users may sign in with a key or token."""
        self._workbench = workbench
        self._start_task = start_task
        self._user_of = user_of
        self._is_tls = is_tls
        self._takes_keys = takes_keys
        self.sign_ins = PageSignIns(now)
        self.streams = Streams(workbench)
        # By principal.
        self._under_way: Counter[str] = Counter()
        self._gets: dict[str, Handler] = {
            "/api/state": self._loaded_state,
            "/api/tools": self._tools,
            "/api/server": lambda session, given: workbench.server(
                session.user, given.text("toolbox"), given.text("server")
            ),
            "/api/approval": lambda session, given: workbench.approval(session.user, given.text("id")),
            "/api/lock": lambda session, given: workbench.lock_changes(session.user),
            "/api/tokens": lambda session, given: workbench.tokens(session.user),
            "/api/audit": self._audit,
            "/api/connect": lambda session, given: workbench.connect(session.user),
        }
        self._posts: dict[str, Handler] = {
            "/api/call": lambda session, given: workbench.call(session.user, given.json()),
            "/api/approve": lambda session, given: workbench.decide(
                session.user, given.text("id"), given.text("decision")
            ),
            "/api/server": lambda session, given: workbench.act_on_server(
                session.user, given.text("toolbox"), given.text("server"), given.text("do")
            ),
            "/api/host": lambda session, given: workbench.decide_host(
                session.user, *(given.text(name) for name in ("toolbox", "server", "host", "decision"))
            ),
            "/api/sign-in": lambda session, given: workbench.sign_in(
                session.user, given.text("toolbox"), given.text("server")
            ),
            "/api/lock/accept": self._accept,
        }

    def close(self) -> None:
        self.streams.close()

    def serve(self, request: SiteRequest, writer: ResponseWriter) -> None:
        """Answer a request (`Site`)."""
        head = request.head
        if head.path.startswith("/web/"):
            self._answer_asset(head.path.removeprefix("/web/"), writer)
            return
        if head.method == "POST" and (refused := _refused_origin(request, is_tls=self._is_tls)):
            _fail(writer, 403, refused)
            return
        if head.path == "/login":
            self._sign_in(request, writer)
            return
        id = cookie_in(head.get("cookie"), self._cookie(request))
        session = self.sign_ins.find(id)
        if head.path == "/":
            self._answer_page(session, head.method, writer)
        elif session is None:
            _fail(writer, 401, EXPIRED)
        elif head.get("sec-fetch-site") in ("cross-site", "same-site"):
            _fail(writer, 403, "only this page itself may ask")
        elif head.get("x-csrf") != session.csrf:
            # Browsers send the cookie to every port of a host: without the key of the page it is worth nothing.
            _fail(writer, 403 if head.method == "POST" else 401, "the header `x-csrf` is missing or of another session")
        elif head.path == "/logout" and head.method == "POST":
            self.sign_ins.end(id)
            ended = cookie_header(self._cookie(request), "", is_tls=self._is_tls)
            writer.answer(200, _PAGE_HEADERS + _JSON_HEADER + ended, b"{}")
        elif head.path == "/api/events" and head.method == "GET":
            self._open_stream(id, session, writer)
        else:
            self._answer_api(session, request, writer)

    # ── signing in ──

    def _cookie(self, request: SiteRequest) -> str:
        return cookie_name(request.head.get("host") or "", is_tls=self._is_tls)

    def _sign_in(self, request: SiteRequest, writer: ResponseWriter) -> None:
        given = PageInput(request)
        if request.head.method != "POST":
            user = self.sign_ins.use_code(given.query.get("code", ""))
            if user is None:
                self._answer_form(401, "This address has been used already, or is more than a minute old.", writer)
            else:
                self._begin(user, request, writer)
            return
        if not self._takes_keys or self._user_of is None:
            _fail(writer, 403, "this page is opened by `mcp-workbench page`, and takes no keys")
            return
        keys = parse_qs(request.body.decode("latin-1")).get("key", [])
        key = keys[-1].strip() if keys else ""
        proved: list[object] = []
        found = request.identify(key, proved.append)
        done = partial(self._identified, proved, partial(request.identify, key, is_again=True), request, writer)
        if isinstance(found, asyncio.Future):
            found.add_done_callback(lambda found: done(found.result()))
        else:
            done(found)

    def _identified(
        self, proved: list[object], check: Check, request: SiteRequest, writer: ResponseWriter, found: Authentication
    ) -> None:
        if isinstance(found, AuthenticationChallenge):
            request.refuse(found, _FORM_HEADERS + _HTML, self._form(f"Not signed in: {found.message}."))
        elif self._user_of is not None:
            user = replace(self._user_of(found), identity=proved[0] if proved else None)
            self._begin(user, request, writer, check)

    def _begin(self, user: PageUser, request: SiteRequest, writer: ResponseWriter, check: Check | None = None) -> None:
        id = self.sign_ins.begin(user, check)
        cookie = cookie_header(self._cookie(request), id, is_tls=self._is_tls)
        writer.answer(303, _PAGE_HEADERS + header(b"location", b"/") + cookie)

    def _answer_form(self, status: int, said: str, writer: ResponseWriter) -> None:
        writer.answer(status, _FORM_HEADERS + _HTML, self._form(said))

    def _form(self, said: str) -> bytes:
        """`said` is our own text."""
        return SIGN_IN_PAGE.format(said=escape(said), form=SIGN_IN_FORM if self._takes_keys else "").encode()

    # ── what is shown ──

    def _answer_page(self, session: PageSession | None, method: str, writer: ResponseWriter) -> None:
        if session is None:
            self._answer_form(401, _NOT_SIGNED_IN, writer)
            return
        page = files(__package__).joinpath("web", "index.html").read_bytes()
        if method == "GET" and not session.is_key_given:
            # Once, to the browser that has just signed in, which keeps it for this origin alone.
            session.is_key_given = True
            page = page.replace(b"</head>", b'<meta name="page-key" content="%b">\n</head>' % session.csrf.encode(), 1)
        writer.answer(200, _PAGE_HEADERS + _HTML, page)

    def _answer_asset(self, name: str, writer: ResponseWriter) -> None:
        found = _ASSET.fullmatch(name)
        file = files(__package__).joinpath("web", name)
        if found is None or not file.is_file():
            _fail(writer, 404, "there is no such file")
            return
        writer.answer(200, _PAGE_HEADERS + header(b"content-type", _CONTENT_TYPES[found[1]]), file.read_bytes())

    def _open_stream(self, id: str, session: PageSession, writer: ResponseWriter) -> None:
        if not self.streams.has_room_for(session.user):
            _fail(writer, 503, "too many pages are open already; close one")
            return
        writer.begin(200, _PAGE_HEADERS + _EVENTS)
        self.streams.open(writer, session, lambda: self.sign_ins.find(id) is session, self._state(session))

    async def _loaded_state(self, session: PageSession, given: PageInput) -> Answer:
        await self._workbench.load(session.user)
        return self._state(session)

    def _state(self, session: PageSession) -> Json:
        user = session.user
        you = {"principal": user.name if user.is_owner else user.principal, "isOwner": user.is_owner}
        you["mayDecide"] = user.may_decide
        return {"you": you, **self._workbench.state(user)}

    async def _tools(self, session: PageSession, given: PageInput) -> Answer:
        return {"items": await self._workbench.tools(session.user)}

    def _audit(self, session: PageSession, given: PageInput) -> Coroutine[Any, Any, Answer]:
        written = given.query.get("from", "")
        if _SEEN.fullmatch(written) is None:
            raise Unavailable(400, "`from` must be what an answer had as `from`")
        before = [int(each) for each in written.split(",") if each]
        limit = max(1, given.number("limit", 200, 1000))
        return self._workbench.audit(session.user, given.query.get("q", ""), before, limit)

    def _accept(self, session: PageSession, given: PageInput) -> Coroutine[Any, Any, Answer]:
        seen = given.json().get("seen")
        if seen is not None and not isinstance(seen, str):
            raise Unavailable(400, "`seen` must be a string, or null")
        place = given.text("toolbox"), given.text("server"), given.text("item")
        return self._workbench.accept_lock(session.user, *place, seen)

    def _answer_api(self, session: PageSession, request: SiteRequest, writer: ResponseWriter) -> None:
        head = request.head
        handler = (self._posts if head.method == "POST" else self._gets).get(head.path)
        try:
            if head.path.startswith("/api/calls/") and head.method != "POST":
                _succeed(writer, self._find_call(session, head.path.removeprefix("/api/calls/")))
                return
            if handler is None:
                raise Unavailable(404, "there is nothing here")
            answer = handler(session, PageInput(request))
        except Unavailable as error:
            _fail(writer, error.status, str(error), **error.more)
            return
        if asyncio.iscoroutine(answer):
            self._answer_later(session.user.principal, answer, writer)
        else:
            _succeed(writer, answer)

    def _answer_later(self, principal: str, work: Coroutine[Any, Any, Answer], writer: ResponseWriter) -> None:
        if self._under_way[principal] >= MAX_REQUESTS_OF_ONE:
            work.close()
            _fail(writer, 429, f"{MAX_REQUESTS_OF_ONE} requests of yours are under way; wait for one of them")
            return
        self._under_way[principal] += 1
        self._start_task(self._answered(principal, work, writer))

    async def _answered(self, principal: str, work: Coroutine[Any, Any, Answer], writer: ResponseWriter) -> None:
        try:
            await _answered(work, writer)
        finally:
            self._under_way -= Counter((principal,))

    def _find_call(self, session: PageSession, id: str) -> Json:
        found = None
        if id.isascii() and id.isdecimal() and len(id) < 16:
            found = self.streams.find_call(int(id), session.user)
        if found is None:
            raise Unavailable(404, "this call is not kept: only the latest are, while a page shows calls")
        return found


async def _answered(work: Coroutine[Any, Any, Answer], writer: ResponseWriter) -> None:
    try:
        _succeed(writer, await work)
    except Unavailable as error:
        _fail(writer, error.status, str(error), **error.more)
    finally:
        # A defect, or the end of the workbench: no browser waits forever.
        if not writer.is_over:
            _fail(writer, 500, "the workbench could not answer; its log says why")


def _refused_origin(request: SiteRequest, *, is_tls: bool) -> str | None:
    """Why a form does not come from our own page."""
    headers = request.head.headers
    host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
    if origin not in ((f"https://{host}",) if is_tls else (f"http://{host}", f"https://{host}")):
        return "this comes from another site"
    fetched = headers.get("sec-fetch-site")
    # Browsers leave it out at addresses that are neither loopback nor encrypted.
    is_expected = is_tls or host.partition(":")[0] in ("localhost", "127.0.0.1") or host.startswith("[::1]")
    if fetched != "same-origin" and (fetched is not None or is_expected):
        return "this comes from another site, or from an old browser (no `Sec-Fetch-Site: same-origin`)"
    return None


def _succeed(writer: ResponseWriter, answer: Answer) -> None:
    writer.answer(200, _PAGE_HEADERS + _JSON_HEADER, report_json(answer))


def _fail(writer: ResponseWriter, status: int, message: str, **more: object) -> None:
    writer.answer(status, _PAGE_HEADERS + _JSON_HEADER, report_json({"error": message, **more}))
