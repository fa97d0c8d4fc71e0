"""The system's keychain: values by service and name, through a process that can be killed if the keychain hangs.

Owns the time limit and the error messages for everything that can go wrong. Blocks, so call it in a thread or a
command.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from mcp_workbench.engine.config.environment import without_ours
from mcp_workbench.errors import DownstreamError, package_hint
from mcp_workbench.signin.secrets.program import Program, ProgramEnd

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.processes import ProcessTable

# Keychains answer in milliseconds, but a locked one may wait for its user for ever.
KEYCHAIN_TIMEOUT: Final = 3.0
# Importing the keychain libraries may take this much longer on a busy machine.
KEYCHAIN_IMPORT_TIMEOUT: Final = 15.0
# A value and the JSON around it.
MAX_KEYCHAIN_REPLY_BYTES: Final = 256 * 1024
# The service of our own entries, and the default for names without one.
SERVICE: Final = "mcp-workbench"
START_ONE: Final = "on Linux, start one (GNOME Keyring, KWallet) with a D-Bus session"
_MODULE: Final = "mcp_workbench.signin.secrets.keychain_child"


class KeychainUnusable(DownstreamError):
    """The keychain does not respond, or there is none."""


class KeychainMissing(KeychainUnusable):
    """This machine has no keychain."""


class KeychainUninstalled(KeychainUnusable):
    """The package that reaches the keychain is not installed."""


# There is no keychain to keep anything in: secrets are kept in files of their own then (`private_files`).
NO_KEYCHAIN: Final = (KeychainMissing, KeychainUninstalled)


def hint_for_secret(error: KeychainUnusable, name: str = "NAME") -> str:
    """What to do about a secret that the keychain does not give: where there is none, a file keeps it as well."""
    if not isinstance(error, NO_KEYCHAIN):
        return error.hint or ""
    return f"`mcp-workbench secret set {name}` works without a keychain; or {error.hint}"


class KeychainRequest(Struct, frozen=True):
    action: Literal["get", "set", "delete"]
    service: str
    name: str
    value: str = ""


class KeychainReply(Struct, frozen=True, omit_defaults=True):
    """The keychain's response. `error`: `uninstalled`, `missing`, `locked` or `failed`."""

    value: str | None = None
    found: bool = False
    error: str = ""
    detail: str = ""


class Inquiry:
    """One request to the keychain. With a table, create it on the event loop; call `reply` in a thread."""

    def __init__(self, request: KeychainRequest, environ: Mapping[str, str], table: ProcessTable | None = None) -> None:
        # `-P`: the folder of a client must not be where `keyring` is imported from.
        command = (sys.executable, "-P", "-m", _MODULE)
        try:
            self.program = Program(command, without_ours(environ), given=encode(request), table=table)
        except OSError as error:
            raise KeychainUnusable(f"the system's keychain cannot be asked: {error.strerror}") from None

    def reply(self) -> KeychainReply:
        """Wait for the reply. Raises `KeychainUnusable`."""
        return _read(self.program.finish(KEYCHAIN_TIMEOUT + KEYCHAIN_IMPORT_TIMEOUT, MAX_KEYCHAIN_REPLY_BYTES))


def get(service: str, name: str, environ: Mapping[str, str]) -> str | None:
    """Read a value; None if there is none. Raises `KeychainUnusable`."""
    return Inquiry(KeychainRequest("get", service, name), environ).reply().value


def put(service: str, name: str, value: str, environ: Mapping[str, str]) -> None:
    """Store a value. Raises `KeychainUnusable`."""
    Inquiry(KeychainRequest("set", service, name, value), environ).reply()


def delete(service: str, name: str, environ: Mapping[str, str]) -> bool:
    """Delete a value, and return whether there was one. Raises `KeychainUnusable`."""
    return Inquiry(KeychainRequest("delete", service, name), environ).reply().found


def entry_of(name: str) -> tuple[str, str]:
    """Split `service/name`; the service may contain slashes and defaults to ours."""
    service, _, own = name.rpartition("/")
    return service or SERVICE, own


def _read(end: ProgramEnd) -> KeychainReply:
    # SIGALRM of its own limit, or ours: either way it hangs.
    if end.status is None or end.status < 0:
        raise KeychainUnusable(
            f"the system's keychain did not answer within {KEYCHAIN_TIMEOUT:g} s",
            hint="unlock it, allow the access it may be asking you for, and try again",
        )
    try:
        reply = decode(end.output, type=KeychainReply)
    except MsgspecError:
        said = end.errors.decode(errors="replace").strip().rpartition("\n")[2][:200]
        raise KeychainUnusable(f"the system's keychain cannot be asked: {said or 'no answer'}") from None
    match reply.error:
        case "":
            return reply
        case "uninstalled":
            raise KeychainUninstalled(
                "the system's keychain needs the Python package `keyring`, which is not installed",
                hint=f"{package_hint('keyring')} (the extra `keychain`: mcp-workbench help secrets)",
            )
        case "missing":
            raise KeychainMissing(
                "this machine has no keychain that can be used",
                hint=f"{START_ONE}; on servers and in containers use `${{file:…}}` or `${{cmd:…}}` instead",
            )
        case "locked":
            raise KeychainUnusable(f"the system's keychain is locked ({reply.detail})", hint="unlock it, and try again")
        case _:
            raise KeychainUnusable(f"the system's keychain failed ({reply.detail})", hint="try again")
