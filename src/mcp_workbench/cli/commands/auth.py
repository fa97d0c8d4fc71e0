"""`mcp-workbench auth`: show who is signed in where, and for how long. Never shows a token."""

from __future__ import annotations

import asyncio
import shlex
import time
from typing import Any

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, stdout
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor, secrets_in_url
from mcp_workbench.engine.printable import visible
from mcp_workbench.errors import DownstreamError
from mcp_workbench.signin.grant_end import ends_at, is_near, note, shown
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.signed_in_headers import due_at
from mcp_workbench.signin.store import SignInRecord, TokenStore, WantedSignIn

SIGN_INS_HEADER = ("server", "state", "account", "scopes", "token valid until", "signed in", "sign in again by")


def run(parsed: Parsed) -> int:
    store = TokenStore()
    if parsed.has("encrypt") or parsed.has("decrypt"):
        return _convert(parsed, store)
    contents = store.read()
    # A server that asked for a sign-in is listed even if the user never signed in there.
    known = {(record.principal, record.server) for record in contents.records}
    missing = [wanted for wanted in contents.wanted if (wanted.principal, wanted.server) not in known]
    screen = stdout()
    if parsed.has("json"):
        stored = "keychain" if store.is_sealed else "file"
        screen.json([*(_as_json(record, stored) for record in contents.records), *map(_wanted_json, missing)])
        return 0
    if not contents.records and not missing:
        remark("note", "you are not signed in to any server; run `mcp-workbench auth login SERVER`")
        return 0
    rows = [_row(record) for record in contents.records]
    rows += [[(_shown(wanted.server), "name"), ("needs sign-in", "warn"), "", "", "", "", ""] for wanted in missing]
    people = [*(record.principal for record in contents.records), *(wanted.principal for wanted in missing)]
    if any(people):
        # From a workbench that serves several users. Sign-ins without a name are the user's own.
        screen.table(
            (*SIGN_INS_HEADER, "user"), [[*row, principal] for row, principal in zip(rows, people, strict=True)]
        )
    else:
        screen.table(SIGN_INS_HEADER, rows)
    for record in contents.records:
        if text := note(record, "mcp-workbench auth login SERVER", time.time()):
            remark("warning", f"{visible(_shown(record.server))}: {text}")
    how = "encrypted with a key in your keychain" if store.is_sealed else "readable only by you"
    remark("note", f"stored in {store.path}, {how}")
    return 0


def _convert(parsed: Parsed, store: TokenStore) -> int:
    if parsed.has("json") or (parsed.has("encrypt") and parsed.has("decrypt")):
        raise UsageError("--encrypt and --decrypt cannot be combined with anything else")
    # Under the lock of the store, because a workbench may be refreshing a token at the same time.
    asyncio.run(store.convert(sealed=parsed.has("encrypt")))
    how = "encrypted with a key in your keychain" if store.is_sealed else "stored unencrypted, readable only by you"
    print(f"the sign-ins in {tilde(store.path)} are {how}")
    if store.is_sealed:
        remark("note", "earlier backups still contain them unencrypted")
    return 0


def warnings(config: WorkbenchConfig) -> list[str]:
    """Return which sign-ins of these servers end soon, or why sign-ins cannot be read."""
    found = []
    try:
        contents = TokenStore().read()
    except DownstreamError as error:
        return [error.message]
    for _, server in config.servers():
        if server.url is None:
            continue
        command = f"mcp-workbench auth login {shlex.quote(server.name)}"
        target = SignInTarget("", server.url, server.oauth, command)
        record = (target.provider or target).find(contents)
        if record is not None and (text := note(record, command, time.time())):
            found.append(f"{server.name}: {text}")
    return found


def state_of(record: SignInRecord) -> str:
    # `ended`: it can no longer be refreshed, whatever the expiry of its token.
    if record.ended or not record.access_token:
        return "needs sign-in"
    if record.expires_at is not None and record.expires_at <= time.time():
        is_renewed = record.refresh_token or record.grant != "authorization_code"
        return "refreshed at next use" if is_renewed else "needs sign-in"
    return "signed in"


def _shown(server: str) -> str:
    """Return a URL that is safe to print: many contain a key."""
    return Redactor(secrets_in_url(server)).text(server)


def _row(record: SignInRecord) -> list[Part]:
    state = state_of(record)
    return [
        (_shown(record.server), "name"),
        (state, "warn" if state == "needs sign-in" else "good"),
        record.account or "",
        " ".join(record.scopes),
        _when(record.expires_at),
        _when(record.signed_in_at),
        (_when(ends_at(record)), "warn" if is_near(record, time.time()) else "plain"),
    ]


def _as_json(record: SignInRecord, stored: str) -> dict[str, Any]:
    due = due_at(record)
    return {
        "principal": record.principal,
        "server": _shown(record.server),
        "issuer": record.issuer,
        "state": state_of(record),
        "account": record.account,
        "scopes": list(record.scopes),
        "signedInAt": record.signed_in_at,
        "expiresAt": record.expires_at,
        "endsAt": ends_at(record),
        "refreshedAt": record.obtained_at,
        "nextRefreshAt": None if due == float("inf") else due,
        "ended": record.ended or None,
        "stored": stored,
    }


def _wanted_json(wanted: WantedSignIn) -> dict[str, Any]:
    return {"principal": wanted.principal, "server": _shown(wanted.server), "state": "needs sign-in"}


def _when(moment: float | None) -> str:
    return "" if not moment else shown(moment)
