"""Merge the servers of several clients, and group them into toolboxes by purpose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.engine.config.redact import is_secret_name
from mcp_workbench.setup.clients.identity import Find, is_same_program
from mcp_workbench.setup.clients.literal_secrets import without_secrets

# Name of the toolbox, its purpose, and words in names and commands of servers that belong there; the first match
# counts.
PURPOSES: Final = (
    ("web", "Search, read and drive the web", "fetch browser playwright puppeteer chrome search brave tavily exa "
     "firecrawl scrape crawl web http perplexity kagi duckduckgo"),
    ("data", "Databases and data", "postgres postgresql mysql sqlite mongo mongodb redis sql database db supabase neon "
     "bigquery snowflake clickhouse duckdb elasticsearch qdrant chroma pinecone"),
    ("cloud", "Machines, clouds and monitoring", "aws gcp azure kubernetes k8s docker terraform cloudflare vercel "
     "netlify sentry grafana datadog prometheus heroku railway"),
    ("team", "Tickets, documents and messages of the team", "slack linear jira confluence atlassian notion asana "
     "trello discord gmail google calendar drive email teams tickets zendesk hubspot monday figma"),
    ("code", "Code, files and documentation of the project", "git github gitlab bitbucket filesystem files fs code "
     "context7 docs lsp serena repo npm shell terminal everything"),
    ("desk", "Time, notes, memory and other everyday things", "time clock memory notes thinking sequential weather "
     "calculator obsidian todo maps"),
)  # fmt: skip
REST: Final = ("other", "Other servers")
_WORD_PATTERN: Final = re.compile(r"[a-z0-9]+")
# How a client treats a server, rather than which server it is.
_TIME_LIMITS: Final = ("timeout", "startupTimeout")
TREATMENT: Final = frozenset((*_TIME_LIMITS, "disabled"))
# What may follow a name in that of its twin: `github-work`, `github2`.
_TWIN_SUFFIX: Final = re.compile(r"[-_ .].*|\d+")


class ImportedServer(Struct):
    """A server in our format, with the clients that it came from."""

    name: str
    entry: dict[str, Any]
    sources: list[str]
    remarks: list[str] = []


def merged(servers: Sequence[ImportedServer], find: Find) -> list[ImportedServer]:
    """Return each server once; of different servers with the same name, the later gets its client's name appended."""
    found: list[ImportedServer] = []
    for server in servers:
        same = next((each for each in found if is_same(each.entry, server.entry, find)), None)
        if same is not None:
            _join(same, server)
            continue
        name = _valid(server.name)
        taken = {each.name.casefold() for each in found}
        number = 1
        candidate = name
        # Some clients would not distinguish names that differ only in case.
        while candidate.casefold() in taken:
            candidate = f"{name}-{server.sources[0]}" + (f"-{number}" if number > 1 else "")
            number += 1
        found.append(ImportedServer(candidate, server.entry, list(server.sources), list(server.remarks)))
    return found


def is_same(one: dict[str, Any], other: dict[str, Any], find: Find) -> bool:
    """Whether two entries are the same server. Clients that name no transport detect it."""
    without = [{key: value for key, value in each.items() if key not in TREATMENT} for each in (one, other)]
    program, another = (str(each.pop("command", "")) for each in without)
    transports = {each.pop("type", None) for each in without} - {None}
    return without[0] == without[1] and len(transports) < 2 and is_same_program(program, another, find)


def _join(same: ImportedServer, server: ImportedServer) -> None:
    """Merge two entries: the longer time limits count, and a server is enabled if one client uses it."""
    both = (same.entry, server.entry)
    joined = server.entry | same.entry
    joined |= {key: max(each[key] for each in both if key in each) for key in _TIME_LIMITS if key in joined}
    if not all("disabled" in each for each in both):
        joined.pop("disabled", None)
    same.entry = joined
    same.sources += [source for source in server.sources if source not in same.sources]
    same.remarks += [remark for remark in server.remarks if remark not in same.remarks]


def disabled_twins(servers: Sequence[ImportedServer], find: Find) -> list[ImportedServer]:
    """Return the disabled servers that differ from an enabled one only in its settings, or have its name: variants that
    their user has switched off."""
    enabled = [each for each in servers if not each.entry.get("disabled")]

    def is_twin(one: ImportedServer) -> bool:
        return not any(is_same(one.entry, each.entry, find) for each in enabled) and any(
            one.name.casefold() == each.name.casefold() or _starts_same(one.entry, each.entry, find) for each in enabled
        )

    return [each for each in servers if each.entry.get("disabled") and is_twin(each)]


