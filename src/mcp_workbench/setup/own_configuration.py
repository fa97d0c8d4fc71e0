"""Edits of the user's configuration by commands: add or remove a server, and keep every other byte.

Owns which file that is, and where in it a server belongs, and keeps a trusted file trusted, because the user made the
change. Does not know what a server is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from msgspec import Struct

from mcp_workbench.engine.config import model, trust
from mcp_workbench.engine.config.choose import CONFIG_FILE_NAME, CONFIG_VARIABLE, choose, own_file, user_folder
from mcp_workbench.engine.config.jsonc_edit import parsed as parsed_json
from mcp_workbench.engine.config.jsonc_edit import remove_member, set_member
from mcp_workbench.engine.config.load import parse, read
from mcp_workbench.engine.config.model import DEFAULT_REGISTRY
from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.engine.config.validate import PLAIN_TOOLBOX
from mcp_workbench.engine.nearest import ambiguous, nearest
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.file_replacement import create_file, refuse_what_is_not_ours, replace_file


class OwnConfiguration(Struct):
    """The file to edit and its content. `before` is None if it has to be created."""

    path: str
    before: bytes | None
    # The key that holds everything: `toolboxes`, or the root key of a plain file.
    root: str
    # The servers of each toolbox, as written.
    toolboxes: dict[str, dict[str, Any]]
    registry: str = DEFAULT_REGISTRY

    @property
    def is_plain(self) -> bool:
        return self.root != model.TOOLBOXES_ROOT

    def server(self, name: str) -> tuple[str, str]:
        """Return toolbox and name of the server that `server` or `toolbox/server` names. Raises `ConfigError`."""
        every = [(box, each) for box, servers in self.toolboxes.items() for each in servers]
        found = [pair for pair in every if name in (pair[1], "/".join(pair))]
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(ambiguous(name, map("/".join, found)))
        near = nearest(name, [each for _, each in every], limit=1)
        meant = f"; did you mean `{near[0]}`?" if near else ""
        raise ConfigError(f"`{self.path}` has no server `{name}`{meant}", hint="mcp-workbench list shows all servers")

    def with_server(self, toolbox: str, description: str, name: str, entry: dict[str, Any]) -> bytes:
        """Return the content with a server added; the toolbox is created if it is missing."""
        text = self._text()
        if self.is_plain:
            return set_member(text, (self.root, name), entry).encode()
        if toolbox in self.toolboxes:
            return set_member(text, (self.root, toolbox, model.MCP_SERVERS, name), entry).encode()
        box = {"description": description, model.MCP_SERVERS: {name: entry}}
        return set_member(text, (self.root, toolbox), box).encode()

    def without_server(self, toolbox: str, name: str) -> bytes:
        """Return the content with a server removed, and its toolbox if it has no other."""
        steps: Sequence[str] = (self.root, name) if self.is_plain else (self.root, toolbox, model.MCP_SERVERS, name)
        if len(self.toolboxes[toolbox]) == 1:
            if len(self.toolboxes) == 1:
                raise ConfigError(f"`{name}` is the only server in `{self.path}`", hint=f"delete `{self.path}` instead")
            # An empty `mcpServers` would be an error.
            steps = (self.root, toolbox)
        return remove_member(self._text(), steps).encode()

    def check_writable(self) -> None:
        """Raises `ConfigError` if the file cannot be written, before anything else is done."""
        if self.before is not None:
            refuse_what_is_not_ours(self.path)

    def check(self, content: bytes) -> None:
        """Raises `ConfigError` if the content is not a valid configuration."""
        parse(content, self.path, os.environ)

    def write(self, content: bytes) -> None:
        """Write the file. Raises `ConfigError`; the file is then unchanged."""
        self.check(content)
        if self.before is None:
            create_file(self.path, content)
            return
        # Trust depends on the content: without this, the user would have to trust each edit made here again.
        was_trusted = trust.verdict(self.path, self.before) is trust.TrustVerdict.TRUSTED
        replace_file(self.path, self.before, content, lock_folder())
        if was_trusted:
            # After the file: if we are killed in between, the file asks for trust again, rather than being trusted
            # unseen.
            trust.trust(self.path, content)

    def _text(self) -> str:
        return (self.before or b"").decode()


def own_configuration(path: str | None, *, makes: bool, warn: Callable[[str], None]) -> OwnConfiguration:
    """Return the configuration that is named or in use; with `makes`, the one to create if there is none. Raises
    `ConfigError`."""
    named = path or os.environ.get(CONFIG_VARIABLE)
    if makes and not named and own_file() is None and not os.path.lexists(CONFIG_FILE_NAME):
        folder = user_folder()
        if folder is None:
            raise ConfigError("there is no folder for your settings", hint="set `HOME`, or name a file with --config")
        # The first `add` creates the file that `serve` finds by default.
        return OwnConfiguration(os.path.join(folder, CONFIG_FILE_NAME), None, model.TOOLBOXES_ROOT, {})
    # Only the user's own file may still lack servers; a project's must already be valid.
    user_file = named or (None if os.path.lexists(CONFIG_FILE_NAME) else own_file())
    if makes and user_file and (empty := _without_servers(user_file)):
        return empty
    choice = choose(path, None, os.environ)
    if choice.warning is not None:
        warn(choice.warning)
    path = choice.config.path
    content = read(path)
    document = _document(content, path)
    root = _root_of(document)
    if root != model.TOOLBOXES_ROOT and (
        others := [key for key in document if key != root and key not in model.WorkbenchConfig.SETTINGS]
    ):
        # Programs that keep more than servers in a file rewrite it whenever they like.
        raise ConfigError(
            f"`{path}` also holds `{others[0]}`, so it belongs to another program and is not edited",
            hint="mcp-workbench init creates a configuration of your own from it",
        )
    registry = _registry_of(choice.config.registry, path)
    return OwnConfiguration(path, content, root, _servers_in(document), registry)


def _without_servers(path: str) -> OwnConfiguration | None:
    """Return a file of the user that has settings but no server yet, which makes it invalid until one is added."""
    try:
        content = read(path)
        document = parsed_json(content.decode(), path)
    except (ConfigError, UnicodeDecodeError):
        return None
    if not isinstance(document, dict):
        return None
    roots = [each for each in (model.TOOLBOXES_ROOT, *model.PLAIN_ROOTS) if each in document]
    if any(document[root] != {} for root in roots):
        return None
    registry = document.get("registry")
    toolboxes = _servers_in(document) if roots else {}
    known = _registry_of(registry, path) if isinstance(registry, str) else DEFAULT_REGISTRY
    return OwnConfiguration(path, content, roots[0] if roots else model.TOOLBOXES_ROOT, toolboxes, known)


def _registry_of(written: str, path: str) -> str:
    """Return the address, or the full path of a file or folder: a relative one starts at the configuration's."""
    if written.startswith(("http://", "https://")):
        return written
    if written.startswith("file://"):
        written = url2pathname(urlsplit(written).path)
    return os.path.join(os.path.dirname(os.path.abspath(path)), os.path.expanduser(written))


def servers_written(content: bytes, path: str) -> dict[str, dict[str, Any]]:
    """Return the servers of each toolbox as written in a configuration. Raises `ConfigError`."""
    return _servers_in(_document(content, path))


def _document(content: bytes, path: str) -> dict[str, Any]:
    try:
        document = parsed_json(content.decode(), path)
    except UnicodeDecodeError:
        raise ConfigError(f"`{path}` is not UTF-8, and is not edited", hint="save it as UTF-8") from None
    assert isinstance(document, dict), "it was understood before"
    return document


def _root_of(document: dict[str, Any]) -> str:
    return next(each for each in (model.TOOLBOXES_ROOT, *model.PLAIN_ROOTS) if each in document)


def _servers_in(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    root = _root_of(document)
    if root != model.TOOLBOXES_ROOT:
        return {PLAIN_TOOLBOX: document[root]}
    return {name: box[model.MCP_SERVERS] for name, box in document[root].items()}


def lock_folder() -> str:
    folder = state_path("configuration")
    if folder is None:
        raise ConfigError("there is no folder for locks", hint="set `HOME`")
    return folder
