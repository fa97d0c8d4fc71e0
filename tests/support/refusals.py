"""A request that was refused: the error alone is half of it, the other half is that nothing else happened."""

from __future__ import annotations

from collections.abc import Callable

from tests.bridge.in_process import InProcessWorkbench, Request, settled
from tests.support.client import Json


async def refused(workbench: InProcessWorkbench, send: Callable[[], Request], code: int | None, says: str = "") -> Json:
    """The error of a request, or the result that an agent reads instead (`code` is None). No server was started or sent
    anything for it, no client told of anything else, and nothing is kept that was not, or lost that was kept."""
    await settled()
    before = _surroundings(workbench)
    request = send()
    await settled()
    after = _surroundings(workbench)
    if code is None:
        assert request.result["isError"] and says in str(request.result["content"]), request.result
    else:
        assert request.error["code"] == code and says in request.error["message"], request.error
    after["messages to clients"].remove(request.answer)
    assert after == before
    return request.result if code is None else request.error


def _surroundings(workbench: InProcessWorkbench) -> dict[str, list[object]]:
    servers, clients = workbench.gateway.fake_servers, workbench.clients
    return {
        "messages to servers": [message for server in servers for message in server.received],
        "calls at servers": [(server.traffic.call_count, len(server.traffic.questions)) for server in servers],
        "connections": [(each, each.state) for each in workbench.gateway.runtime.pool.connections()],
        "messages to clients": [message for client in clients for message in client.received],
        "kept for clients": [
            (
                *(dict(kept) for kept in (client.session.calls, client.session.streams, client.session.subscriptions)),
                len(client.session.questions),
            )
            for client in clients
        ],
        "parked": [len(workbench.parking), dict(workbench.parking._counts)],
    }
