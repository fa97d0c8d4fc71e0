"""Two roles on one workbench, seen with the official client: what each finds and may do, in the words of one table.

Owns the policy, the servers behind it and the table; refuses to know who has which role, how they prove it, and which
face they are shown.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, ElicitResult, Implementation

from tests.support.workbench import scripted_entry

Json = dict[str, Any]
# By what it is called in tests: the face, and as which client the official one introduces itself.
LOOKS: dict[str, tuple[str, str | None]] = {
    "proxy": ("proxy", None),
    "flat": ("flat", None),
    "dynamic": ("dynamic", None),
    "auto": ("auto", None),
    "auto-deferring": ("auto", "claude-code"),
}
# The official client: it shakes hands, or finds the modern era by probing.
MODES = {"legacy": "legacy", "modern": "auto"}
BOXES: Json = {
    "box": {"server": scripted_entry("--offers", "test")},
    "vault": {"server": scripted_entry("--offers", "vault")},
}
SECRET = "last_meta"
FORBIDDEN = -32010

EXPECTED: dict[str, Json] = {
    "lead": {
        "process": "done",
        "hidden tool": "done",
        "hidden toolbox": "done",
        "denied tool": "done",
        "tool to be asked about": "done",
        "questions": 0,
        "hidden prompt": "done",
        "hidden resource": "done",
        "denied resource": "done",
        "lists the hidden": True,
    },
    "member": {
        "process": "done",
        "hidden tool": "missing",
        "hidden toolbox": "missing",
        "denied tool": "denied",
        "tool to be asked about": "done",
        "questions": 1,
        "hidden prompt": "missing",
        "hidden resource": "missing",
        "denied resource": "denied",
        "lists the hidden": False,
    },
}


def policy(lead: str) -> list[Json]:
    """`lead` may do everything; for everybody else some of it is hidden, denied or asked about."""
    return [
        {"who": [lead], "then": "allow"},
        {
            "tools": ["vault", f"*/*/{SECRET}"],
            "prompts": ["vault", "*/*/ask_first"],
            "resources": ["vault", "*/*/test:///two"],
            "then": "hide",
        },
        {"tools": ["*/*/stderr"], "resources": ["*/*/test:///blob"], "then": "deny"},
        {"tools": ["*/*/count"], "then": "ask"},
        {"then": "allow"},
    ]


class Seen:
    """What one person finds with the official client; hands out what such a client is made with."""

    def __init__(self, look: str) -> None:
        name = LOOKS[look][1]
        self.questions: list[str] = []
        # The process that served them.
        self.process: object = None
        self.options: Json = {
            "client_info": None if name is None else Implementation(name=name, version="1"),
            "elicitation_callback": self._agree,
            "cache": None,
            "read_timeout_seconds": 30,
        }

    async def _agree(self, context: Any, params: Any) -> ElicitResult:
        # Of ours: servers ask as well.
        if params.message.startswith("Allow"):
            self.questions.append(params.message)
        return ElicitResult(action="accept", content={"allow": "once"})

    async def of(self, client: Client) -> Json:
        """Everything in the table, found out."""
        self.questions.clear()
        listed = await self._list(client)
        found = {
            "process": await self._call(client, "pid"),
            "hidden tool": await self._call(client, SECRET),
            "hidden toolbox": await self._call(client, "pid", toolbox="vault"),
            "denied tool": await self._call(client, "stderr"),
            "tool to be asked about": await self._call(client, "count"),
            "hidden prompt": await _outcome(client.get_prompt(self._name("ask_first"), {"who": "me"})),
            "hidden resource": await _outcome(client.read_resource("test:///two")),
            "denied resource": await _outcome(client.read_resource("test:///blob")),
        }
        hidden = [each in listed for each in (f"{SECRET}", "ask_first", "test:///two", "vault")]
        assert len(set(hidden)) == 1, f"all of it or nothing: {hidden}"
        assert all("box/server/count" in each for each in self.questions)
        return {**found, "questions": len(self.questions), "lists the hidden": hidden[0]}

    async def _list(self, client: Client) -> str:
        """Whatever is listed, found and said without being asked for by name."""
        names = [tool.name for tool in (await client.list_tools()).tools]
        said = [str(client.instructions)]
        self._searches = "use_tool" in names
        if "open_toolbox" in names:
            for toolbox in ("box", "vault"):
                opened = await client.call_tool("open_toolbox", {"toolbox_name": toolbox})
                # What it was asked for is repeated.
                said += [] if opened.is_error else [str(opened)]
        if self._searches:
            found = await client.call_tool("open_toolbox", {"query": SECRET.replace("_", " ")})
            said.append(str(found))
        shown = (await client.list_tools()).tools
        known = next((tool.name for tool in shown if tool.name.endswith("echo")), "box/server/echo")
        self._prefix = known.removesuffix("echo")
        said += [str(tool) for tool in shown]
        said += [str(prompt) for prompt in (await client.list_prompts()).prompts]
        said += [str(resource) for resource in (await client.list_resources()).resources]
        return "\n".join(said)

    def _name(self, own: str, toolbox: str = "box") -> str:
        return self._prefix.replace("box", toolbox, 1) + own

    async def _call(self, client: Client, tool: str, toolbox: str = "box") -> str:
        if self._searches:
            path = {"toolbox": toolbox, "server": "server", "tool": tool}
            called = client.call_tool("use_tool", {"tool": path, "arguments": {}})
        else:
            called = client.call_tool(self._name(tool, toolbox), {})
        return await _outcome(self._noted(called))

    async def _noted(self, called: Awaitable[CallToolResult]) -> CallToolResult:
        result = await called
        self.process = (result.structured_content or {}).get("pid", self.process)
        return result


async def _outcome(called: Awaitable[Any]) -> str:
    try:
        result = await called
    except MCPError as error:
        code, text = error.error.code, error.error.message
    else:
        if not getattr(result, "is_error", False):
            return "done"
        text = result.content[0].text
        code = (result.meta or {}).get("mcp-workbench/error", {}).get("code")
    if code == FORBIDDEN and "policy[2]" in text:
        return "denied"
    return "missing" if "does not exist" in text or "not found" in text.lower() else f"{code}: {text}"
