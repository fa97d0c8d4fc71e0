"""Runs the flow: sends its requests with the workbench's HTTP client, without any of the server's headers.

Owns the limits. A response that is missing, too large or redirects to another origin becomes a response with status 0.
An address that somebody else named is connected to only if it is no more local than whoever named it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final, TypeVar

from mcp_workbench.engine.jsonrpc.pending import within
from mcp_workbench.engine.transport.http.client.dialing import DialFailed
from mcp_workbench.engine.transport.http.client.failures import explain
from mcp_workbench.engine.transport.http.client.headers import FixedHeaders
from mcp_workbench.engine.transport.http.client.http_client import HttpClient, HttpTarget
from mcp_workbench.engine.transport.http.client.reach import Reach
from mcp_workbench.engine.transport.http.client.response import Response
from mcp_workbench.engine.transport.http.client.response_body import read_whole
from mcp_workbench.signin.flow_io import (
    AuthorizationRequest,
    DeviceCodeWait,
    OAuthRequest,
    OAuthResponse,
    Registered,
    SignInFailed,
    too_local,
)

T = TypeVar("T")

# Metadata and tokens are a few kilobytes.
MAX_OAUTH_ANSWER_BYTES: Final = 1024 * 1024
# One request to an authorization server, including the connection. A workbench that shuts down waits this long for the
# response to a refresh, so anyone waiting for it to exit must wait longer
# (`sharing.front.joining.WORKBENCH_END_TIMEOUT`).
TOKEN_REQUEST_TIMEOUT: Final = 20.0
NO_OWN_HEADERS: Final = FixedHeaders({})

OnAuthorizationRequest = Callable[[AuthorizationRequest], Awaitable[Mapping[str, str]]]
OnDeviceCodeWait = Callable[[DeviceCodeWait], Awaitable[None]]


async def run(
    steps: Generator[Any, Any, T],
    client: HttpClient,
    visit: OnAuthorizationRequest | None = None,
    wait: OnDeviceCodeWait | None = None,
    keep: Callable[[Any], Awaitable[None]] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> T:
    """Perform what `steps` yields until it returns, using the proxies of `environ`. Raises what `steps` raises."""
    try:
        step = next(steps)
        while True:
            match step:
                case OAuthRequest():
                    step = steps.send(await send(client, step, environ))
                case AuthorizationRequest():
                    assert visit is not None
                    step = steps.send(await visit(step))
                case DeviceCodeWait():
                    assert wait is not None
                    await wait(step)
                    step = next(steps)
                case Registered(client=registered):
                    assert keep is not None
                    await keep(registered)
                    step = next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        steps.close()


async def send(client: HttpClient, request: OAuthRequest, environ: Mapping[str, str] = os.environ) -> OAuthResponse:
    """Send one request. A failure becomes a response with status 0 and the reason. Raises `SignInFailed` if whoever
    named the address may not name it."""
    target = None
    try:
        target = HttpTarget.of(request.url, NO_OWN_HEADERS, environ)
        async with within(TOKEN_REQUEST_TIMEOUT):
            response = await _request(client, request, target, environ)
            try:
                body = await read_whole(response, MAX_OAUTH_ANSWER_BYTES)
                assert isinstance(body, bytes), "in pieces only beyond what is read here"
            finally:
                response.release()
    except SignInFailed:
        raise
    except Exception as error:
        why = str(error) if target is None else explain(error, target.address, target.shown_proxy).message
        return OAuthResponse(0, why.encode())
    said = response.headers
    nonce, challenge = said.get("dpop-nonce", ""), said.get("www-authenticate", "")
    return OAuthResponse(response.status, body, response.content_type, nonce, challenge)


async def _request(
    client: HttpClient, request: OAuthRequest, target: HttpTarget, environ: Mapping[str, str]
) -> Response:
    if request.named_by is None:
        return await client.request(request.method, target, request.headers, request.body)
    reach = Reach.PUBLIC
    while True:
        target.most_local = reach
        try:
            return await client.request(request.method, target, request.headers, request.body)
        except DialFailed as error:
            if error.stage != "reach":
                raise
            # Nothing was sent. Whoever is inside themselves may name what is no further inside.
            if reach is Reach.PUBLIC:
                reach = await _reach_of(client, request.named_by, environ)
            if reach < error.reach:
                raise too_local(f"`{target.address.origin}` is", error.reach, request.named_by) from None
            target = HttpTarget.of(request.url, NO_OWN_HEADERS, environ)


async def _reach_of(client: HttpClient, url: str, environ: Mapping[str, str]) -> Reach:
    try:
        return await client.reach_of(HttpTarget.of(url, NO_OWN_HEADERS, environ))
    except DialFailed:
        return Reach.PUBLIC
