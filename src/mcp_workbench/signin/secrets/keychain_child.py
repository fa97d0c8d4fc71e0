"""The process that accesses the system's keychain: one request, one reply, then it exits.

It is a separate process because a locked keychain may hang in the system's libraries, where a thread cannot be stopped,
and because these libraries import 170 modules that nothing else needs. Reads a `KeychainRequest` from stdin and writes
a `KeychainReply` to stdout. Its time limit starts when everything is imported, and is enforced by the system.
"""

from __future__ import annotations

import signal
import sys
from typing import Any, Final

import msgspec

from mcp_workbench.signin.secrets.keychain import KEYCHAIN_TIMEOUT, KeychainReply, KeychainRequest


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
    # The default action terminates the process, wherever it hangs.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, KEYCHAIN_TIMEOUT)
    try:
        return _do(keyring, request)
    except keyring.errors.NoKeyringError:
        return KeychainReply(error="missing")
    except keyring.errors.KeyringLocked as error:
        return KeychainReply(error="locked", detail=_short(error))
    except keyring.errors.PasswordDeleteError:
        return KeychainReply(found=False)
    except Exception as error:
        # Backends raise whatever their libraries raise.
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


_MAX_DETAIL_LENGTH: Final = 200


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_DETAIL_LENGTH]


if __name__ == "__main__":
    main()
