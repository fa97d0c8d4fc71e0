"""`mcp-workbench secret`: manage values in the system's keychain, for `${keyring:…}`; where there is none, in files
that only the user can read. They are never arguments and never shown."""

from __future__ import annotations

import os
import sys

from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import stdout
from mcp_workbench.signin.secrets import keychain, keychain_names, private_files
from mcp_workbench.signin.secrets.secret_files import MAX_SECRET_BYTES


def run(parsed: Parsed) -> int:
    action, name = parsed.positional(0), parsed.positional(1)
    if action == "list":
        return _list(parsed, name)
    if parsed.has("json"):
        raise UsageError("--json requires list")
    # `service/` names a service without an entry.
    if not name or not keychain.entry_of(name)[1]:
        raise UsageError(
            "the name of the entry is missing", hint=f"mcp-workbench secret {action} NAME, or service/name"
        )
    return _set(name) if action == "set" else _remove(name)


def _set(name: str) -> int:
    value = _value(name)
    if not value:
        raise UsageError("the value is empty")
    if len(value.encode(errors="surrogateescape")) > MAX_SECRET_BYTES or "\0" in value:
        raise UsageError(f"the value is longer than {MAX_SECRET_BYTES // 1024} KiB, or contains a NUL character")
    try:
        keychain.put(*keychain.entry_of(name), value, os.environ)
        # One that was kept in a file before there was a keychain.
        private_files.delete(*keychain.entry_of(name))
        where = ""
    except keychain.NO_KEYCHAIN as error:
        is_encrypted = private_files.put(*keychain.entry_of(name), value, os.environ)
        where = f" in a file that only you can read, {'encrypted' if is_encrypted else 'not encrypted'}"
        remark("note", f"{error.message}; the value is in {private_files.folder()}")
        if isinstance(error, keychain.KeychainUninstalled):
            remark("hint", f"for the keychain: {error.hint}")
    keychain_names.remember(name)
    stdout().line(f"stored{where}; refer to it as ${{keyring:{name}}}")
    return 0


def _value(name: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        # Never an argument: other users can read command lines, and shells store them in their history.
        return getpass(f"value of {name} (not shown): ")
    # With room for the line break that `echo` adds, so that a value of the maximum size is accepted.
    text = sys.stdin.buffer.read(MAX_SECRET_BYTES + 2)
    try:
        return text.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError("the value is not UTF-8 text") from None


def _list(parsed: Parsed, name: str | None) -> int:
    if name is not None:
        raise UsageError("list takes no name")
    found = keychain_names.names()
    if parsed.has("json"):
        stdout().json([{"name": each, "reference": f"${{keyring:{each}}}"} for each in found])
        return 0
    for each in found:
        stdout().line((each, "name"))
    if not found:
        remark("note", "there are no entries; `mcp-workbench secret set NAME` creates one")
    return 0


def _remove(name: str) -> int:
    was_there = private_files.delete(*keychain.entry_of(name))
    try:
        was_there = keychain.delete(*keychain.entry_of(name), os.environ) or was_there
    except keychain.NO_KEYCHAIN:
        pass
    keychain_names.forget(name)
    if not was_there:
        remark("note", f"there is no secret `{name}`")
        return 1
    print("removed")
    return 0
