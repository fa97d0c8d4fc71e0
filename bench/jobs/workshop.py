"""What the jobs are about, and the published servers in front of it: filesystem, git, sqlite, memory, time, everything.

Everything is made from fixed numbers, so that the answers are known and the costs the same each time.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

NODE_PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
)
PYTHON_PACKAGES = ("mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")
# Its latest version fails with the SDK that the others need.
SQLITE_PACKAGES = ("mcp-server-sqlite==2025.4.25", "mcp==1.30.0")
SERVICES = ("auth", "billing", "search", "web")
ZONES = (
    *("UTC", "Asia/Tokyo", "America/New_York", "Europe/London", "Asia/Kolkata", "Africa/Cairo"),
    *("America/Sao_Paulo", "Australia/Sydney", "Asia/Dubai", "America/Denver", "Europe/Athens", "Pacific/Auckland"),
)
_GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.test", "-c", "commit.gpgsign=false")


def config_files() -> dict[str, str]:
    lines = "".join(f"option_{n} = {n * 7}\n" for n in range(24))
    return {
        f"service-{n:02}.ini": f"[service]\nname = service-{n}\n{lines}debug = {'true' if n % 7 == 3 else 'false'}\n"
        for n in range(40)
    }


def log_lines() -> list[str]:
    return [
        f"2026-11-16T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02} {'ERROR' if n % 23 == 0 else 'INFO'} "
        f"{SERVICES[n * 7 % 11 % 4]} request {n} took {n * 13 % 900} ms\n"
        for n in range(6_000)
    ]


def commits() -> list[tuple[str, list[str]]]:
    """Each message, and the files that it touches."""
    found = []
    for n in range(60):
        kind = "fix" if n % 6 == 2 else ("feat", "docs", "test")[n % 3]
        found.append(
            (f"{kind}: change number {n}", [f"src/part_{n % 5}.py", *([f"tests/test_{n}.py"] if n % 4 == 0 else [])])
        )
    return found


def people() -> dict[str, Any]:
    cities = ("Wien", "Graz", "Linz", "Salzburg")
    return {
        "entities": [
            {"name": f"Person {n}", "entityType": "person", "observations": [f"lives in {cities[n * 3 % 7 % 4]}"]}
            for n in range(80)
        ],
        "relations": [{"from": f"Person {n}", "to": f"Project {n % 5}", "relationType": "works on"} for n in range(80)],
    }


def expected() -> dict[str, Any]:
    """The right answers."""
    errors = Counter(line.split()[2] for line in log_lines() if " ERROR " in line)
    there = {each["name"] for each in people()["entities"] if each["observations"] == ["lives in Wien"]}
    return {
        "settings": sorted(name for name, text in config_files().items() if "debug = true" in text),
        "commits": {message: sorted(files) for message, files in commits() if message.startswith("fix:")},
        "debtors": "\n".join(["name,owes", *(f"{name},{owes}" for name, owes in _debts()[:5])]),
        "people": sorted(
            each["from"] for each in people()["relations"] if each["to"] == "Project 1" and each["from"] in there
        ),
        "zones": {},
        "log": dict(errors),
    }


def _debts() -> list[tuple[str, int]]:
    owed: Counter[str] = Counter()
    for customer, amount, is_paid in _invoices():
        owed[f"Customer {customer}"] += 0 if is_paid else amount
    return sorted(owed.items(), key=lambda each: -each[1])


def _invoices() -> list[tuple[int, int, int]]:
    return [(n * 17 % 31, 100 + n * n % 977, int(n % 3 == 0)) for n in range(300)]


def make(folder: Path) -> None:
    """Write everything into a folder."""
    (folder / "conf").mkdir()
    for name, text in config_files().items():
        (folder / "conf" / name).write_text(text)
    (folder / "app.log").write_text("".join(log_lines()))
    graph = people()
    lines = [json.dumps({"type": kind, **each}) for kind in ("entity", "relation") for each in graph[_plural(kind)]]
    (folder / "memory.jsonl").write_text("\n".join(lines))
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("create table customers (id integer primary key, name text)")
        database.execute("create table invoices (customer integer, amount integer, paid integer)")
        database.executemany("insert into customers values (?, ?)", [(n, f"Customer {n}") for n in range(31)])
        database.executemany("insert into invoices values (?, ?, ?)", _invoices())
    database.close()
    _make_repository(folder / "repo")


def _plural(kind: str) -> str:
    return "entities" if kind == "entity" else "relations"


def _make_repository(folder: Path) -> None:
    folder.mkdir()
    subprocess.run([*_GIT, "init", "-q", "-b", "main"], cwd=folder, check=True)
    for number, (message, files) in enumerate(commits()):
        for name in files:
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"value = {number}\n")
        subprocess.run([*_GIT, "add", "."], cwd=folder, check=True)
        subprocess.run([*_GIT, "commit", "-q", "-m", message], cwd=folder, check=True)


def configuration(folder: Path, node: Path, python: Path, sqlite: Path) -> dict[str, Any]:
    def of_node(name: str, *arguments: str, **settings: Any) -> dict[str, Any]:
        return {"command": str(node / "node_modules" / ".bin" / name), "args": list(arguments), **settings}

    def of_python(programs: Path, name: str, *arguments: str) -> dict[str, Any]:
        return {"command": str(programs / name), "args": list(arguments), "cwd": str(folder)}

    servers = {
        "fs": of_node("mcp-server-filesystem", str(folder), cwd=str(folder)),
        "memory": of_node("mcp-server-memory", env={"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}),
        "everything": of_node("mcp-server-everything"),
        "git": of_python(python, "mcp-server-git", "--repository", str(folder / "repo")),
        "db": of_python(sqlite, "mcp-server-sqlite", "--db-path", str(folder / "shop.db")),
        "time": of_python(python, "mcp-server-time", "--local-timezone", "Europe/Vienna"),
    }
    return {
        # Nobody is there to be asked about tools that do not say that they only read.
        "programs": {"writes": "allow"},
        "toolboxes": {"dev": {"description": "Files, a repository, a database", "mcpServers": servers}},
    }
