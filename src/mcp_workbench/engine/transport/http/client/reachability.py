"""Whether a server can be reached again, after it has failed too often to be tried without checking."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from mcp_workbench.engine.jsonrpc.pending import within
from mcp_workbench.engine.transport.http.client.address import Address, BadAddress
from mcp_workbench.engine.transport.http.client.dialing import DialFailed, connect, proxy_for
from mcp_workbench.engine.transport.http.client.failures import explain
from mcp_workbench.errors import DownstreamError

# Short, because a call waits for it.
REACHABILITY_TIMEOUT: Final = 2.0


async def why_unreachable(url: str, environ: Mapping[str, str] = os.environ) -> DownstreamError | None:
    """Why the address, or the proxy for it, cannot be reached; None if something listens there, which is all that can
    be known without sending a request."""
    try:
        address = Address.parse(url)
        proxy = proxy_for(address, environ)
    except BadAddress:
        # Using the address reports what is wrong with it.
        return None
    first = proxy or address
    try:
        async with within(REACHABILITY_TIMEOUT):
            raw = await connect(first.host, first.port)
    except DialFailed as error:
        failure = error if proxy is None else DialFailed("proxy", error.cause)
        return explain(failure, address, None if proxy is None else proxy.origin)
    except TimeoutError as error:
        return explain(DialFailed("time", error), address)
    raw.close()
    return None
