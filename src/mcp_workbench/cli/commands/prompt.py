"""`mcp-workbench call --prompt`: get a prompt from a shell. stdout is its text, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from mcp_workbench.cli.arguments import Given
from mcp_workbench.cli.commands.call import print_raw
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.interactive_client import engine_of, interactive_client
from mcp_workbench.cli.prompts_and_resources import Definition, listed, result_of, show_list
from mcp_workbench.cli.result_content import ResultContent, decoded
from mcp_workbench.cli.result_output import show
from mcp_workbench.cli.screen import Part
from mcp_workbench.cli.unlisted_servers import TOOLBOX
from mcp_workbench.engine.face.suggestions import listed as suggested
from mcp_workbench.engine.face.wording import no_such
from mcp_workbench.engine.jsonrpc.messages import encode


def run(parsed: Parsed) -> int:
    engine, redactor, unlisted = engine_of(parsed)
    name, *words = unlisted.words if unlisted is not None else parsed.positionals or [""]
    path = name if unlisted is None else f"{TOOLBOX}/{unlisted.server}/{name}"
    arguments = {given.key: given.text for given in map(Given, words)}

    async def work() -> Raw:
        async with interactive_client(engine, path or "prompts") as client:
            prompts = await listed(engine, client, "prompts", path)
            if not name:
                return Raw(encode(prompts))
            _check(path, {each["name"]: each for each in prompts}, arguments)
            return await client.request("prompts/get", {"name": path, "arguments": arguments})

    result, status = result_of(engine, redactor, unlisted, path or "prompts", work)
    if result is None:
        return status
    if not name:
        show_list(parsed, json.loads(result), "no server has prompts", _lines)
    elif parsed.has("raw"):
        print_raw(result)
    else:
        messages = decoded(result).get("messages")
        items = messages if isinstance(messages, list) else []
        # Roles are for models; a shell gets the text.
        content = [each.get("content") for each in items if isinstance(each, dict)]
        # A message has one content block and a result has many, so the same code shows both.
        show(ResultContent(encode({"content": content})), None)
    return 0


def _check(path: str, prompts: dict[str, Definition], given: dict[str, str]) -> None:
    """Check, before the server is asked, that the prompt exists and has its required arguments."""
    if path not in prompts:
        fitting = [each for each in prompts if each.endswith(f"/{path}")]
        if fitting:
            raise UsageError(f"`{path}` is not a full path: it can be {suggested(fitting)}")
        raise UsageError(no_such("prompt", path, prompts), hint="mcp-workbench call --prompt lists all prompts")
    taken = _arguments(prompts[path])
    missing = [each["name"] for each in taken if each.get("required") and each["name"] not in given]
    if missing:
        raise UsageError(f"missing: {', '.join(f'`{each}`' for each in missing)}", hint=_signature(prompts[path]))


def _arguments(prompt: Definition) -> list[dict[str, Any]]:
    taken = prompt.get("arguments")
    named = taken if isinstance(taken, list) else []
    return [each for each in named if isinstance(each, dict) and isinstance(each.get("name"), str)]


def _signature(prompt: Definition) -> str:
    words = [f"{each['name']}=…" if each.get("required") else f"[{each['name']}=…]" for each in _arguments(prompt)]
    return " ".join([prompt["name"], *words])


def _lines(prompt: Definition) -> tuple[list[Part], str]:
    about = prompt.get("description")
    return [(_signature(prompt), "code")], about.strip() if isinstance(about, str) else ""
