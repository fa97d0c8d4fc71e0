"""An authorization server that answers anything: what is lost, what is not, and what the user is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.real_authorities.servers import Authority, resource_server
from tests.real_authorities.user import User, Workbench

pytestmark = [pytest.mark.node, pytest.mark.network]


@pytest.fixture(scope="session")
def url(mock: Authority) -> Iterator[str]:
    with resource_server("sdk", mock.ask("/_issuer")) as url:
        yield url


def answer_with(mock: Authority, status: int, body: str = "") -> None:
    """What token requests get from now on; with status 0, tokens."""
    assert mock.ask(f"/_fault?status={status}&body={quote(body)}")


async def eventually_said(workbench: Workbench, expected: str) -> None:
    async with asyncio.timeout(30):
        while (said := await workbench.said()) != expected:
            assert "the next attempt is in" in said, said
            await asyncio.sleep(0.2)


async def test_a_passing_fault_fails_one_call_and_the_end_of_a_grant_asks_for_a_sign_in(
    tmp_path: Path, mock: Authority, url: str
) -> None:
    user = User(tmp_path, url, oauth={"clientId": "tests"})
    await user.log_in()
    for status, body, said in [
        (503, "later", "did not answer the request for a token"),
        (200, "<html>a page</html>", "issued no token"),
        (200, '{"access_token":""}', "issued no token"),
    ]:
        await user.expire()
        token = user.record.refresh_token
        answer_with(mock, status, body)
        async with user.workbench() as workbench:
            assert said in await workbench.said(), body
            assert (user.record.refresh_token, user.record.ended) == (token, "")
            answer_with(mock, 0)
            # A server that does not answer is asked again after a pause.
            await eventually_said(workbench, "hello you")
    await user.expire()
    answer_with(mock, 400, '{"error":"invalid_grant","error_description":"it is over"}')
    async with user.workbench() as workbench:
        assert "wants you to sign in again" in await workbench.said()
        assert "it is over" in user.record.ended
        answer_with(mock, 0)
        await user.log_in()
        assert await workbench.said() == "hello you"


async def test_metadata_of_another_issuer_is_refused(tmp_path: Path, mock: Authority, url: str) -> None:
    foreign = mock.ask("/_issuer").replace("localhost", "127.0.0.1")
    user = User(tmp_path, url, oauth={"clientId": "tests", "issuer": foreign})
    status, _, said = await user.run("login", "greeter", "--config", str(user.config))
    assert status == 1
    assert "names a different issuer: `http://localhost" in said
    assert user.store.read().records == []
