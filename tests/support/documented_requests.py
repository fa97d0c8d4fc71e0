"""Requests with their answers, as documents show them: the request, an empty line, what is answered."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.client import Conversation

_REQUEST = re.compile(r"(open_toolbox|use_tool|resources/read) (\{.*\})\n\n")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Documented(NamedTuple):
    """A request, and what is answered: `…` at the end of a line stands for its rest, alone for any lines."""

    method: str
    arguments: str
    answer: list[str]


def documented(text: str) -> Iterator[Documented]:
    for block in blocks(text, "text"):
        asked = _REQUEST.match(block)
        if asked is not None:
            yield Documented(asked[1], asked[2], block[asked.end() :].rstrip("\n").split("\n"))


def matches(written: list[str], said: list[str]) -> bool:
    """Whether lines read as they are written."""
    if not written:
        return not said
    first, *rest = written
    if first == "…":
        return any(matches(rest, said[skipped:]) for skipped in range(len(said) + 1))
    if not said:
        return False
    same = said[0].startswith(first[:-1]) if first.endswith("…") else said[0] == first
    return same and matches(rest, said[1:])


def written_config(text: str, folder: Path) -> Path:
    """A configuration from a document as a file, with this interpreter's workbench."""
    written = json.loads(re.sub(r",(\s*[}\]])", r"\1", text))
    for toolbox in written["toolboxes"].values():
        for server in toolbox["mcpServers"].values():
            server["args"] = ["-m", "mcp_workbench", *server["args"]]
            server["command"] = sys.executable
    path = folder / "workbench-config.json"
    path.write_text(json.dumps(written))
    return path


async def answer(client: Conversation, method: str, arguments: str) -> str:
    """The text of an answer or of an error."""
    if method != "resources/read":
        return str((await client.call_tool(method, json.loads(arguments)))["content"][0]["text"])
    response = await (await client.start(method, json.loads(arguments))).response()
    return str(response["error"]["message"] if "error" in response else response["result"]["contents"][0]["text"])
