"""Writes our introduction to clients (name, capabilities, instructions), and the results of list requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode

from mcp_workbench.engine.catalog.offer import SKILLS_EXTENSION
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.engine.protocol.constants import SERVER_INFO
from mcp_workbench.engine.protocol.meta import TOO_CAPABLE, canonical
from mcp_workbench.engine.protocol.results import COMPLETE_TYPE
from mcp_workbench.engine.protocol.revisions import Revision, names

# Lists that depend on the configuration alone rarely change, so a client need only fetch them every few minutes. Lists
# that depend on servers may change at any time, and changes are announced.
STABLE_TTL_MS: Final = 300_000
CHANGING_TTL_MS: Final = 0
# A larger `clientInfo` is ignored, because it is kept as long as the client is connected. Real ones have a few hundred
# bytes.
MAX_CLIENT_INFO_BYTES: Final = 16 * 1024
# What clients show for us, unless the user chose another name.
SHOWN_NAME: Final = "mcp-workbench"
SHOWN_TITLE: Final = "MCP Workbench"


class _Initialize(Struct):
    protocolVersion: str
    capabilities: Raw = Raw(b"{}")
    clientInfo: Raw = Raw(b"{}")


_decode_initialize: Final = Decoder(_Initialize).decode


class IntroducedClient(Struct):
    """The params of `initialize`."""

    version: str
    capabilities: bytes
    info: bytes


class BadInitialize(Exception):
    """An `initialize` is invalid; the message says why."""


def read_initialize(members: dict[str, Raw]) -> IntroducedClient:
    """Raises `BadInitialize`."""
    try:
        params = _decode_initialize(encode(members))
    except (DecodeError, ValidationError) as error:
        raise BadInitialize(f"`initialize` cannot be used: {error}") from None
    capabilities = canonical(params.capabilities)
    if capabilities is None:
        raise BadInitialize(TOO_CAPABLE)
    info = bytes(params.clientInfo)
    # A client with a long `clientInfo` is not refused, just not recognised.
    return IntroducedClient(params.protocolVersion, capabilities, info if len(info) <= MAX_CLIENT_INFO_BYTES else b"{}")


class Welcome:
    """Our introduction to clients."""

    def __init__(self, name: str, version: str) -> None:
        # Clients show the title, so a name that the user chose must not be hidden behind ours.
        title = SHOWN_TITLE if name == SHOWN_NAME else name
        self.info = encode({"name": name, "title": title, "version": version})
        self._stamp = b'"_meta":' + encode({SERVER_INFO: Raw(self.info)})

    def initialize_result(self, client: Revision, view: View) -> bytes:
        """The result of `initialize`, in the agreed revision."""
        return b'{"protocolVersion":%b,"capabilities":%b,"serverInfo":%b,"instructions":%b}' % (
            encode(client.name),
            self._capabilities(view, _declared_tasks(view) if client.has_task_capability else None),
            self.info,
            encode(view.face.instructions(view)),
        )

    def discover_result(self, view: View) -> bytes:
        return b'{%b,"supportedVersions":%b,"capabilities":%b,"instructions":%b,%b,%b}' % (
            COMPLETE_TYPE,
            encode(names("modern")),
            self._capabilities(view),
            encode(view.face.instructions(view)),
            _cache(CHANGING_TTL_MS if view.face.tools_follow_servers else STABLE_TTL_MS),
            self._stamp,
        )

    def list_result(self, kind: str, definitions: Sequence[bytes], client: Revision, view: View) -> bytes:
        body = b'"%b":[%b]' % (kind.encode(), b",".join(definitions))
        if not client.has_result_types:
            return b"{" + body + b"}"
        # Further ones than the face's own are those with a user interface, which servers may change.
        face = view.face
        stable = kind == "tools" and not face.tools_follow_servers and len(definitions) <= len(face.own_names())
        return b"{%b,%b,%b,%b}" % (
            COMPLETE_TYPE,
            _cache(STABLE_TTL_MS if stable else CHANGING_TTL_MS),
            self._stamp,
            body,
        )

    def _capabilities(self, view: View, tasks: dict[str, object] | None = None) -> bytes:
        declared: dict[str, object] = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "completions": {},
            "logging": {},
        }
        if tasks is not None:
            declared["tasks"] = tasks
        for kind in ("experimental", "extensions"):
            if shared := _combined(view, kind):
                declared[kind] = shared
        return encode(declared)


def _combined(view: View, kind: str) -> dict[str, object]:
    """The capabilities of this kind that servers in view declare, each with the settings of the first. Clients decide
    which to use."""
    found: dict[str, object] = {}
    for entry in view.face.known(view):
        for name, settings in entry.declared(kind).items():
            try:
                own = decode(settings)
            except (DecodeError, ValidationError):
                continue
            first = found.setdefault(name, own)
            if name == SKILLS_EXTENSION and isinstance(own, dict) and own.get("directoryRead") is True:
                # Some of them do; a request for a directory of another one is refused.
                found[name] = {**(first if isinstance(first, dict) else {}), "directoryRead": True}
    return found


def _declared_tasks(view: View) -> dict[str, object] | None:
    having = [entry for entry in view.face.known(view) if "tasks" in entry.capabilities]
    if not having:
        return None
    # Imported here to keep it out of start-up: few servers have tasks.
    from mcp_workbench.engine.face.tasks import declared_tasks

    return declared_tasks(having)


def _cache(ttl_ms: int) -> bytes:
    return b'"ttlMs":%d,"cacheScope":"private"' % ttl_ms
