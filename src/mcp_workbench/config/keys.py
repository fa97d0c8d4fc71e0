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

SCHEMA = Key("$schema", Text(), "JSON Schema", "Where an editor finds the schema of this file. Not read otherwise.")
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
    "The largest single message, in bytes, that passes in either direction. Larger ones get an error.",
    DEFAULT_MAX_MESSAGE_BYTES,
)
MAX_DEFINITION_BYTES = Key(
    "maxDefinitionBytes",
    Whole("bytes", 1024, 64 * 1024 * 1024),
    "Largest definition",
    "The largest definition of a tool, prompt or resource, in bytes, that a server may list. Larger ones are left out, "
    "and it is said which.",
    DEFAULT_MAX_DEFINITION_BYTES,
)
MAX_PENDING_BODY_BYTES = Key(
    "maxPendingBodyBytes",
    Whole("bytes", 1024, 64 * 1024 * 1024 * 1024),
    "Pending bodies",
    "Over HTTP: how many bytes the bodies of all requests that are arriving may hold together, and at least one "
    "message of the largest size. Large ones beyond are told to come later, small ones never.",
    DEFAULT_MAX_PENDING_BODY_BYTES,
)
BUDGET = Key(
    "budget",
    Whole("tokens", 300, 1_000_000, none=True),
    "Token budget",
    "How many tokens (bytes / 4) the answer of `open_toolbox` may take. Where definitions with schemas do not fit, a "
    "shorter overview takes a quarter of it. "
    "`null`: always full definitions.",
    DEFAULT_BUDGET,
)
TOOLBOX_BUDGET = Key(
    "budget",
    Whole("tokens", 300, 1_000_000, none=True),
    "Token budget",
    "The budget of this toolbox, instead of the one of the file.",
)
CHECK_ARGUMENTS = Key(
    "checkArguments",
    Boolean(),
    "Check arguments",
    "Whether `use_tool` checks arguments against the tool's schema and answers with what is wrong, instead of calling.",
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
    "What is to be known of single clients, by their name in docs/client-behaviour.md or as they call themselves in "
    "`clientInfo`, `*` globs included. Comes before what the workbench knows of them.",
    default={},
)
USE_TOOL = Key(
    "useTool",
    Choice({"one": "one", "split": "split"}),
    "Calling tools",
    "In the face `proxy`: `split` calls tools that only read, by their annotations, with `use_tool`, and all others "
    "with `use_tool_that_writes`, so that clients can allow the one and ask for the other.",
    "one",
)
KEYCHAIN = Key(
    "keychain",
    Boolean(),
    "Encrypted sign-ins",
    "`true`: sign-ins are encrypted under a key in the system's keychain. `false`: they are not. Without it, as they "
    "are; `mcp-workbench auth --encrypt` and `--decrypt` change it.",
)
PIN = Key(
    "pin",
    Texts("a list of `toolbox/server/tool`"),
    "Pinned tools",
    "Tools that are shown beside the two of the face `proxy`, for those used in every conversation.",
    default=[],
)
POLICY = Key(
    "policy",
    PolicySettings(),
    "Policy",
    "Who may do what: an ordered list of rules, of which the first that matches decides; the last one has no "
    "conditions and states the default. Without it everybody may do everything.",
    default=[],
)
LIMITS = Key(
    "limits",
    LimitSettings(),
    "Limits",
    "How much principals and servers may use: calls in flight, calls and bytes a minute, and the time of a call.",
    default=[],
)
_SHARED = (
    "Which clients share one process of a server where several are served: those in the same folder (`project`), all "
    "of yours (`user`; it then runs in its `cwd` or your home, and is told of no roots), or none, each has its own "
    "(`session`). Without it `session` for servers known to keep a person's state in the process, else `project`. "
)
SHARE = Key("share", Sharing(), "Sharing", _SHARED + "For all servers; that of a toolbox or server comes first.")
SHARED = Key(
    "shared",
    Boolean(),
    "Shared workbench",
    "Whether all clients with this file share one workbench, which the first of them starts. `mcp-workbench up` does "
    "the same for every file.",
    default=False,
)
SHARED_IDLE_EXIT = Key(
    "sharedIdleExit",
    Seconds(never=True),
    "Idle exit",
    "Seconds after its last client has gone that the shared workbench ends. `null` or 0: never.",
    DEFAULT_SHARED_IDLE_EXIT,
)
AUDIT = Key(
    "audit",
    AuditSettings(),
    "Audit",
    "Where it is written down who called what, when, and how it ended: to a `file`, to `syslog`, or to `stdout`. "
    "Without it nothing is.",
)
AUTH: Key[AuthConfig] = Key(
    "auth", Deferred("auth_keys", "Authentication"), "Identity providers", "Over HTTP: whose access tokens count."
)
TRUSTED_PROXY: Key[ProxyConfig] = Key(
    "trustedProxy", Deferred("auth_keys", "TrustedProxy"), "Trusted proxy", "Over HTTP: a proxy that names its users."
)
TOOLBOX_SHARE = Key("share", SHARE.kind, "Sharing", _SHARED + "For the servers of this toolbox.")
SERVER_SHARE = Key(
    "share",
    Sharing(is_of_server=True),
    "Sharing",
    _SHARED + "For this server; `everyone` lets all users share it, which is for servers that keep nothing of them.",
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
    "What the toolbox is for. The agent reads it to know when to open the toolbox.",
)

