"""How long a configuration is kept for clients that may come back, and which clients have one in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_workbench.catalog.registry import SharedServers
from mcp_workbench.config.choose import ConfigSource
from mcp_workbench.config.redact import Redactor
from mcp_workbench.gateway import Gateway, Options
from mcp_workbench.runtime import Runtime
from mcp_workbench.shared.catalogs import MOST_UNUSED, Catalogs
from mcp_workbench.shared.client import ClientContext
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
    runtime = Runtime(Redactor(()), SharedServers())
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
        with kept.serving(context(tmp_path)) as one, kept.serving(context(tmp_path)) as same:
            assert one is same
            with kept.serving(context(tmp_path, "flat")) as flat, kept.serving(context(tmp_path, A="1")) as rich:
                assert len({id(one), id(flat), id(rich)}) == 3
                assert servers(one) == servers(flat) == servers(rich), "their servers are the same all the same"


async def test_a_client_that_comes_back_finds_what_it_left(tmp_path: Path) -> None:
    async with catalogs() as kept:
        with kept.serving(context(tmp_path)) as before:
            pass
        with kept.serving(context(tmp_path)) as after:
            assert before is after


@pytest.mark.requirement("sharing.unused-catalogues")
async def test_what_nobody_uses_is_dropped_after_a_while_with_its_servers(tmp_path: Path) -> None:
    async with catalogs() as kept:
        kept.unused_seconds = 0.0
        with kept.serving(context(tmp_path)) as gateway:
            (entry,) = gateway.catalog.entries()
        await eventually(lambda: not kept.gateways, what="the end of the catalogue")
        assert entry.ended is not None
        assert len(kept.runtime.servers) == 0  # type: ignore[arg-type]


async def test_many_that_nobody_uses_are_not_kept(tmp_path: Path) -> None:
    async with catalogs() as kept:
        for number in range(MOST_UNUSED + 5):
            with kept.serving(context(tmp_path, NUMBER=str(number))):
                pass
        assert len(kept.gateways) == MOST_UNUSED
