"""The configuration: every setting of the file, of a toolbox and of a server, and the loaded values.

Owns the vocabulary. A setting is declared here once (`setting`), or in the module of the object that it is a member of;
values are plain and frozen, with every default filled in. Knows neither how a file is read (`load`) nor anything that
runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from mcp_workbench.engine.config.kinds import (
    Boolean,
    Choice,
    Files,
    Filters,
    Seconds,
    Separator,
    Sharing,
    Text,
    Texts,
    Url,
    UrlOrPath,
    Whole,
    one_of,
)
from mcp_workbench.engine.config.mappings import Deferred, Environment, Headers, Renames, VariablePatterns
from mcp_workbench.engine.config.setting import REQUIRED, Declared, setting
from mcp_workbench.engine.economy.tokens import MIN_TOKEN_BUDGET
from mcp_workbench.engine.faces import DEFAULT_FACE, DEFAULT_FACE_OF_PLAIN_FILES, FACES
from mcp_workbench.engine.protocol.revisions import KNOWN

if TYPE_CHECKING:
    from mcp_workbench.engine.config.audit_settings import AuditConfig
    from mcp_workbench.engine.config.auth_settings import (
        AuthConfig,
        ForwardedIdentityConfig,
        ProxyConfig,
        TokenExchangeConfig,
    )
    from mcp_workbench.engine.config.cluster_settings import ClusterConfig
    from mcp_workbench.engine.config.expand import Part, Reference
    from mcp_workbench.engine.config.metrics_settings import MetricsConfig
    from mcp_workbench.engine.config.oauth_settings import OAuthConfig
    from mcp_workbench.engine.config.page_settings import PageConfig
    from mcp_workbench.engine.config.policy_settings import LimitRule, PolicyRule
    from mcp_workbench.engine.config.problems import Problem
    from mcp_workbench.engine.config.program_paths import ProgramPaths
    from mcp_workbench.engine.config.program_settings import ProgramsConfig
    from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
    from mcp_workbench.engine.config.telemetry_settings import TelemetryConfig

Transport = Literal["stdio", "http", "sse", "auto"]
# A name from the table `engine.faces.FACES`.
FaceName = str
# Clients that share one process of a server: those in the same folder, all of the user's, none, or those of all users.
Share = Literal["project", "user", "session", "everyone"]
Lock = Literal["warn", "enforce"]
LOCK_NAME = "workbench.lock"
# "auto" probes, "legacy" does the handshake, "modern" is stateless; a revision date pins that revision.
ProtocolChoice = str

# Every spelling of a transport, of this and of other clients.
_TRANSPORT_SPELLINGS = {
    **dict.fromkeys(("stdio", "local"), "stdio"),
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
    "sse": "sse",
    "auto": "auto",
}
_SHARED_BY = (
    "Which clients share one process of a server: those in the same folder (`project`), all of yours (`user`; it then "
    "runs in its `cwd` or your home folder and gets no roots), or none, so that each has its own (`session`). If unset "
    "it is `session` for servers known to keep a person's state in the process, else `project`. "
)
_INHERITED = (
    "Further variables of the workbench's environment that programs inherit, by name or `*` glob, in addition to a few "
    'harmless ones such as `PATH` and `HOME`. `["*"]` passes everything except the workbench\'s own. '
)
_CONFINED = (
    "What programs may touch: everything that you may (`off`), but for reaching into other programs and gaining "
    "privileges (`guard`), only files of their own (`contained`, or `true`), and no network either (`sealed`); or an "
    "object with a `profile` and what differs from it. If unset, as much of `guard` as this machine can enforce. "
)
_SANDBOX_MEMBER = Deferred("sandbox_settings", "SANDBOX")
_VARIABLES = VariablePatterns("a list of names and globs of variables")
_BUDGET = Whole("tokens", MIN_TOKEN_BUDGET, 1_000_000, none=True)
_TOOL_NAMES = Filters("a list of tool names")

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

TOOLBOXES_ROOT = "toolboxes"
MCP_SERVERS = "mcpServers"
SERVERS_ROOT = "servers"
CONTEXT_SERVERS = "context_servers"
# A file with one of these at its top level belongs to another client, and has no toolboxes.
PLAIN_ROOTS = (MCP_SERVERS, SERVERS_ROOT, CONTEXT_SERVERS)


class ReferringValue(Struct, frozen=True):
    """A value of a server that is assembled when the server starts."""

    # The field it belongs to: `("env", "TOKEN")`, `("args", 1)`, `("url",)`, `("oauth", "client_secret")`.
    field: tuple[str | int, ...]
    parts: tuple[Part, ...]


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
    # What happens to secrets of other servers in what a server sends; None: nothing is looked for.
    redact_results: Literal["warn", "block"] | None = None
    # The principal whose connections list what the server offers; empty for our own user.
    principal: str = ""
    # Whether signatures end with the type of the result, which programs need to know.
    shows_results: bool = False


class ServerConfig(Declared, frozen=True, kw_only=True):
    """An MCP server in a toolbox: a child process (`command`) or a remote address (`url`)."""

    name: str
    command: str | None = setting(
        Text(), "The program to start, looked up on `PATH`. Either this or `url`.", identity="always"
    )
    args: tuple[str, ...] = setting(
        Texts("a list of strings", empty_items=True),
        "The program's arguments.",
        (),
        title="Arguments",
        identity="always",
        fetches=True,
    )
    env: dict[str, str] = setting(
        Environment(),
        "Environment variables for the program, in addition to the inherited ones. Never printed.",
        {},
        title="Environment",
        identity="always",
        fetches=True,
    )
    inherit_env: tuple[str, ...] = setting(
        _VARIABLES,
        _INHERITED + "For this server, instead of the list of the toolbox or the file.",
        (),
        shown=None,
        title="Inherited variables",
        identity="always",
    )
    cwd: str | None = setting(
        Text(),
        "The folder the program is started in. A relative path starts at the folder of this file. If unset, the folder "
        "the workbench was started in.",
        title="Working folder",
        identity="always",
    )
    # None: `guard`, as far as this machine can enforce it.
    sandbox: SandboxConfig | None = setting(
        _SANDBOX_MEMBER,
        _CONFINED + "For this server, instead of that of the toolbox or the file.",
        identity="if set",
    )
    env_files: tuple[str, ...] = setting(
        Files("a path, or a list of paths"),
        "`.env` files with variables for the program; `env` overrides them. `${VAR}` in `args`, `env`, `headers`, "
        "`url` and `clientSecret` of this server finds them too, unless the environment has a variable of that name. "
        "Read when the server starts. Relative paths start at the folder of this file.",
        (),
        name="envFile",
        title="Environment files",
        identity="if set",
    )
    url: str | None = setting(
        Url(),
        "The address of a remote server, `http` or `https`. Either this or `command`.",
        title="Address",
        identity="always",
        fetches=True,
    )
    server_url = setting(
        Url(), "Another name for `url`, as Windsurf writes it.", title="Address (Windsurf)", fetches=True
    )
    http_url = setting(
        Url(),
        "Another name for `url`, as Gemini CLI writes it; streamable HTTP only.",
        title="Address (Gemini)",
        fetches=True,
    )
    headers: dict[str, str] = setting(
        Headers(), "Sent with every request to the address. Never printed.", {}, identity="always", fetches=True
    )
    oauth: OAuthConfig | None = setting(
        Deferred("oauth_settings", "OAUTH"),
        "How to sign in with OAuth, for servers that cannot be discovered or do not register clients: a client of your "
        "own, scopes, the callback. Most servers need nothing here.",
        shown={},
        title="Signing in",
    )
    # With either, the server is told who the user is, and may offer different tools to each.
    forward_identity: ForwardedIdentityConfig | None = setting(
        Deferred("auth_settings", "FORWARD_IDENTITY"),
        "Tell the server who the user is.",
        title="Forwarded identity",
        identity="if set",
    )
    token_exchange: TokenExchangeConfig | None = setting(
        Deferred("auth_settings", "TOKEN_EXCHANGE"), "Exchange the user's token for one for it.", identity="if set"
    )
    transport: Transport = setting(
        Choice(_TRANSPORT_SPELLINGS),
        "How to talk to the server. If unset, `stdio` for a command, and `auto` for an address, which tries streamable "
        "HTTP and then the older SSE.",
        "stdio",
        shown=None,
        identity="always",
    )
    type = setting(
        Choice(_TRANSPORT_SPELLINGS), "Another name for `transport`, as most clients write it.", title="Transport"
    )
    # None means all tools; an empty tuple means none.
    tool_filters: tuple[str, ...] | None = setting(
        Filters("a list of tool names and globs"),
        "Which tools are listed and can be called: exact names and `*` globs; `!name` excludes. `[]` means none. If "
        "unset, all.",
    )
    include_tools = setting(
        _TOOL_NAMES,
        "Only these tools, as Gemini CLI writes it. `toolFilters` overrides it.",
        title="Included tools (Gemini)",
    )
    tools = setting(
        _TOOL_NAMES,
        "Only these tools, as Copilot CLI writes it. `toolFilters` overrides it.",
        title="Included tools (Copilot)",
    )
    exclude_tools = setting(
        _TOOL_NAMES,
        "All tools except these, as Gemini CLI writes it. Added to `toolFilters`.",
        title="Excluded tools (Gemini)",
    )
    disabled_tools = setting(
        _TOOL_NAMES,
        "All tools except these, as Windsurf, Roo Code and Kiro write it. Added to `toolFilters`.",
        title="Excluded tools (Windsurf, Roo, Kiro)",
    )
    rename: dict[str, str] = setting(
        Renames(),
        "New names for tools in the faces `flat` and `dynamic`, by their original name.",
        {},
        title="Renamed tools",
    )
    timeout: float = setting(Seconds(), "How long a call may take, in seconds.", 120.0, title="Call timeout")
    # `npx -y` and `uvx` download a package on their first start; half a minute is not unusual.
    startup_timeout: float = setting(
        Seconds(),
        "How long the server may take to start, in seconds, including downloads by `npx` or `uvx`.",
        60.0,
        title="Start timeout",
    )
    # None: never stopped for being idle.
    idle_timeout: float | None = setting(
        Seconds(never=True),
        "Stop the server after this many seconds without a call, even if a client has it open; the next call starts it "
        f"again, and says so. `null` or 0: never. Without it, after {DEFAULT_IDLE_TIMEOUT:.0f} seconds, and only if no "
        "connected client has opened or used it.",
        DEFAULT_IDLE_TIMEOUT,
        shown=None,
    )
    # Whether that also holds while a connected client has it open: only if the user set the timeout.
    stops_in_use: bool = False
    protocol: ProtocolChoice = setting(
        one_of("auto", "legacy", "modern", *KNOWN),
        "The protocol spoken to the server: detected (`auto`), with a handshake (`legacy`), without one (`modern`), or "
        "a particular revision of MCP.",
        "auto",
        identity="always",
    )
    # None: what is known about the server, else "project".
    share: Share | None = setting(
        Sharing(is_of_server=True),
        _SHARED_BY + "For this server; `everyone` lets all users share it, for servers that keep no user's data.",
        title="Sharing",
    )
    ask: bool = setting(
        Boolean(),
        "Whether the server may send requests to clients (elicitation, sampling, roots). With `false` it is told that "
        "they support none of these, so that clients with different capabilities can share it.",
        True,
        title="Questions",
        identity="if set",
    )
    # 0 means no limit. None: the default of `use_tool`.
    result_budget: int | None = setting(
        Whole("tokens", 100, 10_000_000, none=True),
        "How many tokens (estimated) a result of this server may use in the face `proxy`. A larger one is kept for a "
        "while; the agent gets its beginning and how to read the rest. `null`: no limit.",
        shown=DEFAULT_RESULT_BUDGET,
    )
    disabled = setting(Boolean(), "`true` leaves the server out.", False)
    enabled = setting(Boolean(), "`false` leaves the server out.", True)
    # When each of `env_files` was last written: a program that runs with other variables is a different one.
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


class ToolboxConfig(Declared, frozen=True, kw_only=True):
    """A named group of servers, the unit that an agent opens."""

    name: str
    description: str = setting(
        Text(), "What the toolbox is for. Agents read it to decide when to open the toolbox.", REQUIRED
    )
    # None: the budget of the file. 0: no limit.
    budget: int | None = setting(
        _BUDGET, "The budget of this toolbox, instead of the one for the whole file.", title="Token budget"
    )
    inherit_env = setting(
        _VARIABLES,
        _INHERITED + "For the servers of this toolbox, instead of the list of the file.",
        title="Inherited variables",
    )
    share = setting(Sharing(), _SHARED_BY + "For the servers of this toolbox.", title="Sharing")
    sandbox = setting(_SANDBOX_MEMBER, _CONFINED + "For the servers of this toolbox, instead of that of the file.")
    servers: dict[str, ServerConfig]


class LockTarget(Struct, frozen=True):
    """What a lock file covers."""

    path: str
    # The name of the configuration.
    config: str
    # Toolbox and name of every server.
    places: tuple[tuple[str, str], ...]
    # Whether it covers single resources, too.
    has_resources: bool = False


def _shown_by_faces() -> str:
    *others, last = (f"{face.shows} (`{face.name}`)" for face in FACES.values())
    return f"{', '.join(others)}, or {last}"


class WorkbenchConfig(Declared, frozen=True, kw_only=True):
    """The whole file. `plain` marks a bare `mcpServers` file, whose servers form one toolbox named `default`."""

    path: str
    toolboxes: dict[str, ToolboxConfig]
    plain: bool = False
    schema = setting(
        Text(),
        "Where an editor finds the schema of this file. The workbench ignores it.",
        name="$schema",
        title="JSON Schema",
    )
    # None: the default for this kind of file (`face_in_force`).
    face: FaceName | None = setting(
        one_of(*FACES),
        f"What a client sees: {_shown_by_faces()}. Without it `{DEFAULT_FACE}`, and `{DEFAULT_FACE_OF_PLAIN_FILES}` "
        "for a plain `mcpServers` file.",
        needs_restart=True,
    )
    separator: str = setting(
        Separator(),
        "What separates the parts of a name in the face `flat`. `__` is accepted by every client, `:` is not.",
        DEFAULT_SEPARATOR,
        needs_restart=True,
    )
    max_message_bytes: int = setting(
        Whole("bytes", 1024, 2 * 1024 * 1024 * 1024),
        "The largest message, in bytes, that is accepted in either direction. Larger ones are answered with an error.",
        DEFAULT_MAX_MESSAGE_BYTES,
        title="Largest message",
        needs_restart=True,
    )
    max_definition_bytes: int = setting(
        Whole("bytes", 1024, 64 * 1024 * 1024),
        "The largest definition of a tool, prompt or resource, in bytes, that a server may list. Larger ones are left "
        "out and reported.",
        DEFAULT_MAX_DEFINITION_BYTES,
        title="Largest definition",
    )
    max_pending_body_bytes: int = setting(
        Whole("bytes", 1024, 64 * 1024 * 1024 * 1024),
        "Over HTTP: the total size, in bytes, of request bodies that are still being received; at least one message of "
        "the largest size always fits. Beyond it, large requests are asked to try again later; small ones are always "
        "accepted.",
        256 * 1024 * 1024,
        title="Pending bodies",
        needs_restart=True,
    )
    # 0: no limit.
    budget: int = setting(
        _BUDGET,
        "How many tokens (bytes / 4) the answer of `open_toolbox` may use. If the definitions with their schemas do "
        "not fit, a shorter overview uses a quarter of it. `null`: always full definitions.",
        DEFAULT_BUDGET,
        title="Token budget",
    )
    check_arguments: bool = setting(
        Boolean(),
        "Whether `use_tool` checks arguments against the tool's schema first, and reports mistakes instead of calling "
        "it.",
        True,
    )
    pin: tuple[str, ...] = setting(
        Texts("a list of `toolbox/server/tool`"),
        "Tools that the face `proxy` lists next to its own, for those used in every conversation.",
        (),
        title="Pinned tools",
    )
    splits_use_tool: bool = setting(
        Choice({"one": False, "split": True}),
        "In the face `proxy`: with `split`, tools annotated as read-only are called with `use_tool` and all others "
        "with `use_tool_that_writes`, so that clients can allow the former and ask before the latter.",
        False,
        shown="one",
        name="useTool",
        title="Calling tools",
        needs_restart=True,
    )
    # None: agents cannot send programs.
    programs: ProgramsConfig | None = setting(
        Deferred("program_settings", "PROGRAMS"),
        "In the face `proxy`: `true` lets agents send small programs that call many tools in one turn (`run_program`), "
        "or an object with what a program may use. Needs the extra `programs`.",
        title="Programs",
        needs_restart=True,
    )
    learn: bool | None = setting(
        Boolean(),
        "Whether searches learn which tool served which need, from stems of words and names of tools alone. If unset, "
        "they do for your own clients, but not over HTTP.",
        title="Learning from use",
        needs_restart=True,
    )
    clients: dict[str, dict[str, object]] = setting(
        Deferred("client_settings", "CLIENTS"),
        "Settings for particular clients, by their name in `mcp-workbench help client-behaviour` or in their "
        "`clientInfo`, `*` globs included. They override what the workbench knows about a client.",
        {},
    )
    inherit_env = setting(
        _VARIABLES,
        _INHERITED + "For all servers; a toolbox or server with its own list uses that instead.",
        (),
        title="Inherited variables",
    )
    share = setting(Sharing(), _SHARED_BY + "For all servers; a toolbox or server can override it.", title="Sharing")
    sandbox = setting(_SANDBOX_MEMBER, _CONFINED + "For all servers; a toolbox or server can override it.")
    keychain: bool | None = setting(
        Boolean(),
        "`true`: sign-ins are encrypted with a key in the system's keychain. `false`: they are not. If unset, they "
        "stay as they are; `mcp-workbench auth --encrypt` and `--decrypt` change that.",
        title="Encrypted sign-ins",
        needs_restart=True,
    )
    redact_results: Literal["warn", "block"] | None = setting(
        one_of("warn", "block"),
        "What happens if a server sends a secret of another server: it is reported in the log and the audit (`warn`), "
        "or also kept from the agent (`block`). If unset, nothing is looked for.",
        title="Secrets in results",
        needs_restart=True,
    )
    registry: str = setting(
        UrlOrPath(),
        "The MCP registry in which `mcp-workbench add` looks up servers by name: its address, or a file or folder of "
        "recorded answers. Nothing else uses it.",
        DEFAULT_REGISTRY,
        title="MCP registry",
    )
    shared: bool = setting(
        Boolean(),
        "Whether all clients that use this file share one workbench, which the first of them starts. `mcp-workbench "
        "up` does the same for every file.",
        False,
        title="Shared workbench",
    )
    # None: never.
    shared_idle_exit: float | None = setting(
        Seconds(never=True),
        "Seconds after its last client has disconnected until the shared workbench stops. `null` or 0: never.",
        DEFAULT_SHARED_IDLE_EXIT,
        title="Idle exit",
    )
    audit: AuditConfig | None = setting(
        Deferred("audit_settings", "AUDIT"),
        "Where to record who called what, when, and how it ended: in a `file`, in `syslog`, or on `stdout`. If unset, "
        "nothing is recorded.",
    )
    metrics: MetricsConfig | None = setting(
        Deferred("metrics_settings", "METRICS"),
        "Where metrics for Prometheus are served on this machine, such as `127.0.0.1:9464`, or an object with "
        "`address`, `token` and `perTool`. `serve --http` has them at `/metrics` in any case, to those who may call.",
        needs_restart=True,
    )
    # None: as the variables of OpenTelemetry say.
    telemetry: TelemetryConfig | None = setting(
        Deferred("telemetry_settings", "TELEMETRY"),
        "Where traces of calls are sent: an object with `otlp`, `traces` and `headers`, or `false` for nowhere. If "
        "unset, the variables of OpenTelemetry decide, such as `OTEL_EXPORTER_OTLP_ENDPOINT`.",
        needs_restart=True,
    )
    # None: there is no lock.
    lock: Lock | None = setting(
        one_of("warn", "enforce"),
        "What happens to tools, prompts, resource templates and instructions that differ from `workbench.lock` beside "
        "this file: they are reported (`warn`), or neither listed nor callable until `mcp-workbench team lock accept` "
        "(`enforce`).",
    )
    lock_resources: bool = setting(
        Boolean(),
        "Whether the lock covers each resource that a server lists, as well as its templates. For servers whose "
        "resources are a fixed list rather than data.",
        False,
    )
    # None: served, with its usual settings.
    page: PageConfig | None = setting(
        Deferred("page_settings", "PAGE"),
        "The page in the browser, at `/` over HTTP and by `mcp-workbench page`: `false` for none, or what it keeps.",
        needs_restart=True,
    )
    # The endpoint is built around these two (docs/internals/design.md).
    auth: AuthConfig | None = setting(
        Deferred("auth_settings", "AUTH"),
        "Over HTTP: whose access tokens are accepted.",
        title="Identity providers",
        needs_restart=True,
    )
    trusted_proxy: ProxyConfig | None = setting(
        Deferred("auth_settings", "TRUSTED_PROXY"), "Over HTTP: a proxy that authenticates users.", needs_restart=True
    )
    # None: this instance is alone.
    cluster: ClusterConfig | None = setting(
        Deferred("cluster_settings", "CLUSTER"),
        "With `serve --http`: several instances behind a balancer, which leave state for each other in Valkey or "
        "Redis.",
        needs_restart=True,
    )
    policy: tuple[PolicyRule, ...] = setting(
        Deferred("policy_settings", "POLICY"),
        "Who may do what: an ordered list of rules. The first one that matches decides; the last one has no conditions "
        "and is the default. If unset, everyone may do everything.",
        (),
    )
    limits: tuple[LimitRule, ...] = setting(
        Deferred("policy_settings", "LIMITS"),
        "Limits per principal and server: calls in flight, calls and bytes per minute, and the duration of a call.",
        (),
    )
    # References in `auth`, `trustedProxy` and `cluster`: `("auth", 1, "clientSecret")`, `("cluster", "password")`.
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

    @property
    def page_in_force(self) -> PageConfig:
        from mcp_workbench.engine.config.page_settings import PageConfig

        return self.page or PageConfig()

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
        return os.path.join(os.path.dirname(self.path), LOCK_NAME)

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
