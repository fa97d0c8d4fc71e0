"""Where literal secrets of a server's entry are moved: to the keychain or, if that cannot be used, to a `.env` file.

Owns the names under which they are stored. Never overwrites: a name that is taken gets a number.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, Final, Self

from mcp_workbench.engine.config.choose import user_folder
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.clients.literal_secrets import without_secrets
from mcp_workbench.setup.file_replacement import create_file
from mcp_workbench.signin.secrets import keychain, keychain_names

SECRETS_FOLDER: Final = "secrets"


class SecretStore:
    """Stores the secrets of the servers of a configuration in `folder`. With `dry`, nothing is stored.

    As a context manager, it deletes what it stored if it is left by an exception, because nothing refers to it then."""

    def __init__(self, folder: str, *, note: Callable[[str], None], dry: bool = False) -> None:
        self._folder = folder
        self._dry = dry
        # Says why the keychain is not used.
        self._note = note
        self._has_keychain: bool | None = None
        # The variables of each server that go to a file, and the name of that file.
        self._files: dict[str, dict[str, str]] = {}
        self._names: dict[str, str] = {}
        # What was stored, as `server: variable`.
        self.kept: list[str] = []
        # What is new: entries of the keychain, and files.
        self._new_entries: list[str] = []
        self._new_files: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        for name in self._new_entries:
            with contextlib.suppress(keychain.KeychainUnusable):
                keychain.delete(*keychain.entry_of(name), os.environ)
            keychain_names.forget(name)
        with contextlib.suppress(OSError):
            for path in self._new_files:
                os.unlink(path)
            if self._new_files:
                # Fails if there is something else in it.
                os.rmdir(os.path.dirname(self._new_files[0]))

    def taken_from(self, server: str, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the entry with references instead of secrets. Raises nothing: a keychain that fails is not used."""
        found = without_secrets(server, entry, lambda variable, value: self.keep(server, variable, value))
        variables = self._files.get(server)
        if variables:
            own = f"{SECRETS_FOLDER}/{self._file_name(server)}"
            found["envFile"] = [found["envFile"], own] if "envFile" in found else own
            # A program gets all variables of the file anyway.
            moved = {name for name in variables if found.get("env", {}).get(name) == f"${{{name}}}"}
            found["env"] = {name: value for name, value in found.get("env", {}).items() if name not in moved}
            if not found["env"]:
                del found["env"]
        return found

    def keep(self, server: str, variable: str, value: str) -> str:
        """Store a secret. Returns the reference that replaces it."""
        self.kept.append(f"{server}: {variable}")
        # These would end a reference (`}`) or divide it into service and name (`/`).
        name = f"{server}-{variable}".replace("/", "-").replace("}", "-").replace("{", "-")
        if (stored := self._put(name, value)) is not None:
            return f"${{keyring:{stored}}}"
        taken = self._files.setdefault(server, {})
        # Two arguments of one server may have the same name as variables.
        while taken.get(variable, value) != value:
            variable += "_2"
        taken[variable] = value
        return f"${{{variable}}}"

    def write(self) -> None:
        """Create the files, readable only by the user. Raises `ConfigError`."""
        if self._files:
            self._refuse_foreign_link()
        if self._files and not os.path.lexists(ignored := os.path.join(self._folder, SECRETS_FOLDER, ".gitignore")):
            # With `init --project`, the folder is in a repository.
            self._create(ignored, b"*\n")
        for server, variables in self._files.items():
            text = "".join(f"{name}={_quoted(value)}\n" for name, value in variables.items())
            self._create(os.path.join(self._folder, SECRETS_FOLDER, self._file_name(server)), text.encode())

    def _refuse_foreign_link(self) -> None:
        """A link that came with a project would put the user's keys wherever it leads. In their own folder it is
        theirs."""
        path = os.path.join(self._folder, SECRETS_FOLDER)
        if os.path.islink(path) and os.path.abspath(self._folder) != user_folder():
            raise ConfigError(
                f"`{path}` is a link to `{os.path.realpath(path)}`, and no keys are written through it",
                hint="remove the link, or make it a folder",
            )

    def _create(self, path: str, content: bytes) -> None:
        create_file(path, content)
        self._new_files.append(path)

    def whereabouts(self) -> str:
        if not self._files:
            return "the system's keychain"
        files = os.path.join(self._folder, SECRETS_FOLDER)
        also = "the system's keychain and " if self._has_keychain else ""
        return f"{also}files that only you can read in {files}"

    def _put(self, name: str, value: str) -> str | None:
        """Store a secret in the keychain. Returns its name there; None if there is no keychain."""
        if self._dry or self._has_keychain is False:
            return None
        try:
            own, number, known = name, 1, keychain_names.names()
            while own in known and self._stored(own) not in (None, value):
                # The name belongs to another server, perhaps in another configuration.
                number += 1
                own = f"{name}-{number}"
            keychain.put(*keychain.entry_of(own), value, os.environ)
        except keychain.KeychainUnusable as error:
            self._has_keychain = False
            self._note(error.message)
            return None
        self._has_keychain = True
        if own not in known:
            self._new_entries.append(own)
        keychain_names.remember(own)
        return own

    def _stored(self, name: str) -> str | None:
        return keychain.get(*keychain.entry_of(name), os.environ)

    def _file_name(self, server: str) -> str:
        """Return a free file name: a server of this name may have existed before."""
        if server not in self._names:
            plain = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in server).strip(".")
            plain = plain or "server"
            number, name = 1, f"{plain}.env"
            folder = os.path.join(self._folder, SECRETS_FOLDER)
            while os.path.lexists(os.path.join(folder, name)) or name in self._names.values():
                number += 1
                name = f"{plain}-{number}.env"
            self._names[server] = name
        return self._names[server]


def _quoted(value: str) -> str:
    # Single quotes allow no escapes, and readers of the file treat a carriage return as a line break.
    if "'" not in value and "\r" not in value:
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
