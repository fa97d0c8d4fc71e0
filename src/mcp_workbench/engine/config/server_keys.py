"""Every key of a server's entry: names, kinds, defaults and one-sentence descriptions.

The counterpart of `keys` for servers. Keys of other clients that the workbench does not use are in `foreign_keys`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_workbench.engine.config.keys import INHERIT_ENV, INHERITED, SHARED_BY, Key, table
from mcp_workbench.engine.config.kinds import Boolean, Choice, Files, Filters, Seconds, Sharing, Text, Texts, Url, Whole
from mcp_workbench.engine.config.mappings import Deferred, Environment, Headers, Renames
from mcp_workbench.engine.config.model import (
    DEFAULT_CALL_TIMEOUT,
    DEFAULT_IDLE_TIMEOUT,
    DEFAULT_RESULT_BUDGET,
    DEFAULT_STARTUP_TIMEOUT,
)
from mcp_workbench.engine.protocol.revisions import KNOWN

if TYPE_CHECKING:
    from mcp_workbench.engine.config.auth_model import ForwardedIdentityConfig, TokenExchangeConfig

TRANSPORTS = {
    **dict.fromkeys(("stdio", "local"), "stdio"),
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
    "sse": "sse",
    "auto": "auto",
}


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
SERVER_INHERIT_ENV = Key(
    "inheritEnv",
    INHERIT_ENV.kind,
    "Inherited variables",
    INHERITED + "For this server, instead of the list of the toolbox or the file.",
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
    Deferred("oauth_keys", "SignInSettings"),
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
    "rename",
    Renames(),
    "Renamed tools",
    "New names for tools in the faces `flat` and `dynamic`, by their original name.",
    default={},
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
    "Stop the server after this many seconds without a call, even if a client has it open; the next call starts it "
    f"again, and says so. `null` or 0: never. Without it, after {DEFAULT_IDLE_TIMEOUT:.0f} seconds, and only if no "
    "connected client has opened or used it.",
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
    "How many tokens (estimated) a result of this server may use in the face `proxy`. A larger one is kept for a "
    "while; the agent gets its beginning and how to read the rest. `null`: no limit.",
    default=DEFAULT_RESULT_BUDGET,
)
SERVER_SHARE = Key(
    "share",
    Sharing(is_of_server=True),
    "Sharing",
    SHARED_BY + "For this server; `everyone` lets all users share it, for servers that keep no user's data.",
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

SERVER_KEYS = table(
    *(COMMAND, ARGS, ENV, ENV_FILE, SERVER_INHERIT_ENV, CWD, URL, SERVER_URL, HTTP_URL, HEADERS, OAUTH),
    *(FORWARD_IDENTITY, TOKEN_EXCHANGE),
    *(TRANSPORT, TYPE, TOOL_FILTERS, RENAME, TIMEOUT, STARTUP_TIMEOUT, IDLE_TIMEOUT, PROTOCOL, SERVER_SHARE, ASK),
    *(RESULT_BUDGET, DISABLED, ENABLED, INCLUDE_TOOLS, TOOLS, EXCLUDE_TOOLS, DISABLED_TOOLS),
)
