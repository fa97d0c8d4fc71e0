"""The soak of sign-ins, for some seconds: tokens end and are refreshed several times, and a workbench is restarted."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from soak.sign_ins import play
from tests.real_authorities.conftest import Site
from tests.real_authorities.servers import oidc_provider, resource_server
from tests.real_authorities.user import User

pytestmark = [pytest.mark.node, pytest.mark.network]

TTL = 3
SECONDS = 8


@pytest.fixture(scope="session")
def own_site(packages: None) -> Iterator[Site]:
    """Nobody else signs in there: the soak counts sign-ins."""
    with oidc_provider(TTL) as authority, resource_server("sdk", authority.origin) as url:
        yield Site(url, authority)


async def test_one_sign_in_serves_workbenches_that_come_and_go(
    tmp_path: Path, own_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Namespace(minutes=SECONDS / 60, ttl=TTL, rate=10, workbenches=2, restart_seconds=SECONDS / 2)
    assert await play(User(tmp_path, own_site.url), own_site.authority, given) == []
    assert len(own_site.authority.refreshes) >= 2
    assert " 0 failed," in capsys.readouterr().out
