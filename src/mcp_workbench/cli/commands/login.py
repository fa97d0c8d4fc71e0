"""`mcp-workbench auth login SERVER`: sign in to a server, in a browser, with a pasted address or with a device code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Final

from mcp_workbench.app.server_access import ServerAccess
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.server_names import find_server
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.engine.printable import plural, visible
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL
from mcp_workbench.errors import DownstreamError, SignInNeeded
from mcp_workbench.signin.flow_io import DeviceCodeWait, SignInFailed
from mcp_workbench.signin.grant_end import ends_at, shown
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.sign_ins import BrowserSignIn
from mcp_workbench.signin.store import SignInRecord

# Longer than any address that a browser shows.
_CALLBACK_READ_BYTES: Final = 64 * 1024


def run(parsed: Parsed) -> int:
    access, entry = server_at_url(parsed)
    name = parsed.positionals[0]
    if any(header.lower() == "authorization" for header in entry.config.headers):
        raise UsageError(
            f"`{name}` already has a token in `headers`", hint="remove `Authorization` there to sign in instead"
        )
    oauth = entry.config.oauth
    if oauth is not None and oauth.grant == "client_credentials":
        raise UsageError(f"`{name}` signs in by itself, as the client in `oauth`")
    if oauth is not None and oauth.grant == "jwt_bearer" and (oauth.identity_token or not oauth.identity_provider):
        raise UsageError(f"`{name}` signs in by itself, with `identityToken` in `oauth`")
    access.run(lambda: _login(access, entry, parsed))
    return 0


def server_at_url(parsed: Parsed) -> tuple[ServerAccess, ServerEntry]:
    """Return the server that the command line names, which must support sign-in, and the way to it."""
    name = parsed.positionals[0]
    config = configuration(parsed)
    access = ServerAccess(config, log_for(parsed, config))
    entry = find_server(access.catalog, name)
    if entry.config.url is None:
        raise UsageError(f"`{name}` is a program on this machine, not an address to sign in to")
    return access, entry


async def _login(access: ServerAccess, entry: ServerEntry, parsed: Parsed) -> None:
    target = await access.target(entry, parsed.value("as") or OWN_USER)
    sign_ins = access.sign_ins
    signed_in = target.find(sign_ins.store.read())
    wanted = sign_ins.store.read().wanted_at(target.principal, target.server)
    if target.principal:
        # Another user's access to the server is not ours to test.
        if signed_in is not None and wanted is None and not parsed.has("again"):
            remark("note", f"{target.principal} is signed in to {entry.name}; --again signs in once more")
            return
    elif wanted is None and not parsed.has("again") and not parsed.has("new-client"):
        # The server's refusal contains what a sign-in starts from.
        with contextlib.suppress(SignInNeeded):
            await access.list_tools(entry)
            if signed_in is not None:
                remark("note", f"you are signed in to {entry.name}; --again signs in once more")
                return
    try:
        if parsed.has("device"):
            record = await sign_ins.sign_in_by_device(target, _show_code)
        else:
            sign_in = await sign_ins.begin(target, new_client=parsed.has("new-client"))
            record = await _visit(sign_in, parsed.has("no-browser"))
    except DownstreamError as error:
        record_sign_in(access, entry, target, "failed", error.message)
        raise
    record_sign_in(access, entry, target, "signed in")
    _report_signed_in(entry, record)
    if target.principal:
        return
    try:
        await access.list_tools(entry)
    except SignInNeeded as error:
        raise SignInFailed(
            f"signed in, but {error.message}", hint="try --again, or ask the operator of the server"
        ) from None
    entry.remember()
    print(f"{entry.name} offers {plural(len(entry.tools), 'tool')}")


def record_sign_in(
    access: ServerAccess, entry: ServerEntry, target: SignInTarget, decision: str, reason: str = ""
) -> None:
    """Record in the audit log that a user has signed in or out here."""
    who = {"principal": target.principal or LOCAL_PRINCIPAL, "peer": "command line"}
    access.record("sign_in", **who, toolbox=entry.toolbox, server=entry.name, decision=decision, reason=reason)


async def _visit(sign_in: BrowserSignIn, no_browser: bool) -> SignInRecord:
    page = sign_in.page.result()
    if no_browser or not await _open_browser(page):
        remark("note", "open this address in a browser, on any machine:")
        # stdout is data: a script may pass the address on.
        print(visible(page), flush=True)
        remark("note", "then come back here, or paste the address you are redirected to at the end:")
        return await _wait_or_paste(sign_in)
    remark("note", "the sign-in page was opened in your browser; waiting for you to finish")
    remark("hint", "if no page opens, press Ctrl-C and use --no-browser")
    return await sign_in.wait()


async def _wait_or_paste(sign_in: BrowserSignIn) -> SignInRecord:
    """Wait for the browser at our callback or for its address on standard input, whichever comes first."""
    done = asyncio.ensure_future(sign_in.wait())
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        # Not through `sys.stdin`: the event loop would not see what its buffer holds.
        text = os.read(sys.stdin.fileno(), _CALLBACK_READ_BYTES).decode(errors="replace")
        if not text:
            # Nothing more can be pasted; the callback may still come.
            loop.remove_reader(sys.stdin.fileno())
        lines.put_nowait(text)

    is_readable = True
    try:
        # Linux cannot wait for a file or /dev/null: then only the callback counts.
        loop.add_reader(sys.stdin.fileno(), read)
    except (OSError, ValueError):
        is_readable = False
    try:
        while not done.done():
            line = asyncio.ensure_future(lines.get())
            await asyncio.wait({done, line}, return_when=asyncio.FIRST_COMPLETED)
            # Addresses contain no spaces; one read may return several lines.
            for text in line.result().split() if line.done() else ():
                why = sign_in.paste(text)
                if why is not None:
                    remark("warning", f"{why} Paste the whole address, with `code` and `state` in it.")
            line.cancel()
        return done.result()
    finally:
        if is_readable:
            loop.remove_reader(sys.stdin.fileno())
        done.cancel()


async def _open_browser(page: str) -> bool:
    """Start a browser, and return whether that worked. Its output is not shown."""
    import webbrowser

    def start() -> bool:
        try:
            return webbrowser.open(page)
        except (OSError, webbrowser.Error):
            return False

    # A browser in the terminal would block the event loop that listens for its redirect.
    return await asyncio.to_thread(start)


def _show_code(step: DeviceCodeWait) -> None:
    remark("note", "open this address on any device and enter the code:")
    print(f"{visible(step.page)}\n{visible(step.code)}", flush=True)


def _report_signed_in(entry: ServerEntry, record: SignInRecord) -> None:
    who = f" as {visible(record.account)}" if record.account else ""
    print(f"signed in to {entry.name}{who}")
    end = ends_at(record)
    if record.refresh_token is not None and end is not None:
        remark("note", f"the server ends this sign-in on {shown(end)}; you will be reminded before that")
    if record.refresh_token is None and record.expires_at is not None:
        remark("warning", "the server gave no refresh token: you will have to sign in again when this token expires")
