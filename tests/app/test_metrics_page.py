"""Metrics over HTTP: beside the MCP endpoint for those who may call, and at an address of their own on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import os
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app import metrics_page as metrics_page_module
from mcp_workbench.app.client_sign_ins import ClientSignIns
from mcp_workbench.app.gateway import Options
from mcp_workbench.app.http_callers import CallerOptions, HttpCallers
from mcp_workbench.app.metrics_page import Metrics
from mcp_workbench.app.serving import metrics_page
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
from mcp_workbench.engine.transport.http.server.pages import METRICS_HEADERS, METRICS_PATH
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.errors import DownstreamError
from mcp_workbench.seeing.process_figures import ProcessTree
from mcp_workbench.team.identity.named_keys import KeyFolder, folder
from tests.support.in_process_workbench import InProcessGateway, Server, tool, workbench_with, write
from tests.support.processes import eventually

pytestmark = pytest.mark.processes

TOKEN = "that of the workbench"


async def fetch(port: int, path: str = METRICS_PATH, host: str = "127.0.0.1", **headers: str) -> tuple[int, str, bytes]:
    """The status, the head and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{lines}\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), head.decode().lower(), body


@contextlib.asynccontextmanager
async def endpoint(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[int, str]]:
    """The port, and the token of a user with a key of their own."""
    server = Server(tool("status", "Show."))
    path = write(tmp_path, {"box": {"files": server}}, **settings)
    gateway = InProcessGateway(load(str(path), os.environ), {"box/files": server}, Options(use_cache=False))
    keys = folder()
    assert keys is not None
    alice = KeyFolder(keys).create("alice")
    async with gateway.running():
        callers = HttpCallers(gateway, CallerOptions(token=TOKEN))
        options = HttpOptions(port=0, authenticator=callers.authenticator, header_names=METRICS_HEADERS)
        pages = {METRICS_PATH: metrics_page(gateway)}
        served = await serve_http(options, gateway.make_session, pages=pages)
        try:
            yield served.port, alice
        finally:
            await served.stop()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def test_metrics_are_served_to_authorized_callers(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as (port, alice):
        for wrong in ({}, {"authorization": "Bearer wrong"}):
            status, _, body = await fetch(port, **wrong)
            assert status == 401 and b"workbench_build_info" not in body
        for right in (TOKEN, alice):
            status, head, body = await fetch(port, authorization=f"Bearer {right}")
            assert status == 200 and b"workbench_build_info" in body
            assert "content-type: text/plain; version=0.0.4; charset=utf-8" in head
            assert "content-encoding" not in head


async def test_where_rules_hide_servers_others_get_no_metrics(tmp_path: Path) -> None:
    policy = [{"who": ["alice"], "tools": ["*/*/*"], "then": "hide"}, {"then": "allow"}]
    async with endpoint(tmp_path, policy=policy) as (port, alice):
        status, _, body = await fetch(port, authorization=f"Bearer {alice}")
        assert status == 403 and b"workbench_build_info" not in body
        status, _, body = await fetch(port, authorization=f"Bearer {TOKEN}")
        assert status == 200 and b"workbench_build_info" in body


async def test_openmetrics_and_compression_are_negotiated(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as (port, _):
        status, head, body = await fetch(
            port,
            authorization=f"Bearer {TOKEN}",
            accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            accept_encoding="gzip",
        )
        assert status == 200 and "content-encoding: gzip" in head
        assert "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8" in head
        assert gzip.decompress(body).endswith(b"# EOF\n")


@pytest.mark.parametrize("per_tool", [False, True])
async def test_an_address_of_its_own_has_metrics_and_nothing_else(tmp_path: Path, per_tool: bool) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    metrics: Any = {"address": address, "perTool": True} if per_tool else address
    server = Server(tool("work"), tool("rest"))
    async with workbench_with(tmp_path, {"box": {"s": server}}, metrics=metrics) as seen:
        await eventually(lambda: seen.gateway.runtime.metrics.get(address) is not None)
        await seen.use("box/s/rest")
        status, _, body = await fetch(port)
        assert status == 200
        assert b'mcp_server_operation_duration_seconds_count{toolbox="box",server="s"' in body
        assert (b'gen_ai_tool_name="rest"' in body) is per_tool
        assert b'workbench_server_state{toolbox="box",server="s",state="ready"} 1' in body
        assert (await fetch(port, "/mcp"))[0] == 401
        assert (await fetch(port, host="evil.example"))[0] in (403, 421), "a page whose name was bound to our address"
    with pytest.raises(ConnectionRefusedError):
        await fetch(port)


async def test_an_address_in_use_costs_the_metrics_and_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with workbench_with(tmp_path, {"box": {"s": Server(tool("work"))}}, metrics=address) as seen:
            await eventually(lambda: "no metrics are served" in caplog.text)
            assert "isError" not in await seen.use("box/s/work")


async def test_over_stdio_nothing_is_counted_without_the_setting(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"box": {"s": Server(tool("work"))}}) as seen:
        await seen.use("box/s/work")
        assert seen.gateway.runtime.figures is None and seen.gateway.router.steps is None


async def test_memory_that_was_measured_for_metrics_is_in_the_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page_module, "tree_of", lambda pids: ProcessTree(5 * 1024, 2))
    port = free_port()
    address = f"127.0.0.1:{port}"
    async with workbench_with(tmp_path, {"box": {"s": Server(tool("work"))}}, metrics=address) as seen:
        await eventually(lambda: seen.gateway.runtime.metrics.get(address) is not None)
        await seen.use("box/s/work")
        _, _, body = await fetch(port)
        assert b'workbench_server_memory_bytes{toolbox="box",server="s"} 5120' in body
        figures = seen.gateway.runtime.figures
        assert figures is not None
        assert 5120 in [bucket.memory for bucket in figures.day("box", "s")]


