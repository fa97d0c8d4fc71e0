"""Meeting a server: its era is found whatever it answers, within a bound, and what it says of itself is checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.jsonrpc.messages import ErrorObject
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.protocol import handshake
from mcp_workbench.engine.protocol.handshake import ServerProfile, perform_handshake
from mcp_workbench.engine.protocol.meta import ClientIdentity
from mcp_workbench.engine.protocol.revisions import Era, SpokenEras
from mcp_workbench.errors import DownstreamError, ServerGone

IDENTITY = ClientIdentity(b'{"name":"test","version":"1"}', b'{"roots":{}}')
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}},
    "instructions": "Be kind.",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s"}, "other": 1},
}
NEVER = object()
UNKNOWN = SpokenEras()
LEGACY_ONLY = SpokenEras(legacy=True, modern=False)
MODERN_ONLY = SpokenEras(legacy=False, modern=True)
BOTH = SpokenEras(legacy=True, modern=True)
Answer = Any  # a result, an exception to raise, or NEVER


class Server:
    """Answers each method as it is told, and keeps what it was asked."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = {"server/discover": answers.get("discover"), "initialize": answers.get("initialize")}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.told: list[str] = []
        self.cancelled: list[str] = []

    async def ask(self, method: str, params: bytes) -> Raw:
        self.asked.append((method, json.loads(params)))
        answer = self.answers[method]
        if callable(answer):
            answer = answer()
        if answer is NEVER:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(method)
                raise
        await asyncio.sleep(0)
        if isinstance(answer, BaseException):
            raise answer
        return Raw(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def notify(self, method: str, params: bytes | None = None) -> None:
        self.told.append(method)

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    async def handshake(
        self, choice: str = "auto", spoken: SpokenEras = UNKNOWN, client: Era = "modern"
    ) -> ServerProfile:
        profile = await perform_handshake(self, choice, spoken, replace(IDENTITY, era=client))
        await asyncio.sleep(0)
        return profile


def refusal(code: int, data: Any = None) -> RemoteError:
    return RemoteError(ErrorObject(code, "refused", Raw(json.dumps(data).encode())))


@pytest.fixture(autouse=True)
def _short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "PROBE_TIMEOUT", 0.05)


async def test_a_modern_server_is_asked_once() -> None:
    server = Server(discover=DISCOVERED)
    profile = await server.handshake()
    assert (profile.era, profile.version, profile.instructions) == ("modern", "2026-07-28", "Be kind.")
    assert json.loads(bytes(profile.capabilities)) == {"tools": {"listChanged": True}}
    assert json.loads(bytes(profile.server_info)) == {"name": "s"}
    ((method, params),) = server.asked
    assert method == "server/discover"
    assert params["_meta"] == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
    }
    assert server.told == []


@pytest.mark.parametrize(
    "discover",
    [
        refusal(-32601),
        refusal(-32600),
        refusal(-32602),
        refusal(0),
        refusal(-32022, {"supported": ["2025-11-25"]}),
        refusal(-32022, {"supported": "nonsense"}),
        refusal(-32022, "nonsense"),
        {},
        {"supportedVersions": []},
        {"supportedVersions": ["2025-06-18"]},
        {"supportedVersions": "2026-07-28"},
        {**DISCOVERED, "capabilities": []},
        [],
        b"null",
        b'"text"',
        rb'{"supportedVersions":["\ud800"]}',
        NEVER,
    ],
)
async def test_anything_but_a_modern_answer_leads_to_the_handshake(discover: Answer) -> None:
    server = Server(discover=discover, initialize=INITIALIZED)
    profile = await server.handshake()
    assert (profile.era, profile.version) == ("legacy", "2025-11-25")
    assert server.methods == ["server/discover", "initialize"]
    assert server.asked[1][1] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "test", "version": "1"},
    }
    assert server.told == ["notifications/initialized"]
    assert server.cancelled == (["server/discover"] if discover is NEVER else [])


