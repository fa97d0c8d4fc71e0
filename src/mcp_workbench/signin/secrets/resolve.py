"""Turns a configured server into one that can be started, by fetching everything it refers to.

Owns the meaning of each kind of reference, the limits, and the error messages, which name the reference and never a
value. Nothing here blocks the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.config.environment import without_ours
from mcp_workbench.engine.config.expand import Part, Reference
from mcp_workbench.engine.config.kinds import url_fault
from mcp_workbench.engine.config.model import ReferringValue, ServerConfig
from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.engine.config.problems import quote
from mcp_workbench.engine.config.reading import has_control
from mcp_workbench.engine.config.redact import Redactor, secrets_fetched, secrets_in, secrets_in_url
from mcp_workbench.errors import DownstreamError
from mcp_workbench.signin.secrets import dotenv, secret_files
from mcp_workbench.signin.secrets.keychain import (
    NO_KEYCHAIN,
    Inquiry,
    KeychainRequest,
    KeychainUnusable,
    entry_of,
    hint_for_secret,
)
from mcp_workbench.signin.secrets.program import Program, ProgramEnd
from mcp_workbench.signin.secrets.secret_files import MAX_SECRET_BYTES, Unreadable

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.processes import ProcessTable

# A password manager may ask for a fingerprint first. Shorter than the time limit for starting a server.
SECRET_COMMAND_TIMEOUT: Final = 30.0
_MAX_QUOTED_STDERR: Final = 300
_REFERENCES_HINT: Final = "mcp-workbench help secrets explains references"


class ReferenceUnresolved(DownstreamError):
    """A reference cannot be resolved, so the server cannot be started."""


class Resolved(Struct, frozen=True):
    """A server that can be started."""

    config: ServerConfig
    # Values that must be redacted from now on.
    secrets: frozenset[str]
    warnings: tuple[str, ...] = ()


class ResolvedValue(Struct, frozen=True):
    """A value that belongs to no server."""

    text: str
    secrets: frozenset[str]
    warnings: tuple[str, ...] = ()


async def resolve(server: ServerConfig, environ: Mapping[str, str], table: ProcessTable | None = None) -> Resolved:
    """Resolve all references of a server in this environment. Raises `ReferenceUnresolved`."""
    resolving = _Resolving(environ, table, commands=True)
    try:
        return await resolving.resolve(server)
    except ReferenceUnresolved as error:
        # A failing program may print its input, or the value it was meant to output.
        raise concealed(error, Redactor(resolving.secrets)) from None


async def resolve_value(value: ReferringValue, environ: Mapping[str, str], *, commands: bool = True) -> ResolvedValue:
    """Fetch what a single value refers to. Without `commands`, no program is run. Raises `ReferenceUnresolved`."""
    resolving = _Resolving(environ, None, commands=commands)
    try:
        text = await resolving._whole(value)
    except ReferenceUnresolved as error:
        raise concealed(error, Redactor(resolving.secrets)) from None
    return ResolvedValue(text, frozenset(resolving.secrets), tuple(resolving.warnings))


async def look(server: ServerConfig, environ: Mapping[str, str]) -> tuple[list[ReferenceUnresolved], list[str]]:
    """All references that cannot be resolved, and warnings. Runs no programs."""
    looking = _Resolving(environ, None, commands=False)
    problems = await looking.problems(server)
    return [concealed(each, Redactor(looking.secrets)) for each in problems], looking.warnings


def concealed(error: ReferenceUnresolved, redactor: Redactor) -> ReferenceUnresolved:
    """The error with secrets redacted."""
    return ReferenceUnresolved(
        redactor.text(error.message), hint=None if error.hint is None else redactor.text(error.hint)
    )


class _Resolving:
    """Resolves one server. A reference that occurs twice is fetched once."""

    def __init__(self, environ: Mapping[str, str], table: ProcessTable | None, *, commands: bool) -> None:
        self._environ = environ
        self._table = table
        # If false, `${cmd:…}` references are left unresolved.
        self._commands = commands
        self._fetched: dict[tuple[str, tuple[str, ...]], str] = {}
        self._variables: dict[str, str] = {}
        self.secrets: set[str] = set()
        self.warnings: list[str] = []

    async def resolve(self, server: ServerConfig) -> Resolved:
        for path in server.env_files:
            self._variables |= await self._read_env_file(path)
        changed: dict[str, Any] = {}
        if self._variables and server.command is not None:
            # As for `docker run --env-file`: what is written out wins over the file.
            changed["env"] = {**self._variables, **server.env}
        for value in server.references:
            self._set(changed, server, value, await self._whole(value))
        config = replace(server, **changed, references=(), env_files=())
        return Resolved(config, frozenset(self.secrets), tuple(self.warnings))

    async def problems(self, server: ServerConfig) -> list[ReferenceUnresolved]:
        """All problems, where `resolve` would stop at the first."""
        found: list[ReferenceUnresolved] = []
        for path in server.env_files:
            try:
                self._variables |= await self._read_env_file(path)
            except ReferenceUnresolved as error:
                found.append(error)
        # A variable may be defined in an `envFile` that cannot be read, so it is not reported as missing.
        knows_variables = not found
        for value in server.references:
            try:
                if knows_variables or not _needs_variables(value):
                    await self._whole(value)
            except ReferenceUnresolved as error:
                found.append(error)
        return found

    async def _whole(self, value: ReferringValue) -> str:
        return self._checked(value, "".join([await self._text(part, value) for part in value.parts]))

    # ── where values come from ──

    async def _text(self, part: Part, value: ReferringValue) -> str:
        if isinstance(part, str):
            return part
        if part.kind == "variable":
            return await self._variable(part, value)
        if part.kind == "cmd" and not self._commands:
            return part.written
        # A program that asks for a fingerprint is run once, however often it is referred to.
        key = (part.kind, (part.folder, *part.words))
        if key not in self._fetched:
            fetch = {"file": self._file, "keyring": self._keyring, "cmd": self._command}[part.kind]
            try:
                found = await fetch(part)
            except KeychainUnusable as error:
                raise _unresolved(part, value, error.message, error.hint) from None
            except _Missing as error:
                raise _unresolved(part, value, error.why, error.hint) from None
            self._fetched[key] = found
            self.secrets.update(secrets_fetched(found))
        return self._fetched[key]

    async def _variable(self, reference: Reference, value: ReferringValue) -> str:
        name = reference.words[0]
        found = self._variables.get(name)
        # `:-` of shells: an empty variable takes the default as well.
        if found is None or (not found and reference.default is not None):
            if reference.default is None:
                raise _unresolved(
                    reference,
                    value,
                    f"the variable {quote(name)} is neither set nor in `envFile`",
                    f"set it, add it to the file, or give a default: `${{{name}:-…}}`",
                )
            return "".join([await self._text(part, value) for part in reference.default])
        return found

    async def _file(self, reference: Reference) -> str:
        path = os.path.normpath(os.path.join(reference.folder, reference.words[0]))
        # Editors and `echo` end a file with a line break, which no key has.
        text = (await self._read_file(path, "check the path and its permissions")).rstrip("\r\n")
        if not text:
            raise _Missing(f"the file `{path}` is empty", "write the secret into it")
        return text

    async def _read_file(self, path: str, hint: str) -> str:
        try:
            text, is_open_to_others = await aside(lambda: secret_files.read(path))
        except Unreadable as error:
            raise _Missing(f"the file `{path}` {error}", hint) from None
        if is_open_to_others:
            self.warnings.append(f"`{path}` holds secrets and can be read by other users; chmod 600 makes it private")
        return text

    async def _read_env_file(self, path: str) -> dict[str, str]:
        try:
            found = dotenv.parse(await self._read_file(path, "create it, or remove `envFile`"))
        except _Missing as error:
            raise ReferenceUnresolved(f"`envFile`: {error.why}", hint=error.hint) from None
        except dotenv.DotenvError as error:
            raise ReferenceUnresolved(
                f"`envFile`: the file `{path}` cannot be understood: {error}",
                hint="write one `NAME=value` to a line; quote values with line breaks",
            ) from None
        for name, value in found.items():
            if "\0" in value:
                raise ReferenceUnresolved(f"`envFile`: {quote(name)} in the file `{path}` contains a NUL character")
            self.secrets.update(secrets_in(name, value))
        return found

    async def _keyring(self, reference: Reference) -> str:
        service, name = entry_of(reference.words[0])
        inquiry = Inquiry(KeychainRequest("get", service, name), self._environ, self._table)
        try:
            value = (await aside(inquiry.reply)).value
        except NO_KEYCHAIN as error:
            # `secret set` keeps it in a file then.
            value = await self._private_file(service, name)
            if not value:
                raise type(error)(error.message, hint=hint_for_secret(error, reference.words[0])) from None
        finally:
            inquiry.program.release()
        value = value or await self._private_file(service, name)
        if not value:
            raise _Missing(
                f"the system's keychain has no entry {quote(name)} of the service {quote(service)}",
                f"run `mcp-workbench secret set {reference.words[0]}`",
            )
        return value

    async def _private_file(self, service: str, name: str) -> str | None:
        from mcp_workbench.signin.secrets import private_files

        try:
            return await aside(lambda: private_files.get(service, name, self._environ))
        except private_files.PrivateFileUnusable as error:
            raise _Missing(error.message, error.hint or "check its permissions") from None

    async def _command(self, reference: Reference) -> str:
        name, *arguments = reference.words
        program = self._find(name, reference.folder)
        try:
            started = Program(
                # With the user's whole environment, unlike a server: `op` and `gpg` need their sessions and sockets.
                (program, *arguments),
                without_ours(self._environ),
                reference.folder or None,
                table=self._table,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise _Missing(f"the program {quote(name)} cannot be started: {reason}", "check its path") from None
        try:
            end = await aside(lambda: started.finish(SECRET_COMMAND_TIMEOUT, MAX_SECRET_BYTES))
        finally:
            started.release()
        # Also where it failed: half a secret on stdout is one.
        self.secrets.update(secrets_fetched(end.output.decode(errors="replace")))
        return _printed(name, end)

    def _find(self, name: str, folder: str) -> str:
        import shutil

        # Relative to the configuration, as `${file:…}` is.
        if os.sep in name:
            return os.path.join(folder, name)
        found = shutil.which(name, path=self._environ.get("PATH"))
        if found is None:
            raise _Missing(f"the program {quote(name)} was not found on PATH", "install it, or give its full path")
        return found

    # ── where they go ──

    def _checked(self, value: ReferringValue, text: str) -> str:
        """Apply the checks that loading the configuration makes to literal values."""
        name, where = value.field[0], _named(value)
        if name in ("url", "headers"):
            text = text.strip()
        if "\0" in text:
            raise ReferenceUnresolved(f"{where} contains a NUL character once expanded")
        if name == "headers" and has_control(text):
            raise ReferenceUnresolved(
                f"{where} contains a line break or control character once expanded", hint=_REFERENCES_HINT
            )
        if name == "url" and self._is_whole(value):
            fault = url_fault(text)
            if fault is not None:
                raise ReferenceUnresolved(f"{where}, once expanded: {fault}", hint=_REFERENCES_HINT)
            self.secrets.update(secrets_in_url(text))
        if self._is_whole(value):
            self.secrets.update(secrets_in(str(value.field[-1]), text) if name in ("env", "headers") else ())
        return text

    def _is_whole(self, value: ReferringValue) -> bool:
        return self._commands or not any(isinstance(part, Reference) and part.kind == "cmd" for part in value.parts)

    @staticmethod
    def _set(changed: dict[str, Any], server: ServerConfig, value: ReferringValue, text: str) -> None:
        name, *below = value.field
        if not below:
            changed[str(name)] = text
            return
        current = changed.get(str(name), getattr(server, str(name)))
        if isinstance(current, tuple):
            index = int(below[0])
            changed[str(name)] = (*current[:index], text, *current[index + 1 :])
        elif isinstance(current, dict):
            changed[str(name)] = {**current, str(below[0]): text}
        else:
            changed[str(name)] = replace(current, **{str(below[0]): text})


class _Missing(Exception):
    """Why a value cannot be fetched."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


