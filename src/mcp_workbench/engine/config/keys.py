"""Every key of the file and of a toolbox; those of a server are in `server_keys`.

Owns the names, kinds, defaults and one-sentence descriptions. Validation and the JSON Schema are both derived from
these tables, and a test compares the documentation with them. Does not know how problems are collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from mcp_workbench.engine.config.kinds import (
    Boolean,
    Choice,
    Kind,
    Seconds,
    Separator,
    Sharing,
    Text,
    Texts,
    Url,
    Whole,
)
from mcp_workbench.engine.config.mappings import Deferred, VariablePatterns
from mcp_workbench.engine.config.model import (
    DEFAULT_BUDGET,
    DEFAULT_MAX_DEFINITION_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_MAX_PENDING_BODY_BYTES,
    DEFAULT_REGISTRY,
    DEFAULT_SEPARATOR,
    DEFAULT_SHARED_IDLE_EXIT,
)
from mcp_workbench.engine.economy.tokens import LEAST_BUDGET
from mcp_workbench.engine.faces import DEFAULT_FACE, DEFAULT_FACE_OF_PLAIN_FILES, FACES

if TYPE_CHECKING:
    from mcp_workbench.engine.config.auth_model import AuthConfig, ProxyConfig

T_co = TypeVar("T_co", covariant=True)
UNSET = object()


class Key(Generic[T_co]):
    """A setting. A key without a `default` has none: its description explains what leaving it out means."""

    __slots__ = ("default", "description", "kind", "name", "title")

    def __init__(self, name: str, kind: Kind[T_co], title: str, description: str, default: object = UNSET) -> None:
        self.name = name
        self.kind = kind
        self.title = title
        self.description = description
        self.default = default


def field_of(name: str) -> str:
    """Return the field of the model for a setting: `maxMessageBytes` is `max_message_bytes`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def table(*keys: Key[object]) -> dict[str, Key[object]]:
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
    Whole("tokens", LEAST_BUDGET, 1_000_000, none=True),
    "Token budget",
    "How many tokens (bytes / 4) the answer of `open_toolbox` may use. If the definitions with their schemas do not "
    "fit, a shorter overview uses a quarter of it. `null`: always full definitions.",
    DEFAULT_BUDGET,
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
    Deferred("client_keys", "ClientSettings"),
    "Clients",
    "Settings for particular clients, by their name in docs/reference/client-behaviour.md or in their `clientInfo`, "
    "`*` globs included. They override what the workbench knows about a client.",
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
    Deferred("policy_keys", "PolicySettings"),
    "Policy",
    "Who may do what: an ordered list of rules. The first one that matches decides; the last one has no conditions and "
    "is the default. If unset, everyone may do everything.",
    default=[],
)
LIMITS = Key(
    "limits",
    Deferred("policy_keys", "LimitSettings"),
    "Limits",
    "Limits per principal and server: calls in flight, calls and bytes per minute, and the duration of a call.",
    default=[],
)
SHARED_BY = (
    "Which clients share one process of a server: those in the same folder (`project`), all of yours (`user`; it then "
    "runs in its `cwd` or your home folder and gets no roots), or none, so that each has its own (`session`). If unset "
    "it is `session` for servers known to keep a person's state in the process, else `project`. "
)
SHARE = Key("share", Sharing(), "Sharing", SHARED_BY + "For all servers; a toolbox or server can override it.")
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
    Deferred("audit_keys", "AuditSettings"),
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
    "What happens to tools, prompts, resource templates and instructions that differ from `workbench.lock` beside this "
    "file: they are reported (`warn`), or neither listed nor callable until `mcp-workbench lock accept` (`enforce`).",
)
LOCK_RESOURCES = Key(
    "lockResources",
    Boolean(),
    "Lock resources",
    "Whether the lock covers each resource that a server lists, as well as its templates. For servers whose resources "
    "are a fixed list rather than data.",
    default=False,
)
INHERITED = (
    "Further variables of the workbench's environment that programs inherit, by name or `*` glob, in addition to a few "
    'harmless ones such as `PATH` and `HOME`. `["*"]` passes everything except the workbench\'s own. '
)
INHERIT_ENV = Key(
    "inheritEnv",
    VariablePatterns("a list of names and globs of variables"),
    "Inherited variables",
    INHERITED + "For all servers; a toolbox or server with its own list uses that instead.",
    default=[],
)
TOOLBOXES = "toolboxes"
MCP_SERVERS = "mcpServers"
SERVERS = "servers"
CONTEXT_SERVERS = "context_servers"
# A file with one of these at its top level belongs to another client, and has no toolboxes.
PLAIN_ROOTS = (MCP_SERVERS, SERVERS, CONTEXT_SERVERS)

# a toolbox

DESCRIPTION = Key(
    "description", Text(), "Description", "What the toolbox is for. Agents read it to decide when to open the toolbox."
)
TOOLBOX_BUDGET = Key(
    "budget",
    Whole("tokens", LEAST_BUDGET, 1_000_000, none=True),
    "Token budget",
    "The budget of this toolbox, instead of the one for the whole file.",
)
TOOLBOX_SHARE = Key("share", SHARE.kind, "Sharing", SHARED_BY + "For the servers of this toolbox.")
TOOLBOX_INHERIT_ENV = Key(
    "inheritEnv",
    INHERIT_ENV.kind,
    "Inherited variables",
    INHERITED + "For the servers of this toolbox, instead of the list of the file.",
)

FILE_KEYS = table(
    *(SCHEMA, FACE, SEPARATOR, MAX_MESSAGE_BYTES, MAX_DEFINITION_BYTES, MAX_PENDING_BODY_BYTES, BUDGET),
    *(CHECK_ARGUMENTS, PIN, USE_TOOL, CLIENTS, INHERIT_ENV, SHARE, KEYCHAIN, REGISTRY, SHARED, SHARED_IDLE_EXIT),
    *(AUDIT, LOCK, LOCK_RESOURCES, AUTH, TRUSTED_PROXY, POLICY, LIMITS),
)
TOOLBOX_KEYS = table(DESCRIPTION, TOOLBOX_BUDGET, TOOLBOX_INHERIT_ENV, TOOLBOX_SHARE)
