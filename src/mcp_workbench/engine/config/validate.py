"""Turn a decoded file into a `WorkbenchConfig`, or into everything that is wrong with it.

Owns the structure of the file: toolboxes with their servers, or the plain `mcpServers` of any client. Knows neither how
the file was decoded nor the position of anything in it: problems carry paths, and `load` finds their lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mcp_workbench.engine.config.model import (
    MCP_SERVERS,
    PLAIN_ROOTS,
    SERVERS_ROOT,
    TOOLBOXES_ROOT,
    ReferringValue,
    ServerConfig,
    Share,
    ToolboxConfig,
    WorkbenchConfig,
)
from mcp_workbench.engine.config.problems import Path, Problem, quote, render_path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.server import WrittenServer
from mcp_workbench.engine.config.setting import Setting
from mcp_workbench.engine.faces import JOINING_FACES

if TYPE_CHECKING:
    from mcp_workbench.engine.config.sandbox_settings import SandboxConfig

PLAIN_TOOLBOX = "default"
_PROJECTS = "projects"
# What clients see was called so in an earlier design.
_ABOUT_TOOL_MODE = '`toolMode` is `face` here: "face": "proxy" or "face": "dynamic"'
_EXAMPLE_CONFIG = '`{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}`'


def validate(document: object, path: str, environ: Mapping[str, str]) -> tuple[WorkbenchConfig | None, list[Problem]]:
    """Return the configuration that `document` describes, or None and all of its problems."""
    file = _File(path, environ)
    config = file.read(document)
    problems = file.reader.problems
    return (None if problems else config), problems


def foreign_part(document: object, steps: Path) -> bool:
    """Whether `steps` lead into a part of a plain file that belongs to another program."""
    root = _root_of(document)
    return root in PLAIN_ROOTS and bool(steps) and steps[0] not in (root, *WorkbenchConfig.SETTINGS)


def _root_of(document: object) -> str | None:
    """Return the key that holds the servers, which determines the kind of file."""
    if isinstance(document, dict):
        for root in (TOOLBOXES_ROOT, *PLAIN_ROOTS):
            if root in document:
                return root
    return None


def _about_servers_below(document: dict[str, object]) -> str | None:
    """Return what to do if the servers are further down, like those of single projects in `~/.claude.json`."""
    for steps, holder in _holders(document):
        for root in PLAIN_ROOTS:
            servers = holder.get(root)
            if isinstance(servers, dict) and servers:
                named = ", ".join(map(quote, list(servers)[:3])) + (", …" if len(servers) > 3 else "")
                place = render_path((*steps, root))
                return (
                    f"there are servers at {place} ({named}): copy them to `mcpServers` at the top of a file of its own"
                )
    return None


def _about_elsewhere(document: dict[str, object]) -> str | None:
    return _about_opencode(document) or _about_servers_below(document)


def _about_opencode(document: dict[str, object]) -> str | None:
    """Return what to do with opencode's servers, which are at `mcp` or at `mcp.servers`, in its own format."""
    steps: Path = ("mcp",)
    servers = document.get("mcp")
    if isinstance(servers, dict) and isinstance(servers.get(SERVERS_ROOT), dict):
        steps, servers = ("mcp", SERVERS_ROOT), servers[SERVERS_ROOT]
    if not isinstance(servers, dict):
        return None
    named = [name for name, entry in servers.items() if isinstance(entry, dict) and _is_of_opencode(entry)]
    if not named:
        return None
    shown = ", ".join(map(quote, named[:3])) + (", …" if len(named) > 3 else "")
    return (
        f"at {render_path(steps)} are servers as opencode writes them ({shown}): copy them to `mcpServers` of another "
        "file, the first word of `command` as `command` and the others as `args`, `environment` as `env`, and "
        "`{env:X}` as `${X}`"
    )


def _is_of_opencode(entry: dict[str, object]) -> bool:
    return isinstance(entry.get("command"), list) or entry.get("type") == "remote" or "environment" in entry