def _printed(name: str, end: ProgramEnd) -> str:
    """The output of a program as a value. Errors quote its stderr, never its output."""
    said = " ".join(end.errors.decode(errors="replace").split())[-_MAX_QUOTED_STDERR:]
    quoted = f": {said}" if said else ""
    hint = f"run {quote(name)} in a terminal to see what it needs"
    if end.is_late:
        raise _Missing(f"the program {quote(name)} did not end within {SECRET_COMMAND_TIMEOUT:g} s{quoted}", hint)
    if end.status is None:
        raise _Missing(f"the program {quote(name)} printed more than {MAX_SECRET_BYTES // 1024} KiB", hint)
    if end.status < 0:
        raise _Missing(f"the program {quote(name)} was ended by signal {-end.status}{quoted}", hint)
    if end.status:
        raise _Missing(f"the program {quote(name)} failed with status {end.status}{quoted}", hint)
    try:
        text = end.output.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _Missing(f"the program {quote(name)} printed something that is not UTF-8 text", hint) from None
    if not text:
        raise _Missing(f"the program {quote(name)} printed nothing{quoted}", hint)
    return text


def _named(value: ReferringValue) -> str:
    first, *steps = map(str, value.field)
    if first == "oauth":
        # Of what may refer to something, the only fields that are written in another way.
        words = dict(zip(OAuthConfig.__struct_fields__, OAuthConfig.__struct_encode_fields__, strict=True))
        steps = [words[step] for step in steps]
    return quote(".".join((first, *steps)))


def _unresolved(reference: Reference, value: ReferringValue, why: str, hint: str | None) -> ReferenceUnresolved:
    return ReferenceUnresolved(f"`{reference.written}` in {_named(value)} cannot be resolved: {why}", hint=hint)


def _needs_variables(value: ReferringValue) -> bool:
    return any(isinstance(part, Reference) and part.kind == "variable" for part in value.parts)
