"""What the suite starts as the client under test: a small legacy client in front of the workbench.

`python -m conformance.client_driver ERA URL`. The suite plays the server at `URL`; the workbench is the client that is
looked at. The driver speaks the handshake era over stdio, so that everything that a modern server wants of its clients
(`_meta`, headers, retries with `requestState`) has to come from the workbench. It uses all that is listed, once.

The era of the suite's server is pinned: by itself the workbench would try first whether the server speaks the era of
its client, and the suite counts that one `initialize` as a modern request that lacks its headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

LEGACY: Final = "2025-11-25"
# The suite ends a client after 30 s.
ANSWER_TIMEOUT: Final = 20.0
GOODBYE_TIMEOUT: Final = 5.0
LINE_LIMIT: Final = 16 * 1024 * 1024
# What the suite's authorization servers take for a published document.
CLIENT_METADATA_URL: Final = "https://conformance-test.local/client-metadata.json"
EXAMPLES: Final[dict[str, Any]] = {"string": "text", "number": 2.5, "integer": 3, "boolean": True}


SignIn = Callable[[], Awaitable[bool]]
# A user tries once more.
MAX_LOGINS: Final = 2


class Refused(Exception):
    """The workbench answered with an error."""


class Client:
    """A legacy client on the workbench's stdin and stdout."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask, and wait for the result. Raises `Refused`."""
        id = len(self._waiting) + 1
        self._waiting[id] = asyncio.get_running_loop().create_future()
        self.send({"id": id, "method": method, "params": params})
        async with asyncio.timeout(ANSWER_TIMEOUT):
            answer = await self._waiting[id]
        if "error" in answer:
            raise Refused(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def read(self) -> None:
        """Take answers in and answer questions, until the workbench goes."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            if "method" not in message:
                waiting = self._waiting[message["id"]]
                # One that was cancelled may be answered all the same.
                if not waiting.done():
                    waiting.set_result(message)
            elif "id" in message:
                self.send({"id": message["id"], "result": answer_to(message["method"], message.get("params", {}))})


def answer_to(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """What a user, a model or a folder says to a question of a server."""
    if method == "elicitation/create":
        properties: Mapping[str, Any] = params.get("requestedSchema", {}).get("properties", {})
        content = {name: schema.get("default", example(schema)) for name, schema in properties.items()}
        return {"action": "accept", "content": content}
    if method == "sampling/createMessage":
        return {"role": "assistant", "model": "none", "content": {"type": "text", "text": "An answer."}}
    if method == "roots/list":
        return {"roots": [{"uri": "file:///work", "name": "work"}]}
    return {}


def example(schema: Mapping[str, Any]) -> object:
    """Some value that fits a property."""
    return EXAMPLES.get(schema.get("type", ""), {})


def calls_of(tools: list[dict[str, Any]], context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Which calls to make: those that the scenario asks for, else every tool once."""
    if "toolCalls" in context:
        asked: list[dict[str, Any]] = context["toolCalls"]
        return asked
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools}
    calls = []
    for name, schema in schemas.items():
        wanted = schema.get("required", [])
        arguments = {key: example(schema["properties"].get(key, {})) for key in wanted}
        if name == "json_schema_echo":
            # It shows whether the schema of its neighbour came through as it was.
            arguments = {"schema": schemas.get("json_schema_2020_12_tool")}
        calls.append({"name": name, "arguments": arguments})
    return calls


async def use_everything(client: Client, context: Mapping[str, Any], sign_in: SignIn | None = None) -> None:
    """Shake hands, list everything, use everything. What is refused is said; only the first list has to work."""
    capabilities: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
    information = {"name": "conformance-driver", "version": "1"}
    await client.request(
        "initialize", {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": information}
    )
    client.send({"method": "notifications/initialized"})
    tools = (await client.request("tools/list", {}))["tools"]
    uses = [("tools/call", call) for call in calls_of(tools, context)]
    with contextlib.suppress(Refused):
        prompts = (await client.request("prompts/list", {}))["prompts"]
        uses += [("prompts/get", {"name": prompt["name"]}) for prompt in prompts]
    with contextlib.suppress(Refused):
        resources = (await client.request("resources/list", {}))["resources"]
        uses += [("resources/read", {"uri": resource["uri"]}) for resource in resources]
    for method, params in uses:
        shown = await used(client, method, params)
        if sign_in is not None and "mcp-workbench auth login" in shown and await sign_in():
            shown = await used(client, method, params)
        print(f"{method} {json.dumps(params)}: {shown}")


async def used(client: Client, method: str, params: Mapping[str, Any]) -> str:
    """What came of one use."""
    try:
        return json.dumps(await client.request(method, params))
    except Refused as refusal:
        return str(refusal)


async def log_in(config: Path, environ: Mapping[str, str]) -> bool:
    """`mcp-workbench auth login`, as a user runs it, and once more where that is what it says to do."""
    for _ in range(MAX_LOGINS):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcp_workbench", "login", "suite", "--config", str(config)),
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
        )
        if await process.wait() == 0:
            return True
    return False


def oauth_of(context: Mapping[str, Any]) -> dict[str, Any]:
    """What the scenario hands to its client, as settings."""
    names = {
        "client_id": "clientId",
        "client_secret": "clientSecret",
        "private_key_pem": "privateKey",
        "signing_algorithm": "signingAlgorithm",
        "idp_issuer": "identityProvider",
        "idp_client_id": "identityClientId",
        "idp_id_token": "identityToken",
        "valid_jwt": "identityToken",
    }
    settings = {ours: context[theirs] for theirs, ours in names.items() if theirs in context}
    if "/client-credentials" in os.environ.get("MCP_CONFORMANCE_SCENARIO", ""):
        settings["grant"] = "client_credentials"
    if "identityToken" in settings:
        settings["grant"] = "jwt_bearer"
    return {"clientMetadataUrl": CLIENT_METADATA_URL, **settings}


async def drive(era: str, url: str, *, through_front_end: bool = False) -> None:
    """The whole scenario; through a front end, with a shared workbench that ends right after it."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    is_auth = os.environ.get("MCP_CONFORMANCE_SCENARIO", "").startswith("auth/")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "plain.json"
        server: dict[str, Any] = {"url": url, "protocol": era}
        if is_auth:
            server["oauth"] = oauth_of(context)
        environ = {**os.environ, "XDG_DATA_HOME": folder, "BROWSER": f"{sys.executable} -m conformance.browser %s"}
        if through_front_end:
            environ |= {"XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder}
        sharing = {"shared": True, "sharedIdleExit": 0.1} if through_front_end else {}
        config.write_text(json.dumps({"mcpServers": {"suite": server}, **sharing}))
        # A machine signs in by itself.
        is_person = is_auth and "grant" not in server["oauth"]
        sign_in = (lambda: log_in(config, environ)) if is_person else None
        if sign_in is not None and not await sign_in():
            sys.exit("not signed in")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config)),
            *("--face", "flat", "--no-prefix", "--no-cache"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
            env=environ,
        )
        client = Client(process)
        reading = asyncio.create_task(client.read())
        try:
            await use_everything(client, context, sign_in)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(GOODBYE_TIMEOUT):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
            await reading


if __name__ == "__main__":
    front_end = "--front-end" in sys.argv
    asyncio.run(drive(*(each for each in sys.argv[1:] if each != "--front-end"), through_front_end=front_end))
