"""`python -m bench.jobs`: does six jobs in three ways on published servers, compares the answers, and counts tokens.

Needs npm and the network for the servers, and the extra `programs`. Owns the options, the targets and the report.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.client import BenchError, StdioCaller
from bench.context.tokenizer import Tokenizer
from bench.jobs.jobs import JOBS, Agent, Count, Job
from bench.jobs.workshop import NODE_PACKAGES, PYTHON_PACKAGES, SQLITE_PACKAGES, configuration, expected, make
from mcp_workbench.engine.economy.tokens import estimated_tokens
from tests.support.packages import Unavailable, node_packages, python_packages

BEGIN = "<!-- bench-jobs:begin -->"
END = "<!-- bench-jobs:end -->"
MAX_PROGRAM_TOKENS = 1_800
MAX_PROGRAM_TURNS = 8
MAX_LIST_TOKENS = 8_000
TITLES = {
    "settings": "which of 40 files have a setting (filesystem)",
    "commits": "files of each `fix:` among 60 commits (git)",
    "debtors": "five worst debtors into a CSV file (sqlite, filesystem)",
    "people": "people on a project in a city (memory)",
    "zones": "one time in twelve zones (time)",
    "log": "errors of each service in a log (filesystem)",
}
WAYS: dict[str, Callable[[Agent, Job], Any]] = {
    "one call at a time": lambda agent, job: job.single(agent),
    "`calls`, `select`, kept results": lambda agent, job: job.lists(agent),
    "one program": lambda agent, job: agent.run(job.program),
}


class Cost(NamedTuple):
    tokens: int
    turns: int

    def __str__(self) -> str:
        return f"{self.tokens:,} / {self.turns}"


def run(caller: StdioCaller, count: Count, folder: Path) -> dict[str, list[Cost]]:
    """The cost of each job in each way. Raises `BenchError` if an answer is wrong."""
    right = expected()
    found: dict[str, list[Cost]] = {}
    for name, job in JOBS.items():
        # The zones change their offsets during the year: the first way is the yardstick.
        known = right[name] or None
        for way, do in WAYS.items():
            agent = Agent(caller, count)
            answer = do(agent, job)
            known = answer if known is None else known
            if answer != known:
                raise BenchError(f"`{name}` by {way} answers {answer!r}, and not {known!r}")
            if name == "debtors":
                _check_written(folder / "debtors.csv", answer)
            found.setdefault(name, []).append(Cost(agent.tokens, agent.turns))
    return found


def _check_written(file: Path, answer: str) -> None:
    if file.read_text() != answer:
        raise BenchError(f"`{file.name}` was not written: {file.read_text()[:200]!r}")
    file.unlink()


def table(found: dict[str, list[Cost]]) -> list[tuple[str, ...]]:
    rows = [(TITLES[name], *map(str, costs)) for name, costs in found.items()]
    return [*rows, ("sum", *map(str, sums(found)))]


def sums(found: dict[str, list[Cost]]) -> list[Cost]:
    by_way = zip(*found.values(), strict=True)
    return [Cost(sum(each.tokens for each in way), sum(each.turns for each in way)) for way in by_way]


def missed(found: dict[str, list[Cost]]) -> list[str]:
    """The targets that do not hold."""
    _, lists, programs = sums(found)
    limits = {
        f"programs: {programs.tokens} tokens, at most {MAX_PROGRAM_TOKENS}": programs.tokens <= MAX_PROGRAM_TOKENS,
        f"programs: {programs.turns} turns, at most {MAX_PROGRAM_TURNS}": programs.turns <= MAX_PROGRAM_TURNS,
        f"lists: {lists.tokens} tokens, at most {MAX_LIST_TOKENS}": lists.tokens <= MAX_LIST_TOKENS,
    }
    return [text for text, holds in limits.items() if not holds]


def markdown(rows: list[tuple[str, ...]], tokenizer: str) -> str:
    lines = [("job", *WAYS), ("---", *["---:"] * len(WAYS)), *rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n\nTokens written and read / turns, counted by {tokenizer}, {datetime.now(UTC):%Y-%m-%d}."


def write_section(path: Path, section: str) -> None:
    """Replace what stands between our marks."""
    before, found, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise BenchError(f"`{path}` has no `{BEGIN}` … `{END}`")
    path.write_text(f"{before}{BEGIN}\n\n{section}\n\n{END}{after}", encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.jobs", description=__doc__)
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="ranks of o200k_base; else our own estimate")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the marked section of a Markdown file")
    options = parser.parse_args(arguments)
    name, count = "our own estimate", lambda text: estimated_tokens(text.encode())
    if options.tokenizer is not None:
        name, count = "o200k_base", Tokenizer.read(options.tokenizer).count
    try:
        node, python = node_packages(NODE_PACKAGES), python_packages(PYTHON_PACKAGES)
        sqlite = python_packages(SQLITE_PACKAGES)
        with tempfile.TemporaryDirectory(prefix="jobs-") as made:
            folder = Path(made).resolve() / "work"
            folder.mkdir()
            make(folder)
            path = folder.parent / "workbench-config.json"
            path.write_text(json.dumps(configuration(folder, node, python, sqlite)))
            command = [sys.executable, "-m", "mcp_workbench", "serve", "--private", "--config", str(path)]
            environment = {**os.environ, "XDG_CACHE_HOME": str(folder.parent / "cache"), "NO_COLOR": "1"}
            with StdioCaller(command, environment=environment) as caller:
                caller.initialize()
                # Servers start here, and not in the first job.
                caller.request("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}})
                found = run(caller, count, folder)
    except (BenchError, Unavailable) as error:
        print(f"bench.jobs: {error}", file=sys.stderr)
        return 2
    rows = table(found)
    width = max(len(row[0]) for row in rows)
    for row in [("tokens / turns", *WAYS), *rows]:
        print(f"{row[0]:<{width}}", *(f"{cell:>32}" for cell in row[1:]))
    print(f"counted by {name}; all answers are equal")
    if options.write:
        write_section(options.write, markdown(rows, name))
    for text in missed(found):
        print(f"missed: {text}", file=sys.stderr)
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
