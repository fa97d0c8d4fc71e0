"""Every key of a configuration, in one table each for the file, a toolbox and a server.

Owns the names, kinds, defaults and one-sentence explanations. Validation and the JSON Schema are both made from these
tables, and a test holds the documentation against them. Refuses to know how problems are gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from mcp_workbench.config.kinds import (
    Anything,
    Boolean,
    Choice,
    Files,
    Filters,
    Kind,
    Seconds,
    Separator,
    Sharing,
    Text,
    Texts,
    Url,
    Whole,
)
from mcp_workbench.config.mappings import (
    AuditSettings,
    ClientSettings,
    Deferred,
    Environment,
    Headers,
    LimitSettings,
    PolicySettings,
    Renames,
    SignInSettings,
    VariablePatterns,
)
from mcp_workbench.config.model import (
    DEFAULT_BUDGET,
    DEFAULT_CALL_TIMEOUT,
    DEFAULT_IDLE_TIMEOUT,
    DEFAULT_MAX_DEFINITION_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_MAX_PENDING_BODY_BYTES,
    DEFAULT_REGISTRY,
    DEFAULT_SEPARATOR,
    DEFAULT_SHARED_IDLE_EXIT,
    DEFAULT_STARTUP_TIMEOUT,
)
from mcp_workbench.faces import DEFAULT_FACE, DEFAULT_FACE_OF_PLAIN_FILES, FACES
from mcp_workbench.protocol.revisions import KNOWN

if TYPE_CHECKING:
    from mcp_workbench.config.auth_model import AuthConfig, ForwardedIdentityConfig, ProxyConfig, TokenExchangeConfig

T_co = TypeVar("T_co", covariant=True)
UNSET = object()

TRANSPORTS = {
    **dict.fromkeys(("stdio", "local"), "stdio"),
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
    "sse": "sse",
    "auto": "auto",
}


class Key(Generic[T_co]):
    """One setting. A key without a `default` has none: leaving it out means what its description says."""

    __slots__ = ("default", "description", "kind", "name", "title")

    def __init__(self, name: str, kind: Kind[T_co], title: str, description: str, default: object = UNSET) -> None:
        self.name = name
        self.kind = kind
        self.title = title
        self.description = description
        self.default = default


def _table(*keys: Key[object]) -> dict[str, Key[object]]:
    return {key.name: key for key in keys}


def _shown_by_faces() -> str:
    *others, last = (f"{face.shows} (`{face.name}`)" for face in FACES.values())
    return f"{', '.join(others)}, or {last}"


# the file

SCHEMA = Key(
    "$schema", Text(), "JSON Schema", "Where an editor finds the schema of this file. The workbench ignores it."
)
FACE = Key(
    "face",
    Choice({name: name for name in FACES}),
    "Face",
    f"What a client sees: {_shown_by_faces()}. Without it `{DEFAULT_FACE}`, and `{DEFAULT_FACE_OF_PLAIN_FILES}` for a "
    "plain `mcpServers` file.",
)
SEPARATOR = Key(
    "separator",
    Separator(),
    "Separator",
    "What separates the parts of a name in the face `flat`. `__` is accepted by every client, `:` is not.",
    DEFAULT_SEPARATOR,
)
MAX_MESSAGE_BYTES = Key(
    "maxMessageBytes",
    Whole("bytes", 1024, 2 * 1024 * 1024 * 1024),
    "Largest message",
    "The largest message, in bytes, that is accepted in either direction. Larger ones are answered with an error.",
    DEFAULT_MAX_MESSAGE_BYTES,
)
MAX_DEFINITION_BYTES = Key(
    "maxDefinitionBytes",
    Whole("bytes", 1024, 64 * 1024 * 1024),
    "Largest definition",
    "The largest definition of a tool, prompt or resource, in bytes, that a server may list. Larger ones are left out "
    "and reported.",
    DEFAULT_MAX_DEFINITION_BYTES,
)
MAX_PENDING_BODY_BYTES = Key(
    "maxPendingBodyBytes",
    Whole("bytes", 1024, 64 * 1024 * 1024 * 1024),
    "Pending bodies",
    "Over HTTP: the total size, in bytes, of request bodies that are still being received; at least one message of the "
    "largest size always fits. Beyond it, large requests are asked to try again later; small ones are always accepted.",
    DEFAULT_MAX_PENDING_BODY_BYTES,
)
BUDGET = Key(
    "budget",
    Whole("tokens", 300, 1_000_000, none=True),
    "Token budget",
    "How many tokens (bytes / 4) the answer of `open_toolbox` may use. If the definitions with their schemas do not "
    "fit, a shorter overview uses a quarter of it. `null`: always full definitions.",
    DEFAULT_BUDGET,
)
TOOLBOX_BUDGET = Key(
    "budget",
    Whole("tokens", 300, 1_000_000, none=True),
    "Token budget",
    "The budget of this toolbox, instead of the one for the whole file.",
)
CHECK_ARGUMENTS = Key(
    "checkArguments",
    Boolean(),
    "Check arguments",
    "Whether `use_tool` checks arguments against the tool's schema first, and reports mistakes instead of calling it.",
    default=True,
)
REGISTRY = Key(
    "registry",
    Url(),
    "MCP registry",
    "The address of the MCP registry in which `mcp-workbench add` looks up servers by name. Nothing else uses it.",
    DEFAULT_REGISTRY,
)
CLIENTS = Key(
    "clients",
    ClientSettings(),
    "Clients",
    "Settings for particular clients, by their name in docs/client-behaviour.md or in their `clientInfo`, `*` globs "
    "included. They override what the workbench knows about a client.",
    default={},
)
USE_TOOL = Key(
    "useTool",
    Choice({"one": "one", "split": "split"}),
    "Calling tools",
    "In the face `proxy`: with `split`, tools annotated as read-only are called with `use_tool` and all others with "
    "`use_tool_that_writes`, so that clients can allow the former and ask before the latter.",
    "one",
)
KEYCHAIN = Key(
    "keychain",
    Boolean(),
    "Encrypted sign-ins",
    "`true`: sign-ins are encrypted with a key in the system's keychain. `false`: they are not. If unset, they stay as "
    "they are; `mcp-workbench auth --encrypt` and `--decrypt` change that.",
)
PIN = Key(
    "pin",
    Texts("a list of `toolbox/server/tool`"),
    "Pinned tools",
    "Tools that the face `proxy` lists next to its own, for those used in every conversation.",
    default=[],
)
POLICY = Key(
    "policy",
    PolicySettings(),
    "Policy",
    "Who may do what: an ordered list of rules. The first one that matches decides; the last one has no conditions and "
    "is the default. If unset, everyone may do everything.",
    default=[],
)
LIMITS = Key(
    "limits",
    LimitSettings(),
    "Limits",
    "Limits per principal and server: calls in flight, calls and bytes per minute, and the duration of a call.",
    default=[],
)
_SHARED = (
    "Which clients share one process of a server: those in the same folder (`project`), all of yours (`user`; it then "
    "runs in its `cwd` or your home folder and gets no roots), or none, so that each has its own (`session`). If unset "
    "it is `session` for servers known to keep a person's state in the process, else `project`. "
)
SHARE = Key("share", Sharing(), "Sharing", _SHARED + "For all servers; a toolbox or server can override it.")
SHARED = Key(
    "shared",
    Boolean(),
    "Shared workbench",
    "Whether all clients that use this file share one workbench, which the first of them starts. `mcp-workbench up` "
    "does the same for every file.",
    default=False,
)
SHARED_IDLE_EXIT = Key(
    "sharedIdleExit",
    Seconds(never=True),
    "Idle exit",
    "Seconds after its last client has disconnected until the shared workbench stops. `null` or 0: never.",
    DEFAULT_SHARED_IDLE_EXIT,
)
AUDIT = Key(
    "audit",
    AuditSettings(),
    "Audit",
    "Where to record who called what, when, and how it ended: in a `file`, in `syslog`, or on `stdout`. If unset, "
    "nothing is recorded.",
)
AUTH: Key[AuthConfig] = Key(
    "auth",
    Deferred("auth_keys", "Authentication"),
    "Identity providers",
    "Over HTTP: whose access tokens are accepted.",
)
TRUSTED_PROXY: Key[ProxyConfig] = Key(
    "trustedProxy",
    Deferred("auth_keys", "TrustedProxy"),
    "Trusted proxy",
    "Over HTTP: a proxy that authenticates users.",
)
LOCK = Key(
    "lock",
    Choice({word: word for word in ("warn", "enforce")}),
    "Lock",
    "What happens to tools, prompts and resources that differ from `workbench.lock` beside this file: it is said "
    "(`warn`), or they are neither listed nor callable until `mcp-workbench lock accept` (`enforce`).",
)
TOOLBOX_SHARE = Key("share", SHARE.kind, "Sharing", _SHARED + "For the servers of this toolbox.")
SERVER_SHARE = Key(
    "share",
    Sharing(is_of_server=True),
    "Sharing",
    _SHARED + "For this server; `everyone` lets all users share it, for servers that keep no user's data.",
)
TOOLBOXES = "toolboxes"
MCP_SERVERS = "mcpServers"
SERVERS = "servers"
CONTEXT_SERVERS = "context_servers"
# A file with one of these at its top is that of another client, without toolboxes.
PLAIN_ROOTS = (MCP_SERVERS, SERVERS, CONTEXT_SERVERS)

# a toolbox

DESCRIPTION = Key(
    "description",
    Text(),
    "Description",
    "What the toolbox is for. Agents read it to decide when to open the toolbox.",
)

# a server

COMMAND = Key("command", Text(), "Command", "The program to start, looked up on `PATH`. Either this or `url`.")
ARGS = Key("args", Texts("a list of strings", empty_items=True), "Arguments", "The program's arguments.", default=[])
ENV = Key(
    "env",
    Environment(),
    "Environment",
    "Environment variables for the program, in addition to the inherited ones. Never printed.",
    default={},
)
ENV_FILE = Key(
    "envFile",
    Files("a path, or a list of paths"),
    "Environment files",
    "`.env` files with variables for the program; `env` overrides them. `${VAR}` in `args`, `env`, `headers`, `url` "
    "and `clientSecret` of this server finds them too, unless the environment has a variable of that name. Read when "
    "the server starts. Relative paths start at the folder of this file.",
    default=[],
)
_INHERITED = (
    "Further variables of the workbench's environment that programs inherit, by name or `*` glob, in addition to a few "
    'harmless ones such as `PATH` and `HOME`. `["*"]` passes everything except the workbench\'s own. '
)
INHERIT_ENV = Key(
    "inheritEnv",
    VariablePatterns("a list of names and globs of variables"),
    "Inherited variables",
    _INHERITED + "For all servers; a toolbox or server with its own list uses that instead.",
    default=[],
)
TOOLBOX_INHERIT_ENV = Key(
    "inheritEnv",
    INHERIT_ENV.kind,
    "Inherited variables",
    _INHERITED + "For the servers of this toolbox, instead of the list of the file.",
)
SERVER_INHERIT_ENV = Key(
    "inheritEnv",
    INHERIT_ENV.kind,
    "Inherited variables",
    _INHERITED + "For this server, instead of the list of the toolbox or the file.",
)
CWD = Key(
    "cwd",
    Text(),
    "Working folder",
    "The folder the program is started in. A relative path starts at the folder of this file. If unset, the folder "
    "the workbench was started in.",
)
URL = Key("url", Url(), "Address", "The address of a remote server, `http` or `https`. Either this or `command`.")
SERVER_URL = Key("serverUrl", Url(), "Address (Windsurf)", "Another name for `url`, as Windsurf writes it.")
HTTP_URL = Key(
    "httpUrl", Url(), "Address (Gemini)", "Another name for `url`, as Gemini CLI writes it; streamable HTTP only."
)
HEADERS = Key("headers", Headers(), "Headers", "Sent with every request to the address. Never printed.", default={})
OAUTH = Key(
    "oauth",
    SignInSettings(),
    "Signing in",
    "How to sign in with OAuth, for servers that cannot be discovered or do not register clients: a client of your "
    "own, scopes, the callback. Most servers need nothing here.",
    default={},
)
FORWARD_IDENTITY: Key[ForwardedIdentityConfig] = Key(
    "forwardIdentity",
    Deferred("auth_keys", "ForwardIdentity"),
    "Forwarded identity",
    "Tell the server who the user is.",
)
TOKEN_EXCHANGE: Key[TokenExchangeConfig] = Key(
    "tokenExchange",
    Deferred("auth_keys", "TokenExchange"),
    "Token exchange",
    "Exchange the user's token for one for it.",
)
TRANSPORT = Key(
    "transport",
    Choice(TRANSPORTS),
    "Transport",
    "How to talk to the server. If unset, `stdio` for a command, and `auto` for an address, which tries streamable "
    "HTTP and then the older SSE.",
)
TYPE = Key("type", Choice(TRANSPORTS), "Transport", "Another name for `transport`, as most clients write it.")
TOOL_FILTERS = Key(
    "toolFilters",
    Filters("a list of tool names and globs"),
    "Tool filters",
    "Which tools are listed and can be called: exact names and `*` globs; `!name` excludes. `[]` means none. If unset, "
    "all.",
)
RENAME = Key(
    "rename", Renames(), "Renamed tools", "New names for tools in the face `flat`, by their original name.", default={}
)
TIMEOUT = Key("timeout", Seconds(), "Call timeout", "How long a call may take, in seconds.", DEFAULT_CALL_TIMEOUT)
STARTUP_TIMEOUT = Key(
    "startupTimeout",
    Seconds(),
    "Start timeout",
    "How long the server may take to start, in seconds, including downloads by `npx` or `uvx`.",
    DEFAULT_STARTUP_TIMEOUT,
)
IDLE_TIMEOUT = Key(
    "idleTimeout",
    Seconds(never=True),
    "Idle timeout",
    "Stop the server after this many seconds without a call; the next call starts it again. `null` or 0: never.",
    DEFAULT_IDLE_TIMEOUT,
)
PROTOCOL = Key(
    "protocol",
    Choice({word: word for word in ("auto", "legacy", "modern", *KNOWN)}),
    "Protocol",
    "The protocol spoken to the server: detected (`auto`), with a handshake (`legacy`), without one (`modern`), or a "
    "particular revision of MCP.",
    "auto",
)
ASK = Key(
    "ask",
    Boolean(),
    "Questions",
    "Whether the server may send requests to clients (elicitation, sampling, roots). With `false` it is told that they "
    "support none of these, so that clients with different capabilities can share it.",
    default=True,
)
RESULT_BUDGET = Key(
    "resultBudget",
    Whole("tokens", 100, 10_000_000, none=True),
    "Result budget",
    "How many tokens (bytes / 4) a result of this server may use in the face `proxy`. A larger one is kept for a "
    "while; the agent gets its beginning and how to read the rest. `null`: no limit.",
    default=None,
)
DISABLED = Key("disabled", Boolean(), "Disabled", "`true` leaves the server out.", default=False)
ENABLED = Key("enabled", Boolean(), "Enabled", "`false` leaves the server out.", default=True)
INCLUDE_TOOLS = Key(
    "includeTools",
    Filters("a list of tool names"),
    "Included tools (Gemini)",
    "Only these tools, as Gemini CLI writes it. `toolFilters` overrides it.",
)
TOOLS = Key(
    "tools",
    Filters("a list of tool names"),
    "Included tools (Copilot)",
    "Only these tools, as Copilot CLI writes it. `toolFilters` overrides it.",
)
EXCLUDE_TOOLS = Key(
    "excludeTools",
    Filters("a list of tool names"),
    "Excluded tools (Gemini)",
    "All tools except these, as Gemini CLI writes it. Added to `toolFilters`.",
)
DISABLED_TOOLS = Key(
    "disabledTools",
    Filters("a list of tool names"),
    "Excluded tools (Windsurf, Roo, Kiro)",
    "All tools except these, as Windsurf, Roo Code and Kiro write it. Added to `toolFilters`.",
)

_IGNORED = "Written by {} for itself. Accepted and ignored."


def _ignored(name: str, title: str, writer: str) -> Key[object]:
    return Key(name, Anything(), title, _IGNORED.format(writer))


FOREIGN_KEYS = _table(
    _ignored("description", "Description", "Gemini CLI and others"),
    _ignored("name", "Display name", "several clients"),
    _ignored("icon", "Icon", "several clients"),
    _ignored("autoApprove", "Approved tools", "Cline and Kiro"),
    _ignored("alwaysAllow", "Approved tools", "Roo Code and Windsurf"),
    _ignored("alwaysLoad", "Loaded at start", "Claude Code"),
    _ignored("trust", "Trusted", "Gemini CLI"),
    _ignored("auth", "Sign-in settings", "Cursor"),
    _ignored("authProviderType", "Sign-in settings", "Gemini CLI"),
    _ignored("targetAudience", "Sign-in settings", "Gemini CLI"),
    _ignored("targetServiceAccount", "Sign-in settings", "Gemini CLI"),
    _ignored("watchPaths", "Watched files", "Roo Code"),
    _ignored("remoteConfigured", "Managed remotely", "Cline"),
    _ignored("gallery", "Gallery", "VS Code"),
    _ignored("version", "Gallery version", "VS Code"),
    _ignored("dev", "Development mode", "VS Code"),
    _ignored("sandbox", "Sandbox rules", "VS Code"),
    _ignored("extension", "Extension", "Gemini CLI"),
    _ignored("source", "Source", "Zed"),
)

# Of those, what users may count on, and why it has no effect; told by `check` and in the log. The others are cosmetic.
_NO_SIGN_IN = "the workbench signs in by itself, and takes what it needs for that from `oauth`"
_APPROVAL = "clients approve by the names that they see: approve the tools of the workbench there"
IDLE_KEYS = {
    **dict.fromkeys(("auth", "authProviderType", "targetAudience", "targetServiceAccount"), _NO_SIGN_IN),
    **dict.fromkeys(("autoApprove", "alwaysAllow", "trust"), _APPROVAL),
    "alwaysLoad": "use `pin` for tools that are always shown",
    "sandbox": "the workbench has no sandbox; put one into `command`",
    "watchPaths": "the workbench does not restart servers when files change",
    "dev": "the workbench does not restart servers when files change",
}

# Ignoring these would start a server other than the one the user described, so they are refused while they say
# something, with what to do instead.
UNSUPPORTED_KEYS = {
    "headersHelper": "write the headers into `headers`; `${VAR}` works there",
    "sandboxEnabled": "the workbench has no sandbox; put one into `command`, or remove the key",
    "tcp": "give the server an `http` address in `url`",
}

FILE_KEYS = _table(
    *(SCHEMA, FACE, SEPARATOR, MAX_MESSAGE_BYTES, MAX_DEFINITION_BYTES, MAX_PENDING_BODY_BYTES, BUDGET),
    *(CHECK_ARGUMENTS, PIN, USE_TOOL, CLIENTS, INHERIT_ENV, SHARE, KEYCHAIN, REGISTRY, SHARED, SHARED_IDLE_EXIT),
    *(AUDIT, LOCK, AUTH, TRUSTED_PROXY, POLICY, LIMITS),
)
TOOLBOX_KEYS = _table(DESCRIPTION, TOOLBOX_BUDGET, TOOLBOX_INHERIT_ENV, TOOLBOX_SHARE)
SERVER_KEYS = _table(
    *(COMMAND, ARGS, ENV, ENV_FILE, SERVER_INHERIT_ENV, CWD, URL, SERVER_URL, HTTP_URL, HEADERS, OAUTH),
    *(FORWARD_IDENTITY, TOKEN_EXCHANGE),
    *(TRANSPORT, TYPE, TOOL_FILTERS, RENAME, TIMEOUT, STARTUP_TIMEOUT, IDLE_TIMEOUT, PROTOCOL, SERVER_SHARE, ASK),
    *(RESULT_BUDGET, DISABLED, ENABLED, INCLUDE_TOOLS, TOOLS, EXCLUDE_TOOLS, DISABLED_TOOLS),
)
