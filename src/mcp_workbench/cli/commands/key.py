"""`mcp-workbench team key`: manage named keys for HTTP clients. A token is shown once, when it is created."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from mcp_workbench.app.use_memory import discard, use_file
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, stdout
from mcp_workbench.engine.catalog.manifests import ManifestStore, default_folder
from mcp_workbench.errors import ConfigError, DownstreamError
from mcp_workbench.signin.store import TokenStore
from mcp_workbench.team.identity.named_keys import KeyFolder, KeyRecord, folder, key_holder

_EXPIRY_UNITS: Final = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0, "y": 365 * 86400.0}


def run(parsed: Parsed) -> int:
    action, name = parsed.positional(0), parsed.positional(1)
    if action != "create" and (parsed.has("toolboxes") or parsed.has("expires")):
        raise UsageError("--toolboxes and --expires require create")
    if action == "list" and name is not None:
        raise UsageError("list takes no name")
    if action != "list" and not name:
        raise UsageError("the name of the key is missing", hint=f"mcp-workbench team key {action} NAME")
    path = folder()
    if path is None:
        raise ConfigError("there is no home folder to keep keys in", hint="set `HOME`")
    keys = KeyFolder(path)
    if action == "list":
        return _list(parsed, keys)
    return _create(parsed, keys, name or "") if action == "create" else _revoke(parsed, keys, name or "")


def _create(parsed: Parsed, keys: KeyFolder, name: str) -> int:
    expires = _moment(parsed.value("expires"), time.time()) if parsed.has("expires") else None
    toolboxes = None
    if parsed.has("toolboxes"):
        toolboxes = tuple(
            part.strip() for each in parsed.values("toolboxes") for part in each.split(",") if part.strip()
        )
        if not toolboxes:
            raise UsageError("--toolboxes names no toolbox", hint="leave it out for a key to all toolboxes")
    token = keys.create(name, toolboxes=toolboxes, expires=expires)
    _warn_of_sign_ins(name)
    if parsed.has("json"):
        stdout().json({"name": name, "token": token, "expires": _shown(expires), "toolboxes": toolboxes})
        return 0
    # Alone on stdout, so that `$(mcp-workbench team key create ci)` is the token.
    print(token)
    remark("note", f"this token of the key `{name}` is not shown again; clients send it as their bearer token")
    return 0


def _list(parsed: Parsed, keys: KeyFolder) -> int:
    records, now = keys.records(), time.time()
    screen = stdout()
    if parsed.has("json"):
        screen.json([_described(record, now) for record in records])
        return 0
    if not records:
        remark("note", "there is no key; mcp-workbench team key create NAME makes one")
        return 0
    rows: list[list[Part]] = [
        [
            (record.name, "name"),
            _shown(record.created) or "",
            ("expired", "warn") if record.has_expired(now) else _shown(record.expires) or "never",
            "all" if record.toolboxes is None else ", ".join(record.toolboxes),
        ]
        for record in records
    ]
    screen.table(["key", "created", "expires", "toolboxes"], rows)
    return 0


def _revoke(parsed: Parsed, keys: KeyFolder, name: str) -> int:
    if parsed.has("json"):
        raise UsageError("--json requires create or list")
    holders = [key_holder(name, record.sha256) for record in keys.records() if record.name == name]
    if not keys.revoke(name):
        remark("note", f"there is no key `{name}`")
        # A script that revokes a key needs to know that there was none.
        return 1
    print("revoked")
    # What servers have offered to it; workbenches that run see to the rest.
    ManifestStore(default_folder).drop_users()
    for holder in holders:
        discard(use_file(holder))
    _warn_of_sign_ins(name)
    return 0


def _warn_of_sign_ins(name: str) -> None:
    """They are found by the key's name, so that a key can be replaced; another person must not get them."""
    try:
        records = TokenStore().read().records
    except DownstreamError as error:
        remark("warning", f"it is unknown which servers a key `{name}` has signed in to: {error.message}")
        return
    servers = sorted({each.server for each in records if each.principal == name and each.access_token})
    if servers:
        remark(
            "warning",
            f"whoever has a key `{name}` is signed in to {', '.join(servers)}; if that is another person now, delete "
            f"these sign-ins with mcp-workbench auth logout SERVER --as {name}",
        )


def _described(record: KeyRecord, now: float) -> dict[str, object]:
    return {
        "name": record.name,
        "created": _shown(record.created),
        "expires": _shown(record.expires),
        "expired": record.has_expired(now),
        "toolboxes": record.toolboxes,
    }


def _shown(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _moment(text: str | None, now: float) -> float:
    """Parse an expiry as people write it. Raises `UsageError`."""
    text = (text or "").strip()
    found = re.fullmatch(r"([0-9]{1,5})([mhdwy])", text)
    moment = now
    if found is not None:
        moment = now + int(found[1]) * _EXPIRY_UNITS[found[2]]
    elif re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        try:
            # UTC, so that a key expires at the same moment wherever its workbench runs.
            moment = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        except ValueError:
            moment = now
    # Covers past dates and nonsense alike.
    if moment <= now:
        raise UsageError(f"--expires `{text}` is not a time in the future", hint="for example 30d, 12h or 2027-01-31")
    return moment