def text_of(metrics: Metrics) -> str:
    return metrics.respond_to(RequestHead()).body.decode()


async def test_servers_that_fail_end_and_complain_are_counted_also_after_their_connections_are_gone(
    tmp_path: Path,
) -> None:
    crashing, healthy = Server(tool("work")), Server(tool("work"))
    async with workbench_with(tmp_path, {"box": {"bad": crashing, "good": healthy}}) as seen:
        metrics = Metrics(seen.gateway.runtime, per_tool=False)
        for server in ("bad", "good"):
            await seen.use(f"box/{server}/work")
        runtime = seen.gateway.runtime
        bad = next(each for each in runtime.pool.connections() if each.entry.name == "bad")
        bad.on_stderr_line()
        bad.on_link_closed(bad.traffic, "it crashed")
        crashing.failing = "no such file"
        await seen.use("box/bad/work")
        place = 'toolbox="box",server="bad"'
        expected = (
            f'workbench_server_failures_total{{{place},reason="crash"}} 1',
            f'workbench_server_failures_total{{{place},reason="start"}} 1',
            f"workbench_server_stderr_lines_total{{{place}}} 1",
            f"workbench_server_starts_total{{{place}}} 2",
            f'mcp_client_session_duration_seconds_count{{{place},mcp_protocol_version="2025-11-25"}} 1',
        )
        text = text_of(metrics)
        assert [line for line in expected if line not in text] == []
        # Its counters do not go back with a new connection.
        others = [each for each in runtime.pool.connections() if each is not bad]
        facts = metrics._servers.facts(others)
        assert [each.server for each in facts] == ["good"]
        (again,) = (each for each in metrics._servers.facts([*others, bad]) if each.server == "bad")
        assert again.starts == 4