def _holders(document: dict[str, object]) -> Iterator[tuple[Path, dict[str, object]]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield (name,), value
            for below, deeper in value.items() if name == _PROJECTS else ():
                if isinstance(deeper, dict):
                    yield (name, below), deeper


def _servers_of_projects(document: dict[str, object]) -> dict[str, tuple[str, ...]]:
    """Return the names of the servers that `~/.claude.json` has for single projects, next to its own. They are not
    used, because it is unknown which project is meant."""
    projects = document.get(_PROJECTS)
    found = {}
    for project, holder in projects.items() if isinstance(projects, dict) else ():
        servers = holder.get(MCP_SERVERS) if isinstance(holder, dict) else None
        if isinstance(servers, dict) and servers:
            found[project] = tuple(servers)
    return found


class _File:
    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self._path = path
        self._folder = os.path.dirname(os.path.abspath(path))
        self.reader = Reader(environ, self._folder)
        self._disabled: list[str] = []
        # `inheritEnv` of the file.
        self._inherit_env: tuple[str, ...] = ()
        # `share` of the file.
        self._share: Share | None = None
        # `sandbox` of the file.
        self._sandbox: SandboxConfig | None = None
        # Whether the file itself chooses the face `dynamic`; `--face` is checked when the face is made.
        self._is_dynamic = False
        self._ignored_keys: dict[str, list[str]] = {}

    def read(self, document: object) -> WorkbenchConfig | None:
        if not isinstance(document, dict):
            self.reader.wrong(document, (), "an object with `toolboxes` or `mcpServers` in it")
            return None
        root = _root_of(document)
        if root is None:
            self._rootless(document)
            return None
        plain = root != TOOLBOXES_ROOT
        self._is_dynamic = document.get("face") in JOINING_FACES
        written = self._read_present(WorkbenchConfig.SETTINGS, document)
        # Every server inherits these.
        self._inherit_env = written.get("inheritEnv", ())
        self._share = written.get("share")
        self._sandbox = written.get("sandbox")
        toolboxes = self._read_plain(document, root) if plain else self._read_toolboxes(document)
        if not plain:
            self._check_file_keys(document)
        if not toolboxes and self._disabled and not self.reader.problems:
            self.reader.problem((root,), "every server is disabled", "at least one that is not", at_key=True)
        return WorkbenchConfig(
            path=os.path.abspath(self._path),
            toolboxes=toolboxes,
            plain=plain,
            secrets=frozenset((*self.reader.secrets, *self.reader.secrets_around())),
            disabled=tuple(self._disabled),
            ignored_keys={key: tuple(servers) for key, servers in self._ignored_keys.items()},
            project_servers=_servers_of_projects(document) if plain else {},
            references=tuple(ReferringValue(path, parts) for path, parts in self.reader.references.items()),
            **_by_field(written),
        )

    def _read_present(self, settings: dict[str, Setting], entry: dict[str, object], path: Path = ()) -> dict[str, Any]:
        """Return the valid settings of the file or a toolbox by name; the model has defaults for all others."""
        found = {}
        for name, written in entry.items():
            if name in settings and name != "$schema":
                value = settings[name].kind.read(written, (*path, name), self.reader)
                if value is not None:
                    found[name] = value
        return found

    def _rootless(self, document: dict[str, object]) -> None:
        """Report a file of neither kind: a misspelt root is reported as such; other keys may belong to any program."""
        from mcp_workbench.engine.nearest import nearest

        roots = (TOOLBOXES_ROOT, MCP_SERVERS)
        misspelt = [
            name for name in document if nearest(name, roots, 1) and _about_elsewhere({name: document[name]}) is None
        ]
        for name in misspelt[:10]:
            self.reader.unknown_key((name,), roots)
        # Neither kind, and nothing similar: perhaps a file of another program, whose servers are further down.
        if not misspelt:
            found = "found neither `toolboxes` nor `mcpServers`"
            hint = _about_elsewhere(document) or f"a small configuration: {_EXAMPLE_CONFIG}"
            self.reader.problem((), found, "one of them", hint=hint)

    def _check_file_keys(self, document: dict[str, object]) -> None:
        known = (TOOLBOXES_ROOT, *WorkbenchConfig.SETTINGS)
        for name in document:
            if name in known:
                continue
            if name in PLAIN_ROOTS:
                self.reader.problem(
                    (name,),
                    f"found {quote(name)} next to `toolboxes`",
                    "only one of them",
                    hint="move these servers into a toolbox",
                    at_key=True,
                )
            else:
                self.reader.unknown_key((name,), known, hint=_ABOUT_TOOL_MODE if name == "toolMode" else None)

    def _read_toolboxes(self, document: dict[str, object]) -> dict[str, ToolboxConfig]:
        path = (TOOLBOXES_ROOT,)
        entries = self._entries(document[TOOLBOXES_ROOT], path, "toolbox")
        toolboxes = {}
        for name, entry in entries.items():
            toolbox = self._read_toolbox(name, entry, (*path, name))
            if toolbox is not None and toolbox.servers:
                toolboxes[name] = toolbox
        return toolboxes

    def _read_toolbox(self, name: str, entry: dict[str, object], path: Path) -> ToolboxConfig | None:
        for key in entry:
            if key not in ToolboxConfig.SETTINGS and key != MCP_SERVERS:
                belongs = key in ServerConfig.SETTINGS
                hint = f"{quote(key)} is a setting of a server: write it inside `mcpServers`" if belongs else None
                self.reader.unknown_key((*path, key), (*ToolboxConfig.SETTINGS, MCP_SERVERS), hint=hint)
        written = self._read_present(ToolboxConfig.SETTINGS, entry, path)
        if "description" not in entry:
            hint = "say in a sentence what the toolbox is for: the agent chooses by it"
            self.reader.problem(path, "found no `description`", "one", hint=hint, at_key=True)
        if MCP_SERVERS not in entry:
            self.reader.problem(path, "found no `mcpServers`", "at least one server", at_key=True)
            return None
        servers = self._read_servers(
            name,
            entry[MCP_SERVERS],
            (*path, MCP_SERVERS),
            foreign=False,
            inherit_env=written.get("inheritEnv", self._inherit_env),
            share=written.get("share", self._share),
            sandbox=written.get("sandbox", self._sandbox),
        )
        return ToolboxConfig(
            name=name, description=written.get("description", ""), budget=written.get("budget"), servers=servers
        )

    def _read_plain(self, document: dict[str, object], root: str) -> dict[str, ToolboxConfig]:
        if document[root] == {} and (hint := _about_servers_below(document)):
            self._refuse_entries({}, (root,), "server", hint=hint)
            return {}
        servers = self._read_servers(
            PLAIN_TOOLBOX,
            document[root],
            (root,),
            foreign=True,
            inherit_env=self._inherit_env,
            share=self._share,
            sandbox=self._sandbox,
        )
        if not servers:
            return {}
        # A plain file has no descriptions, but in the face `proxy` agents choose by them.
        description = f"The servers of {os.path.basename(self._path)}"
        return {PLAIN_TOOLBOX: ToolboxConfig(name=PLAIN_TOOLBOX, description=description, servers=servers)}

    def _read_servers(
        self,
        toolbox: str,
        value: object,
        path: Path,
        *,
        foreign: bool,
        inherit_env: tuple[str, ...],
        share: Share | None,
        sandbox: SandboxConfig | None,
    ) -> dict[str, ServerConfig]:
        servers = {}
        for name, entry in self._entries(value, path, "server").items():
            # A separate reader, because what the environment lacks affects only this server.
            reader = self.reader.for_part()
            server = WrittenServer(
                name,
                entry,
                (*path, name),
                reader,
                folder=self._folder,
                foreign=foreign,
                inherit_env=inherit_env,
                share=share,
                sandbox=sandbox,
            )
            if server.is_disabled():
                self._disabled.append(f"{toolbox}/{name}")
                # A disabled server may lack its variables: that is often why it is disabled.
                self.reader.problems += (each for each in reader.problems if not each.of_environment)
                continue
            config = server.config()
            for key in server.ignored_keys():
                self._ignored_keys.setdefault(key, []).append(f"{toolbox}/{name}")
            self.reader.secrets |= reader.secrets
            if config is not None:
                servers[name] = config
            else:
                self.reader.problems += reader.problems
        return servers

    def _entries(self, value: object, path: Path, what: str) -> dict[str, dict[str, object]]:
        """Return the named objects of a map of toolboxes or servers; anything else is reported."""
        if not isinstance(value, dict) or not value:
            self._refuse_entries(value, path, what)
            return {}
        entries = {}
        for name, entry in value.items():
            self.reader.name(name, (*path, name), what, is_registered=self._is_dynamic)
            if isinstance(entry, dict):
                entries[name] = entry
            else:
                self.reader.wrong(entry, (*path, name), f"an object that describes the {what}")
        return entries

    def _refuse_entries(self, value: object, path: Path, what: str, hint: str | None = None) -> None:
        self.reader.wrong(value, path, f"an object with at least one {what} by its name", hint=hint)


def _by_field(written: dict[str, Any]) -> dict[str, Any]:
    settings = WorkbenchConfig.SETTINGS
    fields = {settings[name].field: value for name, value in written.items() if settings[name].field}
    if fields.get("shared_idle_exit") == 0:
        fields["shared_idle_exit"] = None
    return fields
