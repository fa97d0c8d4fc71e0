"""The loaded configuration: plain frozen values with every default filled in.

Owns the vocabulary of the configuration. Knows neither how it was written down (`load`) nor anything that runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from mcp_workbench.engine.faces import DEFAULT_FACE, DEFAULT_FACE_OF_PLAIN_FILES

if TYPE_CHECKING:
    from mcp_workbench.engine.config.auth_model import (
        AuthConfig,
        ForwardedIdentityConfig,
        ProxyConfig,
        TokenExchangeConfig,
    )
    from mcp_workbench.engine.config.problems import Problem
    from mcp_workbench.engine.config.program_paths import ProgramPaths

Transport = Literal["stdio", "http", "sse", "auto"]
# A name from the table `engine.faces.FACES`.
FaceName = str
# Clients that share one process of a server: those in the same folder, all of the user's, none, or those of all users.
Share = Literal["project", "user", "session", "everyone"]
# What a rule of the policy decides, from the loosest to the strictest.
Then = Literal["allow", "ask", "deny", "hide"]
Lock = Literal["warn", "enforce"]
# "auto" probes, "legacy" does the handshake, "modern" is stateless; a revision date pins that revision.
ProtocolChoice = str

DEFAULT_CALL_TIMEOUT = 120.0
# `npx -y` and `uvx` download a package on their first start; half a minute is not unusual.
DEFAULT_STARTUP_TIMEOUT = 60.0
DEFAULT_IDLE_TIMEOUT = 600.0
# A tenth of the context of most models. Nobody can read more in one go, and what is left out is kept.
DEFAULT_RESULT_BUDGET = 20_000
# Long enough for a user who goes to a meeting between two sessions.
DEFAULT_SHARED_IDLE_EXIT = 900.0
# Separates the parts of a name in the face `flat`.
DEFAULT_SEPARATOR = ":"
DEFAULT_REGISTRY = "https://registry.modelcontextprotocol.io"
# Tokens (bytes / 4) that the answer of `open_toolbox` may take. Clients warn at 10,000.
DEFAULT_BUDGET = 6_000
# The largest message that passes, in bytes. 64 MiB must pass; larger results are almost always a mistake.
DEFAULT_MAX_MESSAGE_BYTES = 128 * 1024 * 1024
DEFAULT_MAX_DEFINITION_BYTES = 256 * 1024
DEFAULT_MAX_PENDING_BODY_BYTES = 256 * 1024 * 1024
# About 200,000 lines of the audit log in each file; a gigabyte in all.
DEFAULT_AUDIT_BYTES = 64 * 1024 * 1024
DEFAULT_AUDIT_FILES = 16


class Reference(Struct, frozen=True, kw_only=True):
    """A value stored elsewhere, which is fetched when a server starts and never before."""

    # "variable": one that is not set, and may be in the server's `envFile`.
    kind: str
    # As in the file, for use in messages.
    written: str
    # A path; `service/name`; a program and its arguments; the name of a variable.
    words: tuple[str, ...]
    # The base of relative paths, and the folder in which the program runs.
    folder: str = ""
    # For a variable only; None: the server cannot be started without it.
    default: tuple[Part, ...] | None = None


Part = str | Reference


class ReferringValue(Struct, frozen=True):
    """A value of a server that is assembled when the server starts."""

    # The field it belongs to: `("env", "TOKEN")`, `("args", 1)`, `("url",)`, `("oauth", "client_secret")`.
    field: tuple[str | int, ...]
    parts: tuple[Part, ...]


def text_of(parts: Iterable[Part]) -> str:
    """Return the text for display, with references as written."""
    return "".join(part if isinstance(part, str) else part.written for part in parts)


class OAuthConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """How to sign in to a server, where that differs from what can be discovered. None: as discovered."""

    client_id: str | None = None
    client_secret: str | None = None
    # PEM or JWK, for `private_key_jwt`.
    private_key: str | None = None
    key_id: str | None = None
    signing_algorithm: str | None = None
    client_metadata_url: str | None = None
    grant: str | None = None
    scopes: tuple[str, ...] | None = None
    # "": none is sent.
    resource: str | None = None
    issuer: str | None = None
    issuer_check: str | None = None
    pkce: str | None = None
    token_auth_method: str | None = None
    offline_access: str | None = None
    callback_host: str | None = None
    callback_port: int | None = None
    extra_authorize_params: dict[str, str] | None = None
    scope_param: str | None = None
    scope_separator: str | None = None
    initial_access_token: str | None = None
    # Distinguishes several sign-ins at one address.
    account: str | None = None
    # How long a sign-in lasts there, however often its token is refreshed.
    grant_days: int | None = None


class AuditConfig(Struct, frozen=True, kw_only=True):
    """Where the audit log is written. Exactly one of the three is set."""

    # An absolute path.
    file: str | None = None
    # A path, or `host:port`.
    syslog: str | None = None
    stdout: bool = False
    arguments: Literal["none", "shape", "redacted"] = "none"
    when_full: Literal["count", "wait"] = "count"
    max_file_bytes: int = DEFAULT_AUDIT_BYTES
    keep_files: int = DEFAULT_AUDIT_FILES


class ServerContext(Struct, frozen=True, kw_only=True):
    """What affects a server beyond its own entry: its client's context, and settings for the whole file."""

    # The environment that servers inherit from, as far as the configuration allows.
    environ: Mapping[str, str] = os.environ
    # Where programs without a `cwd` are started; None: in the folder of this process.
    folder: str | None = None
    # What its `PATH` leads to; None: the text of `PATH` counts.
    programs: ProgramPaths | None = None
    # The file.
    path: str = ""
    # What happens to definitions that differ from the lock file in the same folder. Servers are not shared between
    # different lock files, nor between different values of this.
    lock: Lock | None = None
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    max_definition_bytes: int = DEFAULT_MAX_DEFINITION_BYTES
    # Whether sign-ins have to be encrypted; None: left as they are.
    keychain: bool | None = None
    # The principal whose connections list what the server offers; empty for our own user.
    principal: str = ""


