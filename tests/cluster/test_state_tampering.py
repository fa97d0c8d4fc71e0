"""Whoever controls the state server can lose values, no more: what was changed, moved or set back is refused."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from mcp_workbench.cluster.examination import ClusterReport, examine
from mcp_workbench.cluster.seal import SEAL_FORMAT, Seal
from mcp_workbench.cluster.state import ClusterState
from mcp_workbench.engine.config.cluster_settings import ClusterConfig, KeyFileConfig
from mcp_workbench.engine.lasting_state import (
    INSTANCE,
    NAMED_KEY,
    SESSION,
    SIGN_IN,
    TASK,
    StateKind,
    StateUnavailable,
)
from tests.cluster.test_state import KEY, Instances, impatient, linked, running, state_server, until
from tests.support.cluster_machines import StateServer, needs_state_server
from tests.support.state_kinds import STATE_KINDS

pytestmark = [pytest.mark.processes, needs_state_server]
__all__ = ["impatient"]


class Attacker:
    """Reads and writes what lies on the server, without the key."""

    def __init__(self, server: StateServer) -> None:
        self.server = server

    async def values(self, kind: StateKind, cluster: str = "test") -> dict[tuple[bytes, bytes], bytes]:
        """By key and, in a hash, by field."""
        found: dict[tuple[bytes, bytes], bytes] = {}
        prefix = f"mcp-workbench:{{{cluster}}}:{kind.name}:".encode()
        for key in await self.server.command("KEYS", "*"):
            if not key.startswith(prefix):
                continue
            if kind.most:
                fields = await self.server.command("HGETALL", key)
                found |= {(key, field): value for field, value in fields.items()}
            else:
                found[key, b""] = await self.server.command("GET", key)
        return found

    async def put(self, place: tuple[bytes, bytes], value: bytes) -> None:
        key, field = place
        if field:
            await self.server.command("HSET", key, field, value)
        else:
            await self.server.command("SET", key, value)


class Writer:
    def __init__(self, server: StateServer) -> None:
        self._server = server

    @asynccontextmanager
    async def instance(self, cluster: str = "test") -> AsyncIterator[ClusterState]:
        async with linked(f"valkey://127.0.0.1:{self._server.port}/0") as link:
            yield ClusterState(link, Seal(KEY, cluster), cluster)

    async def keep(self, kind: StateKind, principal: str, name: str, value: bytes, cluster: str = "test") -> None:
        async with self.instance(cluster) as state:
            state.keep(kind, principal, name, value)
            await state._flush()


async def read(state: ClusterState, kind: StateKind, principal: str, name: str) -> bytes | None:
    if kind.most:
        return (await state.find_all(kind, principal)).get(name)
    return await state.find(kind, principal, name)


async def only(attacker: Attacker, kind: StateKind, cluster: str = "test") -> tuple[tuple[bytes, bytes], bytes]:
    ((place, value),) = (await attacker.values(kind, cluster)).items()
    return place, value


every_kind = pytest.mark.parametrize("kind", STATE_KINDS, ids=lambda kind: kind.name)


@every_kind
async def test_value_that_was_changed_is_refused(kind: StateKind) -> None:
    async with state_server() as server:
        attacker, writer = Attacker(server), Writer(server)
        await writer.keep(kind, "ann", "name", b"value")
        place, sealed = await only(attacker, kind)
        assert b"value" not in sealed and b"ann" not in sealed
        for position in (0, 1, 20, len(sealed) - 1):
            changed = bytearray(sealed)
            changed[position] ^= 1
            await attacker.put(place, bytes(changed))
            async with writer.instance() as state:
                assert await read(state, kind, "ann", "name") is None
                # Another version's, as far as we can tell, stays; everything else is reported.
                assert state.refused == (0 if position == 0 else 1)
        for cut in (b"", sealed[:5], sealed[:-1], bytes((SEAL_FORMAT,))):
            await attacker.put(place, cut)
            async with writer.instance() as state:
                assert await read(state, kind, "ann", "name") is None
        await attacker.put(place, sealed)
        async with writer.instance() as state:
            assert await read(state, kind, "ann", "name") == b"value"


@every_kind
async def test_value_of_another_user_is_refused(kind: StateKind) -> None:
    async with state_server() as server:
        attacker, writer = Attacker(server), Writer(server)
        await writer.keep(kind, "ann", "name", b"ann's")
        hers, sealed = await only(attacker, kind)
        await writer.keep(kind, "ben", "name", b"ben's")
        (his,) = (await attacker.values(kind)).keys() - {hers}
        await attacker.put(his, sealed)
        if kind.most:
            # Also with its own field, under the other user's key.
            await attacker.put((his[0], hers[1]), sealed)
        async with writer.instance() as state:
            assert await read(state, kind, "ben", "name") is None
            assert await read(state, kind, "ann", "name") == b"ann's"
            assert state.refused == (2 if kind.most else 1)


@every_kind
async def test_value_of_another_name_is_refused(kind: StateKind) -> None:
    async with state_server() as server:
        attacker, writer = Attacker(server), Writer(server)
        await writer.keep(kind, "ann", "first", b"1")
        first, sealed = await only(attacker, kind)
        await writer.keep(kind, "ann", "second", b"2")
        (second,) = (await attacker.values(kind)).keys() - {first}
        await attacker.put(second, sealed)
        async with writer.instance() as state:
            assert await read(state, kind, "ann", "second") is None
            assert await read(state, kind, "ann", "first") == b"1"


@every_kind
async def test_value_of_another_kind_or_cluster_is_refused(kind: StateKind) -> None:
    other = next(each for each in STATE_KINDS if each is not kind and bool(each.most) is bool(kind.most))
    async with state_server() as server:
        attacker, writer = Attacker(server), Writer(server)
        await writer.keep(kind, "ann", "name", b"value")
        place, _ = await only(attacker, kind)
        await writer.keep(other, "ann", "name", b"foreign")
        await writer.keep(kind, "ann", "name", b"foreign", cluster="another")
        for foreign in (await only(attacker, other), await only(attacker, kind, "another")):
            await attacker.put(place, foreign[1])
            async with writer.instance() as state:
                assert await read(state, kind, "ann", "name") is None


@every_kind
async def test_older_value_is_refused_after_a_newer_one(kind: StateKind) -> None:
    async with state_server() as server:
        attacker, writer = Attacker(server), Writer(server)
        await writer.keep(kind, "ann", "name", b"old")
        place, old = await only(attacker, kind)
        await writer.keep(kind, "ann", "name", b"new")
        async with writer.instance() as state:
            assert await read(state, kind, "ann", "name") == b"new"
            await attacker.put(place, old)
            assert await read(state, kind, "ann", "name") is None
            # A common one may have been overtaken within these seconds.
            assert state.refused == (not kind.is_common)
        # Documented: one that has seen nothing takes it for the newest, until its time is over.
        async with writer.instance() as state:
            assert await read(state, kind, "ann", "name") == b"old"


@pytest.mark.parametrize("kind", [each for each in STATE_KINDS if each.most and each is not INSTANCE])
async def test_names_that_are_no_text_hold_no_other_value_back(kind: StateKind) -> None:
    principal = "" if kind.is_common else "alice"
    async with state_server() as server:
        attacker, writer = Attacker(server), Writer(server)
        await writer.keep(kind, principal, "name", b"value")
        (key, _), _ = await only(attacker, kind)
        await attacker.put((key, b"\xff\xfe"), b"\xff")
        async with writer.instance() as state:
            assert await read(state, kind, principal, "name") == b"value"
            if kind.is_common:
                seen: list[dict[str, bytes]] = []
                state.follow(kind, seen.append)
                await state.prime()
                assert seen == [{"name": b"value"}]


async def test_mark_that_is_no_text_is_a_mark() -> None:
    async with state_server() as server, Writer(server).instance() as state:
        lease = await state.claim(SIGN_IN, "alice", "server", 5.0)
        assert lease is not None and await lease.finish(b"value")
        (mark,) = await server.command("KEYS", "*:mark:*")
        await server.command("HSET", mark, "mark", b"\xff")
        lease = await state.claim(SIGN_IN, "alice", "server", 5.0)
        assert lease is not None and lease.left_mark and lease.value == b"value"


KEYS = ("epoch", "key", "instance:*", "changes-*", "session:*", "task:*", "key:*", "lease:*", "mark:*")


@pytest.mark.parametrize("name", KEYS)
async def test_value_of_another_type_is_removed_and_holds_nothing_else_back(name: str) -> None:
    async with running() as (server, instances):
        one, other = await instances.start(), await instances.start()
        seen: list[dict[str, bytes]] = []
        other.follow(NAMED_KEY, seen.append)
        one.keep(SESSION, "ann", "id", b"hers")
        one.keep(TASK, "ann", "handle", b"hers")
        one.keep(NAMED_KEY, "", "key", b"hers")
        lease = await one.claim(SIGN_IN, "ann", "server", 5.0)
        assert lease is not None and (name == "lease:*" or await lease.release())
        await until(lambda: not one.waiting and seen[-1:] == [{"key": b"hers"}])
        (key, *_) = await server.command("KEYS", f"mcp-workbench:*:{name}")
        put = ("HSET", key, "field", "x") if await server.command("TYPE", key) == b"string" else ("SET", key, "x")
        # At once: an instance may write it again in between.
        await server.command("EVAL", "redis.call('DEL', KEYS[1]) return redis.call(unpack(ARGV))", "1", key, *put)
        found = await other.find(SESSION, "ann", "id"), await other.find_all(TASK, "ann")
        expected = {"session:*": (None, {"handle": b"hers"}), "task:*": (b"hers", {})}
        assert found == expected.get(name, (b"hers", {"handle": b"hers"}))
        if name == "mark:*":
            # Nobody knows whether a refresh token was sent.
            with pytest.raises(StateUnavailable):
                await other.claim(SIGN_IN, "ann", "server", 5.0)
        one.keep(SESSION, "ben", "id", b"his")
        one.keep(SESSION, "ann", "id", b"hers")
        one.keep(TASK, "ann", "handle", b"hers")
        one.keep(NAMED_KEY, "", "other", b"his")
        # Whoever has made a key keeps it again: nobody does here.
        keys = {"other": b"his"} if name == "key:*" else {"key": b"hers", "other": b"his"}
        await until(lambda: not one.waiting and seen[-1] == keys)
        assert await other.find(SESSION, "ben", "id") == b"his"
        assert await other.find(SESSION, "ann", "id") == b"hers"
        assert await other.find_all(TASK, "ann") == {"handle": b"hers"}
        assert not one.link.outages and not other.link.outages


# What no server says, as the answer to every command.
NONSENSE = {
    "a number": b":1\r\n",
    "nothing": b"$-1\r\n",
    "text": b"$3\r\nabc\r\n",
    "a list": b"*2\r\n$1\r\na\r\n:7\r\n",
    "an odd list": b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
    "a deep list": b"*1\r\n" * 20_000 + b":1\r\n",
    "a negative length": b"$-5\r\n",
    "a number that is none": b":abc\r\n",
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an error that is no text": b"-\xff\x1b[2J\r\n",
    "a node that cannot be": b"-MOVED 1 :99999\r\n",
}


@pytest.mark.parametrize("scheme", ["valkey", "valkey+cluster"])
@pytest.mark.parametrize("answer", NONSENSE)
async def test_server_that_talks_nonsense_is_away_at_most(
    answer: str, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):
            while asked := await reader.read(65536):
                writer.write(NONSENSE[answer] * (1 + asked.count(b"\n*")))
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, AsyncExitStack() as stack:
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        state = await Instances(url, stack).start()
        state.follow(NAMED_KEY, lambda values: None)
        state.keep(SESSION, "ann", "id", b"value")
        assert (await examined(url)).problems
        with suppress(StateUnavailable):
            assert await state.find(SESSION, "ben", "id", is_patient=True) is None
        with suppress(StateUnavailable):
            assert await state.find_all(TASK, "ann", is_patient=True) == {}
        with suppress(StateUnavailable):
            assert await state.claim(SIGN_IN, "ann", "server", 1.0) is None
        await until(lambda: state.link.outages)
        assert state.link.problem is None or state.link.problem.isprintable()
    assert "please report this" not in caplog.text


async def examined(url: str) -> ClusterReport:
    with tempfile.NamedTemporaryFile() as key:
        key.write(base64.urlsafe_b64encode(KEY))
        key.flush()
        return await examine(ClusterConfig(state=url, key=KeyFileConfig(file=key.name)), "/", None)
