"""What one workbench holds of sign-ins: for as long as somebody uses it, and until the end."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from mcp_workbench.engine.config.redact import MAX_RELEASED_SERVERS, Redactor
from mcp_workbench.signin.flow_io import NotNow
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.sign_ins import SignIns
from mcp_workbench.signin.store import TokenStore, lock_name
from tests.engine.transport.http.listening import Reply, Request, scripted_http
from tests.signin.authority import SignInSetup, another, sign_in_setup
from tests.signin.test_signed_in_headers import due, over

pytestmark = pytest.mark.processes


async def test_sign_ins_of_disconnected_clients_are_released(tmp_path: Path) -> None:
    redactor = Redactor(())
    async with sign_in_setup(tmp_path) as at:
        sign_ins = SignIns(lambda: at.client, TokenStore(str(tmp_path / "other")), redactor)

        async def come_and_go(principal: str) -> None:
            target = SignInTarget(principal, at.authority.url, None, "login files")
            one = SignInSetup(at.authority, at.server, at.client, sign_ins, target, sign_ins.source(target, {}))
            await one.log_in()
            assert await one.call() == 200
            assert redactor.text(f"said {one.record.access_token}") == "said ***"

        for number in range(MAX_RELEASED_SERVERS + 10):
            await come_and_go(f"user-{number}")
        gc.collect()
        assert not sign_ins._sources and not redactor._passing
        assert len(redactor._released) == MAX_RELEASED_SERVERS


async def test_a_refresh_outlives_the_client_that_it_was_for(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(due)
        gone = another(at)
        asked = asyncio.Event()

        async def hold() -> None:
            asked.set()
            await asyncio.sleep(0)

        at.authority.before_token = hold
        call = asyncio.create_task(gone.call())
        await asked.wait()
        call.cancel()
        sign_ins = gone.sign_ins
        del gone, call
        gc.collect()
        await sign_ins.close()
        assert at.record.refresh_token == "refresh-2"


async def test_at_the_end_a_refresh_that_was_not_sent_is_not_waited_for(tmp_path: Path) -> None:
    async with sign_in_setup(tmp_path) as at:
        await at.log_in()
        await at.change(over)
        late = another(at)
        async with at.sign_ins.store.locked(lock_name("", at.authority.url), 1):
            call = asyncio.create_task(late.call())
            while late.source._task is None:
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await late.sign_ins.close()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert at.authority.refreshes == 0
        assert at.record.refresh_token == "refresh-1"


async def test_the_way_to_an_authorization_server_is_through_the_proxy_of_the_client(tmp_path: Path) -> None:
    seen: list[str] = []

    async def proxy(request: Request, reply: Reply) -> None:
        seen.append(f"{request.method} {request.path}")
        await reply.send(503)

    async with scripted_http(proxy) as server, sign_in_setup(tmp_path) as at:
        environ = {"https_proxy": f"http://127.0.0.1:{server.port}"}
        target = SignInTarget("", "https://mcp.example.com/mcp", None, "login files", environ)
        with pytest.raises(NotNow, match="the proxy"):
            await at.sign_ins.begin(target)
        assert seen == ["CONNECT mcp.example.com:443"]