async def test_a_modern_server_that_was_slow_to_answer_the_probe_is_found() -> None:
    discovered = asyncio.Event()

    class Slow(Server):
        async def ask(self, method: str, params: bytes) -> Raw:
            if method == "server/discover":
                await discovered.wait()
                return Raw(json.dumps(DISCOVERED).encode())
            discovered.set()
            await asyncio.sleep(0.01)
            raise refusal(-32601)

    assert (await Slow().handshake()).era == "modern"


async def test_a_server_that_refuses_both_fails_with_its_own_words() -> None:
    with pytest.raises(RemoteError, match="refused"):
        await Server(discover=refusal(-32601), initialize=refusal(-32603)).handshake()


async def test_a_server_that_dies_of_the_probe_is_reported_as_gone() -> None:
    with pytest.raises(ServerGone):
        await Server(discover=ServerGone("died")).handshake()


async def test_a_server_of_a_future_that_we_do_not_know_is_distinguished() -> None:
    with pytest.raises(DownstreamError, match="speaks only MCP 2031-01-01") as caught:
        await Server(discover=refusal(-32022, {"supported": ["2031-01-01"]})).handshake()
    assert caught.value.hint and "update" in caught.value.hint


async def test_a_legacy_server_that_is_remembered_is_not_probed() -> None:
    server = Server(initialize=INITIALIZED)
    assert (await server.handshake(spoken=LEGACY_ONLY)).era == "legacy"
    assert server.methods == ["initialize"]


async def test_a_remembered_legacy_server_that_has_become_modern_is_found() -> None:
    server = Server(discover=DISCOVERED, initialize=refusal(-32601))
    assert (await server.handshake(spoken=LEGACY_ONLY)).era == "modern"
    assert server.methods == ["initialize", "server/discover"]


async def test_a_remembered_modern_server_that_has_become_legacy_is_found() -> None:
    server = Server(discover=refusal(-32601), initialize=INITIALIZED)
    assert (await server.handshake(spoken=MODERN_ONLY)).era == "legacy"


@pytest.mark.parametrize(
    ("choice", "methods"),
    [
        ("legacy", ["initialize"]),
        ("2025-03-26", ["initialize"]),
        ("modern", ["server/discover"]),
        ("2026-07-28", ["server/discover"]),
    ],
)
async def test_a_choice_in_the_configuration_is_followed_without_probing(choice: str, methods: list[str]) -> None:
    server = Server(discover=DISCOVERED, initialize=INITIALIZED)
    for spoken in (UNKNOWN, LEGACY_ONLY, MODERN_ONLY, BOTH):
        server.asked.clear()
        await server.handshake(choice, spoken)
        assert server.methods == methods
    if choice == "2025-03-26":
        assert server.asked[0][1]["protocolVersion"] == "2025-03-26"


async def test_a_choice_that_the_server_does_not_speak_is_refused_with_a_hint() -> None:
    with pytest.raises(DownstreamError, match="2026-07-28, which the server does not speak") as caught:
        await Server(discover={"supportedVersions": ["2025-11-25"]}).handshake("modern")
    assert caught.value.hint and "protocol" in caught.value.hint


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        b"null",
        {"protocolVersion": 5},
        {**INITIALIZED, "capabilities": []},
        {**INITIALIZED, "capabilities": None},
        {**INITIALIZED, "instructions": 5},
    ],
)
async def test_an_answer_to_the_handshake_that_makes_no_sense_is_an_error(answer: Answer) -> None:
    server = Server(initialize=answer)
    with pytest.raises(DownstreamError, match="answer to `initialize` cannot be used"):
        await server.handshake("legacy")
    assert server.told == []


async def test_an_unknown_revision_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(DownstreamError, match="`1999-01-01`") as caught:
        await Server(initialize={**INITIALIZED, "protocolVersion": "1999-01-01"}).handshake("legacy")
    assert caught.value.hint and "2024-11-05" in caught.value.hint and "2026-07-28" in caught.value.hint


async def test_unknown_members_and_large_answers_do_not_matter() -> None:
    answer = {**INITIALIZED, "x-unknown": "y" * 1_000_000, "_meta": {"a": 1}}
    profile = await Server(initialize=answer).handshake("legacy")
    assert json.loads(bytes(profile.capabilities)) == {"tools": {}}
    # A view into the answer would keep all of it alive.
    assert len(bytes(profile.server_info)) < 100


