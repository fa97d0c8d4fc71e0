"""`mcp-workbench call --resource`: read a resource from a shell. stdout is its content, and nothing else."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from msgspec import Raw

from mcp_workbench.cli.commands.call import print_raw
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.interactive_client import engine_of, interactive_client
from mcp_workbench.cli.prompts_and_resources import Definition, listed, owners, result_of, show_list
from mcp_workbench.cli.result_content import ResultContent, decoded
from mcp_workbench.cli.result_output import show
from mcp_workbench.cli.screen import Part
from mcp_workbench.engine.jsonrpc.messages import encode


def run(parsed: Parsed) -> int:
    only = parsed.positionals[0] if len(parsed.positionals) > 1 else None
    engine, redactor, unlisted = engine_of(parsed, takes_pairs=False, only=only)
    words = unlisted.words if unlisted is not None else parsed.positionals[only is not None :]
    if len(words) > 1:
        raise UsageError(f"unexpected argument `{words[1]}`")
    uri = words[0] if words else None

    async def work() -> Raw:
        async with interactive_client(engine, uri or "resources") as client:
            # Needed even to read one: the workbench finds the owner of an address in the lists.
            resources = await listed(engine, client, "resources", is_strict=unlisted is not None)
            if uri is not None:
                return await client.request("resources/read", {"uri": uri})
            return Raw(encode([*resources, *await listed(engine, client, "resourceTemplates")]))

    result, status = result_of(engine, redactor, unlisted, uri or "resources", work)
    if result is None:
        return status
    if uri is None:
        servers = {**owners(engine, "resources"), **owners(engine, "resourceTemplates")}
        show_list(parsed, json.loads(result), "no server has resources", partial(_lines, servers))
    elif parsed.has("raw"):
        print_raw(result)
    else:
        contents = decoded(result).get("contents")
        read = contents if isinstance(contents, list) else []
        _show(ResultContent(encode({"content": [{"type": "resource", "resource": each} for each in read]})), parsed)
    return 0


def _show(reading: ResultContent, parsed: Parsed) -> None:
    target = parsed.value("output")
    if target is None and reading.binaries and not sys.stdout.isatty():
        sys.stdout.flush()
        # A pipe gets the bytes, because people type `resource URI > chart.png`.
        for binary in reading.binaries:
            sys.stdout.buffer.write(binary.data)
        reading.binaries.clear()
    show(reading, None if target is None else Path(target))


def _lines(servers: dict[str, list[str]], resource: Definition) -> tuple[list[Part], str]:
    address = str(resource.get("uri") or resource.get("uriTemplate"))
    offered_by = f"  {', '.join(servers.get(address, []))}".rstrip()
    about = ". ".join(str(resource[key]).strip() for key in ("title", "description") if resource.get(key))
    return [(address, "code"), (offered_by, "dim")], about