# a server

COMMAND = Key(
    "command",
    Text(),
    "Command",
    "The program to start, found on `PATH` as usual. Either this or an address.",
)
ARGS = Key(
    "args", Texts("a list of strings", empty_items=True), "Arguments", "What the program is started with.", default=[]
)
ENV = Key(
    "env",
    Environment(),
    "Environment",
    "Variables set for the program in addition to the inherited ones. Never printed.",
    default={},
)
ENV_FILE = Key(
    "envFile",
    Files("a path, or a list of paths"),
    "Files of variables",
    "`.env` files whose variables the program gets, below those of `env`; `${VAR}` in `args`, `env`, `headers`, `url` "
    "and `clientSecret` of this server finds them too, where the environment has none of that name. Read when the "
    "server starts. A relative path starts at the folder of this file.",
    default=[],
)
_INHERITED = (
    "Further variables of the workbench's environment that programs inherit, by name or `*` glob, beside a few "
    'harmless ones such as `PATH` and `HOME`. `["*"]` lets everything through but the workbench\'s own. '
)
INHERIT_ENV = Key(
    "inheritEnv",
    VariablePatterns("a list of names and globs of variables"),
    "Inherited variables",
    _INHERITED + "For all servers; a toolbox or server that has its own list uses that instead.",
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
    "Where the program is started. A relative path starts at the folder of this file. Without it, where the workbench "
    "was started.",
)
URL = Key("url", Url(), "Address", "The address of a remote server, `http` or `https`. Either this or a command.")
SERVER_URL = Key("serverUrl", Url(), "Address (Windsurf)", "Another name for `url`, as Windsurf writes it.")
HTTP_URL = Key(
    "httpUrl", Url(), "Address (Gemini)", "Another name for `url`, as Gemini CLI writes it; streamable HTTP only."
)
HEADERS = Key("headers", Headers(), "Headers", "Sent with every request to the address. Never printed.", default={})
OAUTH = Key(
    "oauth",
    SignInSettings(),
    "Signing in",
    "How to sign in to the address with OAuth, where that cannot be found out or the server has no registration: a "
    "client of your own, scopes, the callback. Most servers need nothing here.",
    default={},
)
FORWARD_IDENTITY: Key[ForwardedIdentityConfig] = Key(
    "forwardIdentity", Deferred("auth_keys", "ForwardIdentity"), "Forwarded identity", "Tell it who the user is."
)
TOKEN_EXCHANGE: Key[TokenExchangeConfig] = Key(
    "tokenExchange", Deferred("auth_keys", "TokenExchange"), "Token exchange", "Get a token of the user's own for it."
)
TRANSPORT = Key(
    "transport",
    Choice(TRANSPORTS),
    "Transport",
    "How to talk to the server. Without it `stdio` for a command; for an address `auto`, which tries streamable HTTP "
    "and then the older SSE.",
)
TYPE = Key("type", Choice(TRANSPORTS), "Transport", "Another name for `transport`, as most clients write it.")
TOOL_FILTERS = Key(
    "toolFilters",
    Filters("a list of tool names and globs"),
    "Tool filters",
    "Which tools are shown and can be called: exact names and `*` globs, `!name` excludes. `[]` means none. Without "
    "it all.",
)
RENAME = Key(
    "rename",
    Renames(),
    "Renamed tools",
    "Other names for tools, by their original name, in the face `flat`.",
    default={},
)
TIMEOUT = Key(
    "timeout",
    Seconds(),
    "Call timeout",
    "Seconds that a call may take.",
    DEFAULT_CALL_TIMEOUT,
)
STARTUP_TIMEOUT = Key(
    "startupTimeout",
    Seconds(),
    "Start timeout",
    "Seconds that the server may take until it is ready, downloads by `npx` or `uvx` included.",
    DEFAULT_STARTUP_TIMEOUT,
)
IDLE_TIMEOUT = Key(
    "idleTimeout",
    Seconds(never=True),
    "Idle timeout",
    "Seconds without a call after which the server is stopped until the next one. `null` or 0: never.",
    DEFAULT_IDLE_TIMEOUT,
)
PROTOCOL = Key(
    "protocol",
    Choice({word: word for word in ("auto", "legacy", "modern", *KNOWN)}),
    "Protocol",
    "How to speak to the server: find out (`auto`), with a handshake (`legacy`), without (`modern`), or one revision "
    "of MCP.",
    "auto",
)
ASK = Key(
    "ask",
    Boolean(),
    "Questions",
    "Whether the server may ask its clients anything (elicitation, sampling, roots). `false` tells it that nobody can "
    "be asked, so clients of every kind share it.",
    default=True,
)
RESULT_BUDGET = Key(
    "resultBudget",
    Whole("tokens", 100, 10_000_000, none=True),
    "Result budget",
    "How many tokens (bytes / 4) a result of this server may take in the face `proxy`; a larger one is kept for a "
    "while and answered with its head and how to read on. `null`: no limit.",
    default=None,
)
DISABLED = Key("disabled", Boolean(), "Disabled", "`true` leaves the server out.", default=False)
ENABLED = Key("enabled", Boolean(), "Enabled", "`false` leaves the server out.", default=True)
INCLUDE_TOOLS = Key(
    "includeTools",
    Filters("a list of tool names"),
    "Included tools (Gemini)",
    "Only these tools, as Gemini CLI writes it. `toolFilters` comes first.",
)
TOOLS = Key(
    "tools",
    Filters("a list of tool names"),
    "Included tools (Copilot)",
    "Only these tools, as Copilot CLI writes it. `toolFilters` comes first.",
)
EXCLUDE_TOOLS = Key(
    "excludeTools",
    Filters("a list of tool names"),
    "Excluded tools (Gemini)",
    "All tools but these, as Gemini CLI writes it. Added to `toolFilters`.",
)
DISABLED_TOOLS = Key(
    "disabledTools",
    Filters("a list of tool names"),
    "Excluded tools (Windsurf, Roo, Kiro)",
    "All tools but these, as Windsurf, Roo Code and Kiro write it. Added to `toolFilters`.",
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
    *(AUDIT, AUTH, TRUSTED_PROXY, POLICY, LIMITS),
)
TOOLBOX_KEYS = _table(DESCRIPTION, TOOLBOX_BUDGET, TOOLBOX_INHERIT_ENV, TOOLBOX_SHARE)
SERVER_KEYS = _table(
    *(COMMAND, ARGS, ENV, ENV_FILE, SERVER_INHERIT_ENV, CWD, URL, SERVER_URL, HTTP_URL, HEADERS, OAUTH),
    *(FORWARD_IDENTITY, TOKEN_EXCHANGE),
    *(TRANSPORT, TYPE, TOOL_FILTERS, RENAME, TIMEOUT, STARTUP_TIMEOUT, IDLE_TIMEOUT, PROTOCOL, SERVER_SHARE, ASK),
    *(RESULT_BUDGET, DISABLED, ENABLED, INCLUDE_TOOLS, TOOLS, EXCLUDE_TOOLS, DISABLED_TOOLS),
)
