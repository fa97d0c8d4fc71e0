"""The process that speaks to the system's keychain: one request, one answer, then it ends.

A process of its own, because a keychain that is locked may hang in the system's libraries, where no thread can be
stopped, and because they and what they import (170 modules) are of no use to anybody else. Reads a
`KeychainRequest` from stdin, writes a `KeychainReply` to stdout. Its time begins when everything is imported; the
system ends it when that is over.
"""

from __future__ import annotations

import signal
import sys
from typing import Any, Final

import msgspec

from mcp_workbench.secrets.keychain import KEYCHAIN_SECONDS, KeychainReply, KeychainRequest


def main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=KeychainRequest)
    sys.stdout.buffer.write(msgspec.json.encode(answer(request)))
    sys.stdout.buffer.flush()


def answer(request: KeychainRequest) -> KeychainReply:
    try:
        import keyring
        import keyring.errors
    except ImportError:
        return KeychainReply(error="uninstalled")
    # The default action ends the process, wherever it hangs.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, KEYCHAIN_SECONDS)
    try:
        return _do(keyring, request)
    except keyring.errors.NoKeyringError:
        return KeychainReply(error="missing")
    except keyring.errors.KeyringLocked as error:
        return KeychainReply(error="locked", detail=_short(error))
    except keyring.errors.PasswordDeleteError:
        return KeychainReply(found=False)
    except Exception as error:
        # Back ends raise whatever their libraries do.
        return KeychainReply(error="failed", detail=_short(error))


def _do(keyring: Any, request: KeychainRequest) -> KeychainReply:
    match request.action:
        case "get":
            value = keyring.get_password(request.service, request.name)
            return KeychainReply(value=value, found=value is not None)
        case "set":
            keyring.set_password(request.service, request.name, request.value)
        case "delete":
            keyring.delete_password(request.service, request.name)
    return KeychainReply(found=True)


_LONGEST_DETAIL: Final = 200


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_DETAIL]


if __name__ == "__main__":
    main()
