"""How long a configuration is kept for clients that may come back, and which clients have one in common."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Raw

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.app.runtime import ProcessOwner, Runtime
from mcp_workbench.engine.catalog.catalog import read_manifests
from mcp_workbench.engine.catalog.entry import Manifest, ServerEntry
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.catalog.registry import SharedServers
from mcp_workbench.engine.config.choose import ConfigSource
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.errors import ConfigError
from mcp_workbench.sharing.catalogs import MAX_UNUSED_GATEWAYS, Catalogs
from mcp_workbench.sharing.client import ClientContext
from mcp_workbench.sharing.status import describe
from mcp_workbench.team.audit.audit_file import AuditFile
from mcp_workbench.team.lock.lock_file import LockedServer, LockFile, definition_hash, written
from tests.faces.memory import ClientLink
from tests.support.processes import eventually
from tests.support.workbench import write_config


def context(folder: Path, face: str = "proxy", **environ: str) -> ClientContext:
    config = folder / "workbench-config.json"
    if not config.exists():
        write_config(folder, {"box": {"server": {"command": "never-started"}}})
    source = ConfigSource(option=str(config), argument=None, environ=environ, folder=str(folder))
    return ClientContext(
        config=source.choose().config,
        source=source,
        options=Options(use_cache=False, face=face),
        folder=str(folder),
        environ=environ,
    )


@asynccontextmanager
async def catalogs() -> AsyncIterator[Catalogs]:
    runtime = Runtime(Redactor(()), ProcessOwner(), SharedServers())
    async with runtime.running():
        made = Catalogs(runtime)
        try:
            yield made
        finally:
            made.close()


def servers(gateway: Gateway) -> list[object]:
    return list(gateway.catalog.entries())


async def test_clients_that_are_served_alike_have_one_gateway(tmp_path: Path) -> None:
    async with catalogs() as kept:
        async with kept.serving(context(tmp_path)) as one, kept.serving(context(tmp_path)) as same:
            assert one is same
            async with kept.serving(context(tmp_path, "flat")) as flat, kept.serving(context(tmp_path, A="1")) as rich:
                assert len({id(one), id(flat), id(rich)}) == 3
                assert servers(one) == servers(flat) == servers(rich), "their servers are the same all the same"


async def test_a_reconnecting_client_gets_the_same_gateway(tmp_path: Path) -> None:
    async with catalogs() as kept:
        async with kept.serving(context(tmp_path)) as before:
            pass
        async with kept.serving(context(tmp_path)) as after:
            assert before is after


async def test_file_that_is_gone_is_reported_while_a_client_uses_it(tmp_path: Path) -> None:
    async with catalogs() as kept:
        async with kept.serving(context(tmp_path)):
            (tmp_path / "workbench-config.json").unlink()
            (problem,) = await kept.reload()
            assert "workbench-config.json" in problem and kept.rejected() == [problem]
        assert kept.gateways and await kept.reload() == []
        assert describe(kept, [])["configuration"] == {"reloads": 2, "rejected": None}


@pytest.mark.requirement("sharing.unused-catalogues")
async def test_unused_configurations_are_dropped_with_their_servers(tmp_path: Path) -> None:
    async with catalogs() as kept:
        kept.unused_seconds = 0.0
        async with kept.serving(context(tmp_path)) as gateway:
            (entry,) = gateway.catalog.entries()
        await eventually(lambda: not kept.gateways, what="the end of the catalogue")
        assert entry.ended is not None
        assert len(kept.runtime.servers) == 0  # type: ignore[arg-type]


@pytest.mark.requirement("sharing.unused-catalogues")
async def test_an_unused_copy_is_dropped_early_with_its_servers(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with catalogs() as kept:
        kept.unused_copy_seconds = 0.0
        async with kept.serving(context(elsewhere)):
            pass
        async with kept.serving(context(tmp_path, LANG="de")) as first:
            (entry,) = first.catalog.entries()
        assert len(kept.gateways) == 2, "neither is a copy"
        async with kept.serving(context(tmp_path, LANG="en")) as second:
            await eventually(lambda: first not in kept.gateways, what="the end of the copy")
            assert entry.ended is not None
            async with kept.serving(context(tmp_path, LANG="fr")) as third:
                pass
            await eventually(lambda: third not in kept.gateways, what="the end of the other copy")
            assert second in kept.gateways and len(kept.gateways) == 2


async def test_a_copy_that_is_used_again_in_time_stays(tmp_path: Path) -> None:
    async with catalogs() as kept:
        async with kept.serving(context(tmp_path, LANG="de")) as first:
            pass
        async with kept.serving(context(tmp_path, LANG="en")), kept.serving(context(tmp_path, LANG="de")) as again:
            assert first is again


async def test_unused_configurations_are_dropped_beyond_a_limit(tmp_path: Path) -> None:
    async with catalogs() as kept:
        for number in range(MAX_UNUSED_GATEWAYS + 5):
            async with kept.serving(context(tmp_path, NUMBER=str(number))):
                pass
        assert len(kept.gateways) == MAX_UNUSED_GATEWAYS


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("stays", [False, True])
async def test_a_configuration_dropped_during_a_change_stays_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool, stays: bool
) -> None:
    reading, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(entries: Iterable[ServerEntry]) -> dict[ServerEntry, Manifest]:
        loop.call_soon_threadsafe(reading.set)
        assert go_on.wait(60)
        return read_manifests(entries)

    async with catalogs() as kept:
        async with kept.serving(context(tmp_path)) as gateway:
            (served,) = kept._served.values()
        (entry,) = gateway.catalog.entries()
        if shared:
            async with kept.serving(context(tmp_path, "flat")):
                pass
        before = {"server": {"command": "never-started"}} if stays else {}
        write_config(tmp_path, {"box": {**before, "other": {"command": "never-started-either"}}})
        monkeypatch.setattr("mcp_workbench.app.gateway.read_manifests", slowly)
        applying = asyncio.create_task(served.live.reload())
        await reading.wait()
        kept._drop(next(iter(kept._served)))
        go_on.set()
        await applying
        assert not servers(gateway) and gateway.reloads.count == 0
        assert gateway.catalog not in entry.catalogs
        assert served.live._watched is None
        for key in list(kept._served):
            kept._drop(key)
        assert entry.ended is not None
        assert len(kept.runtime.servers) == 0, "also those that were to begin"  # type: ignore[arg-type]


async def test_a_gateway_that_cannot_be_opened_leaves_nothing(tmp_path: Path) -> None:
    box = {"server": {"command": "never-started", "env": {"TOKEN": "${TOKEN}"}}}
    write_config(tmp_path, {"box": box}, audit={"file": "/dev/null/audit.jsonl"})
    async with catalogs() as kept:
        for _ in range(2):
            with pytest.raises(ConfigError, match="the audit cannot be written"):
                await kept.serving(context(tmp_path, TOKEN="a-secret-of-mine")).__aenter__()
        assert not kept.gateways
        assert len(kept.runtime.servers) == 0  # type: ignore[arg-type]
        assert not kept.runtime.redactor._passing, "its secrets are let go, too"


async def test_a_gateway_that_had_a_call_to_approve_is_forgotten_with_it(tmp_path: Path) -> None:
    write_config(tmp_path, {"box": {"server": {"command": "never-started"}}})
    async with catalogs() as kept:
        async with kept.serving(context(tmp_path)) as gateway:
            kept.runtime.take_approvals(gateway.decide)
            assert len(kept.runtime._approvers) == 1
        (key,) = kept._served
        kept._drop(key)
        assert not kept.runtime._approvers


# ── the lock of a server that several show ──

TOOLS = {
    name: Raw(json.dumps({"name": name, "inputSchema": {"type": "object"}}).encode()) for name in ("read", "write")
}


def write_lock(folder: Path, *names: str) -> None:
    hashes = {name: definition_hash(TOOLS[name]) for name in names}
    lock = LockFile(1, "workbench-config.json", {"box": {"server": LockedServer(tools=hashes)}})
    (folder / "workbench.lock").write_bytes(written(lock))


def locked(folder: Path, how: str, **environ: str) -> ClientContext:
    write_config(folder, {"box": {"server": {"command": "never-started"}}}, lock=how)
    return context(folder, **environ)


def learn(gateway: Gateway) -> ServerEntry:
    (entry,) = gateway.catalog.entries()
    entry.learn(Offer(ServerProfile("legacy", "2025-11-25"), {"tools": TOOLS}), remember=False)
    return entry


@pytest.mark.requirement("lock.enforce")
async def test_the_lock_survives_the_newest_client_of_a_shared_server(tmp_path: Path) -> None:
    write_lock(tmp_path, "read", "write")
    async with catalogs() as kept:
        kept.unused_seconds = 0.0
        async with kept.serving(locked(tmp_path, "enforce")) as one:
            async with kept.serving(locked(tmp_path, "enforce", A="1")) as other:
                entry = learn(one)
                assert [entry] == servers(other) and len(entry.judges) == 2
            await eventually(lambda: kept.gateways == [one])
            assert len(entry.judges) == 1 and list(entry.tools) == ["read", "write"]
            write_lock(tmp_path, "read")
            before = one.catalog.revision
            await one.apply(one.config)
            assert list(entry.tools) == ["read"] and one.catalog.revision > before
            write_lock(tmp_path, "read", "write")
            await one.apply(one.config)
            assert list(entry.tools) == ["read", "write"]


@pytest.mark.requirement("lock.enforce")
async def test_of_two_that_share_a_server_the_stricter_lock_holds_for_both_and_both_are_told(tmp_path: Path) -> None:
    write_lock(tmp_path, "read", "write")
    async with catalogs() as kept:
        async with (
            kept.serving(locked(tmp_path, "enforce")) as one,
            kept.serving(locked(tmp_path, "enforce", A="1")) as other,
        ):
            entry = learn(one)
            told: list[str] = []
            one.catalog.subscribe(lambda entry, kinds: told.append("one"))
            other.catalog.subscribe(lambda entry, kinds: told.append("other"))
            write_lock(tmp_path, "write")
            await other.apply(other.config)
            assert list(entry.tools) == ["write"] and set(told) == {"one", "other"}
            await one.apply(one.config)
            write_lock(tmp_path, "read", "write")
            await other.apply(other.config)
            assert list(entry.tools) == ["write"], "one of them has yet to read it"
            told.clear()
            await one.apply(one.config)
            assert list(entry.tools) == ["read", "write"] and set(told) == {"one", "other"}


@pytest.mark.requirement("lock.enforce")
async def test_warn_and_enforce_do_not_share_a_server(tmp_path: Path) -> None:
    write_lock(tmp_path, "read")
    async with catalogs() as kept:
        async with (
            kept.serving(locked(tmp_path, "enforce")) as strict,
            kept.serving(locked(tmp_path, "warn", A="1")) as other,
        ):
            assert servers(strict) != servers(other)
            assert (list(learn(strict).tools), list(learn(other).tools)) == (["read"], ["read", "write"])


@pytest.mark.requirement("lock.enforce")
async def test_a_lock_that_is_enforced_from_now_on_holds_for_servers_that_are_shared(tmp_path: Path) -> None:
    write_lock(tmp_path, "read")
    async with catalogs() as kept:
        kept.unused_seconds = 0.0
        async with (
            kept.serving(locked(tmp_path, "warn")) as one,
            kept.serving(locked(tmp_path, "warn", A="1")) as other,
        ):
            entry = learn(one)
            assert [entry] == servers(other) and list(entry.tools) == ["read", "write"]
            strict = locked(tmp_path, "enforce").config
            await one.apply(strict)
            assert list(entry.tools) == ["read"], "before the other has read the file"
            await other.apply(strict)
            async with kept.serving(locked(tmp_path, "enforce", B="1")) as third:
                assert servers(third) == [entry], "it is found under what it is now"
            await eventually(lambda: kept.gateways == [one, other])
            unlocked = load(str(write_config(tmp_path, {"box": {"server": {"command": "never-started"}}})), {})
            await one.apply(unlocked)
            assert list(entry.tools) == ["read"], "for the other one it is still enforced"
            await other.apply(unlocked)
            assert list(entry.tools) == ["read", "write"] and not entry.judges


@pytest.mark.requirement("lock.unusable")
async def test_the_status_of_the_shared_workbench_reports_problems_of_lock_files(tmp_path: Path) -> None:
    async with catalogs() as kept, kept.serving(locked(tmp_path, "enforce")):
        assert "there is no" in str(describe(kept, [])["lock"])


async def test_clients_that_come_at_once_have_one_gateway_and_the_loop_goes_on_while_a_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path, {"box": {"server": {"command": "never-started"}}}, audit={"file": "audit.jsonl"})
    opening, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    opened = AuditFile.open

    def slowly(file: AuditFile) -> None:
        loop.call_soon_threadsafe(opening.set)
        assert go_on.wait(60)
        opened(file)

    monkeypatch.setattr(AuditFile, "open", slowly)
    async with catalogs() as kept:
        async with AsyncExitStack() as stack:
            joining = [asyncio.create_task(kept.serving(context(tmp_path)).__aenter__()) for _ in range(2)]
            await opening.wait()
            # The disk hangs, and this runs all the same; nobody is served unseen meanwhile.
            assert not any(task.done() for task in joining) and kept.gateways == []
            go_on.set()
            one, same = await asyncio.gather(*joining)
            assert one is same and kept.gateways == [one]
            stack.push_async_callback(kept.stop_recording)
    assert [json.loads(line)["event"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()] == [
        "started",
        "stopped",
    ]


async def test_an_audit_that_cannot_be_opened_in_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path, {"box": {"server": {"command": "never-started"}}}, audit={"file": "audit.jsonl"})
    go_on = threading.Event()
    monkeypatch.setattr("mcp_workbench.team.oversight.OVERSIGHT_OPEN_TIMEOUT", 0.0)
    monkeypatch.setattr(AuditFile, "open", lambda file: go_on.wait(60))
    async with catalogs() as kept:
        with pytest.raises(ConfigError, match="could not be opened within"):
            await kept.serving(context(tmp_path)).__aenter__()
        go_on.set()
        assert kept.gateways == []


@pytest.mark.parametrize("policy", [None, [{"tools": ["box/server/write"], "then": "hide"}, {"then": "allow"}]])
async def test_manifests_for_the_first_client_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: list[object] | None
) -> None:
    rules = {} if policy is None else {"policy": policy}
    write_config(tmp_path, {"box": {"server": {"command": "never-started"}}}, **rules)
    threads: list[threading.Thread] = []
    read = ServerEntry.read_manifest

    def noted(entry: ServerEntry) -> Manifest:
        threads.append(threading.current_thread())
        return read(entry)

    monkeypatch.setattr(ServerEntry, "read_manifest", noted)
    async with catalogs() as kept, kept.serving(context(tmp_path, "flat")) as gateway:
        gateway.make_session(ClientLink(), "")
        assert gateway.router.views.face_of("") is not None
    assert threads and threading.main_thread() not in threads