class ServerConfig(Struct, frozen=True, kw_only=True):
    """An MCP server in a toolbox: a child process (`command`) or a remote address (`url`)."""

    name: str
    transport: Transport = "stdio"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    # Names and globs of variables that it inherits in addition to the harmless ones.
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    oauth: OAuthConfig | None = None
    forward_identity: ForwardedIdentityConfig | None = None
    token_exchange: TokenExchangeConfig | None = None
    # None means all tools; an empty tuple means none.
    tool_filters: tuple[str, ...] | None = None
    # Original tool name to the name shown instead (faces `flat` and `dynamic`).
    rename: dict[str, str] = field(default_factory=dict)
    timeout: float = DEFAULT_CALL_TIMEOUT
    startup_timeout: float = DEFAULT_STARTUP_TIMEOUT
    # None: never stopped for being idle.
    idle_timeout: float | None = DEFAULT_IDLE_TIMEOUT
    # Whether that also holds while a connected client has it open: only if the user set the timeout.
    stops_in_use: bool = False
    protocol: ProtocolChoice = "auto"
    # None: what is known about the server, else "project".
    share: Share | None = None
    # Whether it may send requests to clients: elicitation, sampling, roots.
    ask: bool = True
    # Tokens that a result may take; 0 means no limit. None: the default of `use_tool`.
    result_budget: int | None = None
    # Files of variables, read when it starts.
    env_files: tuple[str, ...] = ()
    # When each of them was last written: a program that runs with other variables is a different one.
    env_file_times: tuple[int, ...] = ()
    # Values to fetch when it starts. Until then, the fields hold them as written.
    references: tuple[ReferringValue, ...] = ()
    # What the environment lacks for this server alone. It cannot be started then, and fields may be missing.
    unresolved: tuple[Problem, ...] = ()

    def original_name(self, shown: str) -> str:
        """What the server itself calls the tool that is shown with this name."""
        return next((original for original, new in self.rename.items() if new == shown), shown)


def references_in(server: ServerConfig) -> list[Reference]:
    """Return everything that a server refers to, including in defaults."""
    found: list[Reference] = []
    waiting = [part for value in server.references for part in value.parts]
    while waiting:
        part = waiting.pop(0)
        if not isinstance(part, str):
            found.append(part)
            waiting += part.default or ()
    return found


class ToolboxConfig(Struct, frozen=True, kw_only=True):
    """A named group of servers, the unit that an agent opens."""

    name: str
    description: str
    # None: the budget of the file. 0: no limit.
    budget: int | None = None
    servers: dict[str, ServerConfig]


class PolicyRule(Struct, frozen=True, kw_only=True):
    """A rule of `policy`: it decides if all its conditions hold. What it does not name may be anything."""

    then: Then
    # Globs of principals, and `group:` with a glob of groups; empty for everyone.
    who: tuple[str, ...] = ()
    # Globs of `toolbox/server/item`. A rule without any of the three applies to everything.
    tools: tuple[str, ...] | None = None
    prompts: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    # Annotations by the server about its tool.
    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    # JSON Pointers into the arguments, and globs that the values must match.
    arguments: dict[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, tuple[str, ...] | None]:
        """The patterns for each kind of item."""
        return {"tools": self.tools, "prompts": self.prompts, "resources": self.resources}

    @property
    def has_annotations(self) -> bool:
        """Whether it depends on a server's annotations of its own tool."""
        return not self.read_only is self.destructive is self.open_world is None

    @property
    def is_default(self) -> bool:
        """Whether it matches everything."""
        is_about_all = all(patterns is None for patterns in self.kinds.values())
        return is_about_all and not self.who and not self.arguments and not self.has_annotations