async def test_sessions_of_clients_and_tokens_of_toolboxes_are_reported(tmp_path: Path) -> None:
    toolboxes = {"box": {"s": Server(tool("work", "many words " * 100))}, "other": {"t": Server(tool("rest"))}}
    async with workbench_with(tmp_path, toolboxes) as seen:
        metrics = Metrics(seen.gateway.runtime, per_tool=False)
        await seen.use("other/t/rest")
        # Nothing of it is listed, which is not the same as no token.
        assert 'workbench_context_tokens{toolbox="other"' in (text := text_of(metrics)) and 'toolbox="box"' not in text
        await seen.use("box/s/work")
        assert "mcp_server_session_duration" not in text_of(metrics)
        text = text_of(metrics)
        found = dict(re.findall(r'workbench_context_tokens\{toolbox="(\w*)",form="\w+"\} (\d+)', text))
        assert int(found["box"]) > 100 > int(found["other"]) > 0 and int(found[""]) > 0
        figures = seen.gateway.runtime.figures
        assert figures is not None
        for session in list(seen.gateway.sessions):
            seen.gateway.sessions.discard(session)
        assert 'mcp_server_session_duration_seconds_count{mcp_protocol_version="' in text_of(metrics)


class Begun:
    """A sign-in in a browser that ends at once."""

    def __init__(self, error: DownstreamError | None) -> None:
        self._error = error

    async def wait(self) -> None:
        if self._error is not None:
            raise self._error


async def test_sign_ins_of_clients_are_counted_without_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [Begun(None), Begun(DownstreamError("the user said no"))]

    class Stored:
        def under_way(self, target: object) -> None:
            return None

        async def begin(self, target: object) -> Begun:
            return ends.pop(0)

    monkeypatch.setattr(ClientSignIns, "stored", Stored())
    monkeypatch.setattr(ClientSignIns, "target", lambda *_: None)
    async with workbench_with(tmp_path, {"box": {"s": Server(tool("work"))}}) as seen:
        metrics = Metrics(seen.gateway.runtime, per_tool=False)
        seen.gateway.serve_at("stdio")
        (entry,) = seen.gateway.catalog.entries()
        for _ in range(2):
            await seen.gateway.sign_ins().begin_sign_in(entry, "")
        for outcome in ("signed_in", "failed"):
            line = f'workbench_sign_ins_total{{toolbox="box",server="s",outcome="{outcome}"}} 1'
            await eventually(lambda line=line: line in text_of(metrics))  # type: ignore[misc]


@pytest.mark.parametrize("written", ["a long enough token", "${file:token}"])
async def test_an_address_for_others_gives_metrics_to_the_holder_of_the_token_and_nothing_else(
    tmp_path: Path, written: str
) -> None:
    (tmp_path / "token").write_text("a long enough token\n")
    (tmp_path / "token").chmod(0o600)
    port = free_port()
    address = f"0.0.0.0:{port}"
    toolboxes = {"box": {"s": Server(tool("work"))}}
    async with workbench_with(tmp_path, toolboxes, metrics={"address": address, "token": written}) as seen:
        await eventually(lambda: seen.gateway.runtime.metrics.get(address) is not None)
        for wrong in ({}, {"authorization": "Bearer wrong"}):
            status, head, body = await fetch(port, **wrong)
            assert status == 401 and "www-authenticate" in head and b"workbench_build_info" not in body
        right = {"authorization": "Bearer a long enough token"}
        status, _, body = await fetch(port, **right)
        assert status == 200 and b"workbench_build_info" in body
        # It is no token for anything else.
        assert (await fetch(port, "/mcp", **right))[0] == 401
        assert "long enough" not in seen.gateway.runtime.redactor.text("a long enough token")


async def test_a_token_that_cannot_be_fetched_costs_the_metrics_and_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    metrics = {"address": f"0.0.0.0:{free_port()}", "token": "${file:missing}"}
    async with workbench_with(tmp_path, {"box": {"s": Server(tool("work"))}}, metrics=metrics) as seen:
        await eventually(lambda: "no metrics are served" in caplog.text)
        assert "isError" not in await seen.use("box/s/work")
        assert seen.gateway.runtime.metrics == {metrics["address"]: None}
