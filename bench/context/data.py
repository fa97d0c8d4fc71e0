"""Catalogues of real tools and labelled needs, read from a folder that the caller names.

Owns the file formats. Refuses to measure anything. Files: `*_tools.jsonl.gz` with one tool a line (`id`, `server`,
`name`, `description`, `inputSchema`), `*_queries.jsonl` with one need on the tools of the same name a line (`set`,
`text`, `gold`), and `tokenizer/`, whose one file has the ranks of o200k_base.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.context.tokenizer import Tokenizer
from mcp_workbench.engine.economy.fields import SearchDocument
from mcp_workbench.engine.economy.tokens import tokens
from mcp_workbench.engine.economy.tool import Tool

Count = Callable[[str], int]
TOOLBOX = "live"


class Listed(msgspec.Struct, frozen=True):
    """One line of a catalogue."""

    id: str
    server: str
    name: str
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="inputSchema")

    def entry(self) -> SearchDocument:
        return SearchDocument(
            key=self.id,
            name=self.name,
            description=self.description or "",
            server=self.server,
            toolbox=TOOLBOX,
            schema=bytes(self.input_schema),
        )

    def tool(self, toolbox: str = TOOLBOX) -> Tool:
        definition = {"name": self.name, "description": self.description or "", "inputSchema": self.input_schema}
        return Tool(
            path=f"{toolbox}/{self.server}/{self.name}",
            toolbox=toolbox,
            server=self.server,
            name=self.name,
            definition=msgspec.json.encode(definition),
        )


class Need(msgspec.Struct, frozen=True):
    """A need in words. `gold` holds one list of right tools for each thing that is needed."""

    text: str
    gold: list[list[str]]
    set: str
    qid: str = ""

    @property
    def task(self) -> str:
        """Needs of one task have the first part of this in common."""
        return self.qid.partition("#")[0]


def catalogue(folder: Path, name: str) -> list[Listed]:
    with gzip.open(folder / f"{name}_tools.jsonl.gz") as file:
        return [msgspec.json.decode(line, type=Listed) for line in file]


def needs(folder: Path, name: str) -> list[Need]:
    return needs_by_set(folder, "livemcp").get(f"livemcp-{name}", [])


def needs_by_set(folder: Path, name: str) -> dict[str, list[Need]]:
    """The needs on a catalogue, by their `set`."""
    found: dict[str, list[Need]] = {}
    for line in (folder / f"{name}_queries.jsonl").read_bytes().splitlines():
        need = msgspec.json.decode(line, type=Need)
        found.setdefault(need.set, []).append(need)
    return found


def sets(folder: Path) -> list[str]:
    """The catalogues that come with needs."""
    return sorted(path.name.removesuffix("_queries.jsonl") for path in folder.glob("*_queries.jsonl"))


def halves(asked: Sequence[Need]) -> tuple[list[Need], list[Need]]:
    """The needs in two halves, by a hash of their text: those that may be looked at while something is changed, and
    those that are only ever counted."""
    kept = [need for need in asked if hashlib.sha256(need.text.encode()).digest()[0] % 2 == 0]
    return [need for need in asked if need not in kept], kept


def counter(folder: Path) -> tuple[str, Count]:
    """How tokens are counted: by the ranks in the folder, else four bytes each."""
    ranks = sorted((folder / "tokenizer").glob("*"))
    if not ranks:
        return "bytes / 4: the folder has no tokenizer", tokens
    return "o200k_base", Tokenizer.read(ranks[0]).count
