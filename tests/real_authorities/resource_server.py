"""An MCP server that accepts tokens of an authorization server, as people write it. Run as a script:

`resource_server.py sdk|fastmcp|open ISSUER`. `open` is a FastMCP server without tokens, to put behind something else.
Prints its address first. Imports nothing of ours: it may run in another environment.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from typing import Any


def tools(server: Any) -> None:
    """The same for both."""

    def greet(name: str = "you") -> str:
        """Says hello."""
        return f"hello {name}"

    server.tool()(greet)


def sdk_app(issuer: str, url: str) -> Any:
    import jwt
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import MCPServer
    from pydantic import AnyHttpUrl

    keys = jwt.PyJWKClient(f"{issuer}/jwks")

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            try:
                key = await asyncio.to_thread(keys.get_signing_key_from_jwt, token)
                claims = jwt.decode(token, key, algorithms=["RS256"], audience=url, issuer=issuer)
            except jwt.PyJWTError:
                return None
            scopes = str(claims.get("scope", "")).split()
            return AccessToken(token=token, client_id=str(claims.get("client_id", "")), scopes=scopes, resource=url)

    settings = AuthSettings(
        issuer_url=AnyHttpUrl(issuer), resource_server_url=AnyHttpUrl(url), validate_token_resource=True
    )
    server = MCPServer("greeter", token_verifier=Verifier(), auth=settings)
    tools(server)
    return server.streamable_http_app()


def fastmcp_app(issuer: str, url: str) -> Any:
    from fastmcp import FastMCP
    from fastmcp.server.auth import RemoteAuthProvider
    from fastmcp.server.auth.providers.jwt import JWTVerifier
    from pydantic import AnyHttpUrl

    auth = None
    if issuer:
        verifier = JWTVerifier(jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=url)
        auth = RemoteAuthProvider(verifier, [AnyHttpUrl(issuer)], base_url=url.removesuffix("/mcp"))
    server: Any = FastMCP("greeter", auth=auth)
    tools(server)
    return server.http_app(path="/mcp")


def main() -> None:
    import uvicorn

    kind, issuer = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    app = sdk_app(issuer, url) if kind == "sdk" else fastmcp_app(issuer, url)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))

    def end_with_tests() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=end_with_tests, daemon=True).start()
    # It listens already: whoever connects now is served as soon as the application has started.
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()