@pytest.mark.parametrize("probe", [lambda: NEVER, lambda: refusal(-32601)])
async def test_a_cancelled_handshake_leaves_no_task_behind(probe: Callable[[], Answer]) -> None:
    server = Server(discover=probe, initialize=NEVER)
    meeting = asyncio.create_task(server.handshake())
    while "initialize" not in server.methods:
        await asyncio.sleep(0)
    meeting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await meeting
    await asyncio.sleep(0)
    assert "initialize" in server.cancelled


# ── a server that speaks both eras is connected in its client's ──


@pytest.mark.parametrize("spoken", [UNKNOWN, BOTH])
@pytest.mark.parametrize(("client", "asked"), [("legacy", "initialize"), ("modern", "server/discover")])
async def test_a_server_of_both_eras_is_connected_in_the_era_of_its_client(
    spoken: SpokenEras, client: Era, asked: str
) -> None:
    server = Server(discover=DISCOVERED, initialize=INITIALIZED)
    profile = await server.handshake(spoken=spoken, client=client)
    assert profile.era == client
    assert server.methods == [asked], "the first request settles the era of such a server"


@pytest.mark.parametrize(
    ("client", "answers", "shown"),
    [
        ("legacy", {"initialize": INITIALIZED}, SpokenEras(legacy=True)),
        ("modern", {"discover": DISCOVERED}, SpokenEras(modern=True)),
        ("modern", {"discover": refusal(-32601), "initialize": INITIALIZED}, LEGACY_ONLY),
        ("legacy", {"discover": DISCOVERED, "initialize": refusal(-32022)}, MODERN_ONLY),
    ],
)
async def test_first_answer_determines_the_eras(client: Era, answers: Answer, shown: SpokenEras) -> None:
    assert (await Server(**answers).handshake(client=client)).eras == shown


@pytest.mark.parametrize(
    "initialize",
    [
        refusal(-32601),
        refusal(-32022, {"supported": ["2026-07-28"]}),
        refusal(0),
        {},
        {**INITIALIZED, "protocolVersion": "2026-07-28"},
        NEVER,
        DownstreamError("it does not accept POST at this address"),
    ],
)
async def test_a_modern_server_is_found_for_a_legacy_client(initialize: Answer) -> None:
    server = Server(discover=DISCOVERED, initialize=initialize)
    assert (await server.handshake(client="legacy")).era == "modern"
    assert server.methods == ["initialize", "server/discover"]


async def test_a_legacy_client_of_a_modern_server_that_is_remembered_costs_no_handshake() -> None:
    server = Server(discover=DISCOVERED)
    assert (await server.handshake(spoken=MODERN_ONLY, client="legacy")).era == "modern"
    assert server.methods == ["server/discover"]


@pytest.mark.parametrize("discover", [refusal(-32601), NEVER, DownstreamError("not there")])
async def test_a_refused_handshake_is_told_in_its_own_words_where_the_probe_finds_nothing(discover: Answer) -> None:
    with pytest.raises(RemoteError, match="refused") as caught:
        await Server(discover=discover, initialize=refusal(-32603)).handshake(client="legacy")
    assert caught.value.code == -32603


async def test_a_legacy_server_that_was_slow_to_shake_hands_is_waited_for() -> None:
    class Slow(Server):
        async def ask(self, method: str, params: bytes) -> Raw:
            while method == "initialize" and "server/discover" not in self.methods:
                if method not in self.methods:
                    self.asked.append((method, {}))
                await asyncio.sleep(0)
            return await super().ask(method, params)

    server = Slow(discover=refusal(-32601), initialize=INITIALIZED)
    assert (await server.handshake(client="legacy")).era == "legacy"


async def test_a_server_that_dies_of_the_handshake_is_reported_as_gone() -> None:
    with pytest.raises(ServerGone):
        await Server(discover=DISCOVERED, initialize=ServerGone("died")).handshake(client="legacy")
