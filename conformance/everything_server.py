"""The everything-server of the conformance runs, over stdio or HTTP, in both eras or pinned to one.

`python -m conformance.everything_server [--http PORT] [--era legacy|modern|both] [--ordinary]`. Written with the
official SDK, so that what the suite finds behind the workbench is what people run. Pinned, it is a server of that era
and no other: the SDK's answers to the other one are replaced by those of a server that has never heard of it.
`--ordinary` has its interactive tools written as people write them: each in the way of one era, and of no use in the
other.
"""

from __future__ import annotations

import argparse
import json
import logging
import socket
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final, Literal

import anyio
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.types import INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION, EmptyResult, SetLevelRequestParams
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Receive, Scope, Send

from conformance.everything import resources
from conformance.everything.prompts import Prompts
from conformance.everything.tools import Tools

Era = Literal["legacy", "modern", "both"]

NAME: Final = "everything"
VERSION: Final = "1.0.0"
CACHEABLE: Final[tuple[CacheableMethod, ...]] = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "server/discover",
)


async def _set_level(context: ServerRequestContext[Any, Any], params: SetLevelRequestParams) -> EmptyResult:
    # Taken and not acted upon: whoever stands in front has to filter.
    return EmptyResult()


class EverythingServer(Server[dict[str, Any]]):
    """A server that says that its lists change, over whichever transport it is served."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changing = notification_options or NotificationOptions(prompts_changed=True, tools_changed=True)
        return super().create_initialization_options(changing, experimental_capabilities, extensions)


def build_server(*, is_ordinary: bool = False) -> EverythingServer:
    """The whole of it."""
    bus = InMemorySubscriptionBus()
    prompts = Prompts(is_ordinary=is_ordinary)
    tools = Tools(prompts, bus, is_ordinary=is_ordinary)
    with warnings.catch_warnings():
        # `logging/setLevel` is deprecated since the modern era; legacy clients still send it.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        server = EverythingServer(
            NAME,
            version=VERSION,
            instructions="Everything that the conformance suite looks for.",
            cache_hints={method: CacheHint(ttl_ms=1000, scope="private") for method in CACHEABLE},
            on_list_tools=tools.list,
            on_call_tool=tools.call,
            on_list_prompts=prompts.list,
            on_get_prompt=prompts.get,
            on_list_resources=resources.list_resources,
            on_list_resource_templates=resources.list_templates,
            on_read_resource=resources.read_resource,
            on_subscribe_resource=resources.subscribe,
            on_unsubscribe_resource=resources.unsubscribe,
            on_subscriptions_listen=ListenHandler(bus),
            on_completion=resources.complete,
            on_set_logging_level=_set_level,
        )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


async def serve_stdio(server: EverythingServer, era: Era) -> None:
    """One client on stdin and stdout."""
    if era == "modern":
        server.middleware.append(_refuse_handshake)
    async with stdio_server() as (read, write):
        if era == "legacy":
            async with server.lifespan(server) as state:
                await serve_loop(
                    server, read, write, lifespan_state=state, init_options=server.create_initialization_options()
                )
        else:
            await server.run(read, write, server.create_initialization_options())


async def _refuse_handshake(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    if ctx.method == "initialize":
        data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": (ctx.params or {}).get("protocolVersion")}
        raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, "there is no handshake in this era", data)
    return await call_next(ctx)


class OneEra:
    """An endpoint that serves one era alone and refuses the other as a server of that era would."""

    def __init__(self, app: ASGIApp, era: Era) -> None:
        self._app = app
        self._is_modern = era == "modern"
        self._served = MODERN_PROTOCOL_VERSIONS if self._is_modern else HANDSHAKE_PROTOCOL_VERSIONS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode("latin-1")
        # Before the handshake a legacy client has no version to name; an unknown one is for the SDK to refuse.
        known = {*MODERN_PROTOCOL_VERSIONS, *HANDSHAKE_PROTOCOL_VERSIONS}
        is_foreign = version in known and version not in self._served
        if not is_foreign and (version or not self._is_modern):
            await self._app(scope, receive, send)
            return
        await _refuse(send, version, self._served if self._is_modern else None)


async def _refuse(send: Send, version: str, supported: Sequence[str] | None) -> None:
    error: dict[str, Any] = {
        "code": INVALID_REQUEST,
        "message": f"Bad Request: Unsupported protocol version: {version}",
    }
    if supported is not None:
        data = {"supported": list(supported), "requested": version}
        error = {"code": UNSUPPORTED_PROTOCOL_VERSION, "message": "Unsupported protocol version", "data": data}
    body = json.dumps({"jsonrpc": "2.0", "id": "server-error", "error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve_http(server: EverythingServer, era: Era, port: int) -> None:
    """Any number of clients at `http://127.0.0.1:PORT/mcp`; the address is told on stdout when it can be used."""
    import uvicorn

    app: ASGIApp = server.streamable_http_app()
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(
        app if era == "both" else OneEra(app, era), log_level="warning", timeout_graceful_shutdown=1
    )
    # Connections are accepted from here on; uvicorn answers them once it runs.
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="everything_server")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP at this port (0: any) instead of stdio")
    parser.add_argument("--era", choices=("legacy", "modern", "both"), default="both", help="which clients are served")
    parser.add_argument("--ordinary", action="store_true", help="each tool that asks does so in the way of one era")
    parsed = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    server = build_server(is_ordinary=parsed.ordinary)
    if parsed.http is None:
        anyio.run(serve_stdio, server, parsed.era)
    else:
        serve_http(server, parsed.era, parsed.http)


if __name__ == "__main__":
    main(sys.argv[1:])
