"""A keychain for tests, in a JSON file: `PYTHON_KEYRING_BACKEND=tests.support.fake_keyring.Keyring`.

`FAKE_KEYRING` names the file. `FAKE_KEYRING_FAULT` makes it `hang`, be `locked`, or `break`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

ROOT = str(Path(__file__).resolve().parents[2])


class Keyring(KeyringBackend):
    priority = 1

    def get_password(self, service: str, username: str) -> str | None:
        return self._read().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._write({**self._read(), f"{service}/{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        entries = self._read()
        if entries.pop(f"{service}/{username}", None) is None:
            raise PasswordDeleteError("not found")
        self._write(entries)

    def _read(self) -> dict[str, str]:
        match os.environ.get("FAKE_KEYRING_FAULT"):
            case "hang":
                time.sleep(3600)
            case "locked":
                raise KeyringLocked("Failed to unlock the collection!")
            case "break":
                raise RuntimeError("D-Bus has gone away")
        path = Path(os.environ["FAKE_KEYRING"])
        entries: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return entries

    def _write(self, entries: dict[str, str]) -> None:
        Path(os.environ["FAKE_KEYRING"]).write_text(json.dumps(entries))


def environment(file: Path, fault: str = "", **entries: str) -> dict[str, str]:
    """Variables with which `keyring` uses this one. Names of entries have `__` for the slash."""
    if entries:
        file.write_text(json.dumps({name.replace("__", "/"): value for name, value in entries.items()}))
    return {
        "PYTHON_KEYRING_BACKEND": f"{__name__}.Keyring",
        "FAKE_KEYRING": str(file),
        "FAKE_KEYRING_FAULT": fault,
        "PYTHONPATH": ROOT,
    }
