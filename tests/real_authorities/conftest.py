"""What these tests share: authorization servers, MCP servers, and a workbench whose user agrees to every page."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.real_authorities.servers import (
    NODE_PACKAGES,
    PYTHON_PACKAGES,
    Authority,
    mock_server,
    oidc_provider,
    resource_server,
    workers_provider,
)
from tests.support.packages import Unavailable, node_packages, python_packages

# Longer than any test: nothing ends while it runs, unless the test says so.
LONG = 3600


@dataclass(frozen=True)
class Site:
    """An MCP server and its authorization server."""

    url: str
    authority: Authority


@pytest.fixture(scope="session")
def packages() -> None:
    try:
        # The first time both are mostly waiting for downloads.
        with ThreadPoolExecutor() as pool:
            installing = [pool.submit(node_packages, NODE_PACKAGES), pool.submit(python_packages, PYTHON_PACKAGES)]
        for each in installing:
            each.result()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def strict(packages: None) -> Iterator[Authority]:
    """npm `oidc-provider`: a refresh token that comes twice revokes everything."""
    with oidc_provider(LONG) as authority:
        yield authority


@pytest.fixture(scope="session")
def sdk_site(strict: Authority) -> Iterator[Site]:
    with resource_server("sdk", strict.origin) as url:
        yield Site(url, strict)


@pytest.fixture(scope="session")
def fastmcp_site(strict: Authority) -> Iterator[Site]:
    with resource_server("fastmcp", strict.origin) as url:
        yield Site(url, strict)


@pytest.fixture(scope="session")
def workers_site(packages: None) -> Iterator[Site]:
    """`@cloudflare/workers-oauth-provider` in front of a FastMCP server."""
    with ExitStack() as stack:
        upstream = stack.enter_context(resource_server("fastmcp"))
        authority = stack.enter_context(workers_provider(upstream))
        yield Site(f"{authority.origin}/mcp", authority)


@pytest.fixture(scope="session", params=["sdk_site", "fastmcp_site", "workers_site"])
def site(request: pytest.FixtureRequest) -> Site:
    """Each of them."""
    found: Site = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def mock(packages: None) -> Iterator[Authority]:
    """npm `oauth2-mock-server`: answers what it is told to."""
    with mock_server() as authority:
        yield authority