class LimitRule(Struct, frozen=True, kw_only=True):
    """An entry of `limits`: what each principal of `who`, each server of `servers`, or each pair of both may use."""

    who: tuple[str, ...] | None = None
    # Globs of `toolbox/server`.
    servers: tuple[str, ...] | None = None
    calls_in_flight: int | None = None
    calls_per_minute: int | None = None
    bytes_per_minute: int | None = None
    # The longest that a call may take, in seconds.
    call_seconds: float | None = None


class LockTarget(Struct, frozen=True):
    """What a lock file covers."""

    path: str
    # The name of the configuration.
    config: str
    # Toolbox and name of every server.
    places: tuple[tuple[str, str], ...]
    # Whether it covers single resources, too.
    has_resources: bool = False


class WorkbenchConfig(Struct, frozen=True, kw_only=True):
    """The whole file. `plain` marks a bare `mcpServers` file, whose servers form one toolbox named `default`."""

    path: str
    toolboxes: dict[str, ToolboxConfig]
    plain: bool = False
    # None: the default for this kind of file (`face_in_force`).
    face: FaceName | None = None
    separator: str = DEFAULT_SEPARATOR
    # 0: no limit.
    budget: int = DEFAULT_BUDGET
    check_arguments: bool = True
    # The first client starts the shared workbench, and all clients join it.
    shared: bool = False
    # Seconds without clients after which the shared workbench exits; None: never.
    shared_idle_exit: float | None = DEFAULT_SHARED_IDLE_EXIT
    # `toolbox/server/tool`
    pin: tuple[str, ...] = ()
    # Whether read-only tools are called with a different tool than those that write.
    splits_use_tool: bool = False
    # By name or glob of clients, settings that add to the table in `clients`.
    clients: dict[str, dict[str, object]] = field(default_factory=dict)
    # Who may do what; empty: everyone may do everything.
    policy: tuple[PolicyRule, ...] = ()
    limits: tuple[LimitRule, ...] = ()
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    max_definition_bytes: int = DEFAULT_MAX_DEFINITION_BYTES
    max_pending_body_bytes: int = DEFAULT_MAX_PENDING_BODY_BYTES
    # Whether sign-ins are encrypted with a key in the system's keychain; None: left as they are.
    keychain: bool | None = None
    # Where `add` looks up servers by name.
    registry: str = DEFAULT_REGISTRY
    # None: no audit log.
    audit: AuditConfig | None = None
    # Whether definitions that differ from the lock file are only reported, or hidden; None: there is no lock.
    lock: Lock | None = None
    # Whether the lock covers single resources, which most servers list as data.
    lock_resources: bool = False
    # Who may call over HTTP, in addition to holders of a token or a key.
    auth: AuthConfig | None = None
    trusted_proxy: ProxyConfig | None = None
    # References in these two: `("auth", "clientSecret")`, `("auth", 1, "clientSecret")`, `("trustedProxy", "secret")`.
    references: tuple[ReferringValue, ...] = ()
    # When the file was last written before it was read, in nanoseconds; 0 if there was no file.
    modified_at: int = 0
    # What must never be printed: values of `env` and `headers`, and the values of `${VAR}`.
    secrets: frozenset[str] = frozenset()
    # `toolbox/server` of the servers that the file disables; they are in no toolbox.
    disabled: tuple[str, ...] = ()
    # Keys that mean something to another client and nothing here, and the `toolbox/server` of their servers.
    ignored_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Servers of single projects in the file of another client, by project. They are not used.
    project_servers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def servers(self) -> list[tuple[str, ServerConfig]]:
        """Return every server with its `toolbox/server`, in the order of the file. Not a dictionary, because any of the
        names may contain a slash, so that two labels may be equal."""
        return [
            (f"{box.name}/{name}", server) for box in self.toolboxes.values() for name, server in box.servers.items()
        ]

    @property
    def unresolved(self) -> list[Problem]:
        """What the environment lacks for single servers, in the order of the file."""
        return [problem for _, server in self.servers() for problem in server.unresolved]

    @property
    def lock_path(self) -> str:
        """The path of the lock file, which is next to this file."""
        return os.path.join(os.path.dirname(self.path), "workbench.lock")

    @property
    def lock_target(self) -> LockTarget:
        places = tuple((box.name, name) for box in self.toolboxes.values() for name in box.servers)
        return LockTarget(self.lock_path, os.path.basename(self.path), places, self.lock_resources)

    @property
    def face_in_force(self) -> FaceName:
        """The face that clients see, unless the command line overrides it."""
        return self.face or (DEFAULT_FACE_OF_PLAIN_FILES if self.plain else DEFAULT_FACE)


def modified_at(path: str) -> int:
    """Return when the file was last written, in nanoseconds; 0 if there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return 0
