"""Network servers that are encrypted, directly and through a proxy's tunnel: they work, fail clearly, and recover."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.engine.transport.http.tunnels import Proxy, Serve, listening, make_certificate, pump
from tests.faults.remote import Remote, remote
from tests.faults.running_workbench import Faults, error_text


@pytest.fixture(scope="session")
def vouched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.parametrize("tunnelled", [False, True])
async def test_an_encrypted_server_works_breaks_and_works_again(
    faults: Faults, vouched: tuple[Path, Path], tunnelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remote(faults) as there:
        forward = _forwarding_to(there)
        async with listening(forward, vouched) as listener, listening(Proxy(listener.port).serve) as proxy:
            monkeypatch.setenv("SSL_CERT_FILE", str(vouched[0]))
            if tunnelled:
                monkeypatch.setenv("HTTPS_PROXY", f"http://user:hunter2@127.0.0.1:{proxy.port}")
            url = "https://far.invalid/mcp" if tunnelled else f"https://localhost:{listener.port}/mcp"
            async with faults.serving({"remote": there.entry(url=url, timeout=5)}) as workbench:
                assert await workbench.value("remote", "count") == {"count": 1}
                await workbench.remember()
                large = await workbench.call("remote", "large", {"bytes": 300_000})
                assert len(large["content"][0]["text"]) > 290_000
                there.does(on=["tools/call"], reset="middle")
                text = error_text(await workbench.call("remote", "count"))
                assert "ended early" in text or "closed the connection" in text
                await workbench.others_work()
                there.does()
                assert await workbench.value("remote", "count") == {"count": 2}
                assert "hunter2" not in workbench.process.stderr


async def test_a_certificate_for_somebody_else_is_reported_and_nothing_is_sent(
    faults: Faults, vouched: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remote(faults) as there, listening(_forwarding_to(there), vouched) as listener:
        # Nobody vouches for it here: SSL_CERT_FILE is not set.
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        entry = there.entry(url=f"https://localhost:{listener.port}/mcp", headers={"Authorization": "Bearer hunter2"})
        async with faults.serving({"remote": entry}) as workbench:
            for is_warm in (False, True):
                reason = (await workbench.unavailable())["remote"]
                assert "the certificate of `localhost` is not valid" in reason
                if not is_warm:
                    await workbench.remember()
        assert not there.log.exists() or there.log.read_text() == ""


def _forwarding_to(there: Remote) -> Serve:
    """What is decrypted goes to the bad server, which speaks plain HTTP."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source, sink = await asyncio.open_connection("127.0.0.1", there.port)
        await asyncio.gather(pump(reader, sink), pump(source, writer))

    return forward