def twins(servers: Sequence[ImportedServer], find: Find) -> list[tuple[ImportedServer, ImportedServer, list[str]]]:
    """Return the pairs that start the same and differ in a few variables, headers or keys, with the names of these: one
    server with two keys, perhaps, rather than two servers. They have the same name, or in two clients names that differ
    in a suffix and one key that does."""
    found = []
    for at, one in enumerate(servers):
        for other in servers[at + 1 :]:
            if not _starts_same(one.entry, other.entry, find) or is_same(one.entry, other.entry, find):
                continue
            different = _different_keys(one.entry, other.entry)
            names = sorted((one.name.casefold(), other.name.casefold()), key=len)
            # Two names in one client were given on purpose.
            is_alike = (
                names[1].startswith(names[0]) and _TWIN_SUFFIX.fullmatch(names[1].removeprefix(names[0])) is not None
            )
            if names[0] == names[1] or (is_alike and len(different) == 1 and one.sources != other.sources):
                found.append((one, other, different))
    return found


def _starts_same(one: dict[str, Any], other: dict[str, Any], find: Find) -> bool:
    """Whether two entries start the same program or connect to the same address, apart from keys."""
    urls = [without_secrets("", {"url": each.get("url", "")}, lambda name, value: "")["url"] for each in (one, other)]
    commands = [str(each.get("command", "")) for each in (one, other)]
    return urls[0] == urls[1] and _masked(one) == _masked(other) and is_same_program(commands[0], commands[1], find)


def _masked(entry: dict[str, Any]) -> list[str]:
    """Return the arguments without what is a key by its name or form."""
    words = without_secrets("", {"args": [*map(str, entry.get("args", ()))]}, lambda name, value: "")["args"]
    found = []
    for before, word in zip(["", *words], words, strict=False):
        name, equals, _ = word.partition("=")
        # Also what is too short to look like a secret.
        if before.startswith("-") and "=" not in before and not word.startswith("-") and is_secret_name(before):
            found.append("")
        else:
            found.append(f"{name}=" if equals and is_secret_name(name) else word)
    return found


def _different_keys(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    pairs = [(one.get(kind) or {}, other.get(kind) or {}) for kind in ("env", "headers")]
    found = [key for mine, theirs in pairs for key in mine | theirs if mine.get(key) != theirs.get(key)]
    words = one.get("args") or []
    for at, (mine, theirs) in enumerate(zip(words, other.get("args") or [], strict=False)):
        if mine != theirs:
            name, equals, _ = mine.partition("=")
            found.append(name if equals else words[at - 1] if at else "an argument")
    return found + (["the address"] if one.get("url") != other.get("url") else [])


def proposed(servers: Sequence[ImportedServer]) -> dict[str, Any]:
    """Return the proposed toolboxes, in the format of a configuration."""
    boxes: dict[str, Any] = {}
    for name, about, members in ((*purpose[:2], purpose[2].split()) for purpose in (*PURPOSES, (*REST, ""))):
        inside = [server for server in servers if _purpose(server) == (name if members else None)]
        if inside:
            # Agents read this, and cannot use what is disabled.
            listed = ", ".join(server.name for server in inside if not server.entry.get("disabled"))
            boxes[name] = {
                "description": f"{about}: {listed}" if listed else about,
                "mcpServers": {server.name: server.entry for server in inside},
            }
    return boxes


def _purpose(server: ImportedServer) -> str | None:
    """Judged by the server's own name first: the command says more about who made it."""
    command = " ".join([*map(str, server.entry.get("args", ())), str(server.entry.get("url", ""))])
    for text in (server.name, command):
        words = set(_WORD_PATTERN.findall(text.lower()))
        for name, _, members in PURPOSES:
            if words & set(members.split()):
                return name
    return None


def _valid(name: str) -> str:
    """Return a name that a configuration allows."""
    cleaned = "".join(letter if letter.isprintable() else " " for letter in name).strip()
    while "__" in cleaned:
        cleaned = cleaned.replace("__", "_")
    return cleaned[:150] or "server"
