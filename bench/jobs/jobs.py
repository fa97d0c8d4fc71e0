"""The six jobs: each with single calls, with lists of calls and kept results, and as a program.

A way is a function that makes calls through an `Agent` and returns the answer. Written by hand, by somebody who knows
the servers: best cases, all three of them.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.client import BenchError, StdioCaller
from bench.jobs.workshop import SERVICES, ZONES, config_files

Count = Callable[[str], int]
FS, GIT, DB = "dev/fs", "dev/git", "dev/db"
SQL = (
    "select name, sum(amount) owes from invoices join customers on id = customer where paid = 0 "
    "group by id order by owes desc limit 5"
)
FILES = re.compile(r"^\+\+\+ (?:b/)?(\S+)", re.MULTILINE)
COMMIT = re.compile(r"Commit: '?(\w+)'?.*?Message: '?(fix:[^'\n]*)", re.DOTALL)


class Agent:
    """Makes calls, and counts what a model would write and read: the arguments, and the whole result."""

    def __init__(self, caller: StdioCaller, count: Count) -> None:
        self._caller = caller
        self._count = count
        self.tokens = self.turns = 0

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        result = self._caller.request("tools/call", {"name": name, "arguments": arguments})
        self.tokens += self._count(json.dumps(arguments)) + self._count(json.dumps(result, ensure_ascii=False))
        self.turns += 1
        text = "".join(block.get("text", "") for block in result["content"])
        if result.get("isError"):
            raise BenchError(f"`{name}` failed: {text[:500]}")
        return text

    def use(self, tool: str, max_tokens: int = 0, **arguments: Any) -> str:
        return self.call(
            "use_tool", {"tool": tool, "arguments": arguments, **({"max_tokens": max_tokens} if max_tokens else {})}
        )

    def select(self, tool: str, select: str, **arguments: Any) -> Any:
        return json.loads(self.call("use_tool", {"tool": tool, "arguments": arguments, "select": select}))

    def each(self, tool: str, every: list[dict[str, Any]], select: str = "") -> list[Any]:
        calls = [{"tool": tool, "arguments": arguments} for arguments in every]
        found: list[Any] = json.loads(self.call("use_tool", {"calls": calls, **({"select": select} if select else {})}))
        return found

    def keep(self, tool: str, **arguments: Any) -> str:
        """Have a result kept; its address."""
        said = self.use(tool, max_tokens=200, **arguments)
        found = re.search(r"workbench://results/[\w-]+", said)
        if found is None:
            raise BenchError(f"`{tool}` was not kept: {said[:200]}")
        return found[0]

    def run(self, code: str) -> Any:
        said = self.call("run_program", {"code": code})
        try:
            return json.loads(said)
        except ValueError:
            return said


class Job(NamedTuple):
    single: Callable[[Agent], Any]
    lists: Callable[[Agent], Any]
    program: str


# ── which of 40 files have a setting ──


def _settings_single(agent: Agent) -> list[str]:
    names = [line[7:] for line in agent.use(f"{FS}/list_directory", path="conf").splitlines()]
    return [name for name in names if "debug = true" in agent.use(f"{FS}/read_text_file", path=f"conf/{name}")]


def _settings_lists(agent: Agent) -> list[str]:
    names = sorted(config_files())
    agent.use(f"{FS}/list_directory", path="conf")
    flags = agent.each(
        f"{FS}/read_text_file", [{"path": f"conf/{name}"} for name in names], "contains(@, 'debug = true')"
    )
    return [name for name, is_on in zip(names, flags, strict=True) if is_on]


# ── the files of each fix ──


def _shown(agent: Agent, log: str) -> dict[str, list[str]]:
    fixes = COMMIT.findall(log)
    diffs = agent.each(f"{GIT}/git_show", [{"repo_path": "repo", "revision": commit[:8]} for commit, _ in fixes])
    return {message: sorted(FILES.findall(diff)) for (_, message), diff in zip(fixes, diffs, strict=True)}


def _commits_single(agent: Agent) -> dict[str, list[str]]:
    log = agent.use(f"{GIT}/git_log", repo_path="repo", max_count=60)
    fixes = COMMIT.findall(_of_fixes(log))
    return {
        message: sorted(FILES.findall(agent.use(f"{GIT}/git_show", repo_path="repo", revision=commit[:8])))
        for commit, message in fixes
    }


def _commits_lists(agent: Agent) -> dict[str, list[str]]:
    kept = agent.keep(f"{GIT}/git_log", repo_path="repo", max_count=60)
    return _shown(agent, _of_fixes(agent.use(kept, grep="fix:", around=3)))


def _of_fixes(log: str) -> str:
    """The commits of a log that are fixes."""
    return "\n".join(each for each in re.split(r"(?=Commit:)", log) if "fix:" in each)


# ── the worst debtors into a file ──


def _debtors(agent: Agent) -> str:
    rows = ast.literal_eval(agent.use(f"{DB}/read_query", query=SQL))
    text = "\n".join(["name,owes", *(f"{row['name']},{row['owes']}" for row in rows)])
    agent.use(f"{FS}/write_file", path="debtors.csv", content=text)
    return text


# ── the others ──


def _people_single(agent: Agent) -> list[str]:
    graph = json.loads(agent.use("dev/memory/read_graph"))
    there = {each["name"] for each in graph["entities"] if "lives in Wien" in each["observations"]}
    return sorted(each["from"] for each in graph["relations"] if each["to"] == "Project 1" and each["from"] in there)


def _people_lists(agent: Agent) -> list[str]:
    select = "[entities[?contains(observations, 'lives in Wien')].name, relations[?to=='Project 1'].from]"
    there, working = agent.select("dev/memory/read_graph", select)
    return sorted(set(there) & set(working))


CONVERT: list[dict[str, Any]] = [
    {"source_timezone": "Europe/Vienna", "time": "15:00", "target_timezone": zone} for zone in ZONES
]


def _zones_single(agent: Agent) -> dict[str, str]:
    times = [json.loads(agent.use("dev/time/convert_time", **each)) for each in CONVERT]
    return {zone: each["target"]["datetime"][11:16] for zone, each in zip(ZONES, times, strict=True)}


def _zones_lists(agent: Agent) -> dict[str, str]:
    times = agent.each("dev/time/convert_time", CONVERT, "target.datetime")
    return {zone: each[11:16] for zone, each in zip(ZONES, times, strict=True)}


def _log_single(agent: Agent) -> dict[str, int]:
    # More than the default budget: passed on whole.
    text = agent.use(f"{FS}/read_text_file", max_tokens=1_000_000, path="app.log")
    return dict(Counter(line.split()[2] for line in text.splitlines() if " ERROR " in line))


def _log_lists(agent: Agent) -> dict[str, int]:
    kept = agent.keep(f"{FS}/read_text_file", path="app.log")
    said = agent.use(kept, grep="|".join(f"ERROR {service}" for service in SERVICES), count=True)
    return {service: int(count) for count, service in re.findall(r"(\d+): ERROR (\w+)", said)}


JOBS = {
    "settings": Job(
        _settings_single,
        _settings_lists,
        "names = [l[7:] for l in call('dev/fs/list_directory', path='conf').splitlines()]\n"
        "[n for n in names if 'debug = true' in call('dev/fs/read_text_file', path='conf/' + n)]",
    ),
    "commits": Job(
        _commits_single,
        _commits_lists,
        "import re\nfiles = {}\n"
        "for c in call('dev/git/git_log', repo_path='repo', max_count=60).split('Commit: ')[1:]:\n"
        '    m = re.search(r"fix:[^\'\\n]*", c)\n    if m:\n'
        "        d = call('dev/git/git_show', repo_path='repo', revision=re.search(r'\\w+', c)[0])\n"
        "        files[m[0]] = sorted(re.findall(r'\\n\\+\\+\\+ (?:b/)?(\\S+)', d))\nfiles",
    ),
    "debtors": Job(
        _debtors,
        _debtors,
        f"rows = eval(call('dev/db/read_query', query='{SQL}'))\n"
        "text = '\\n'.join(['name,owes'] + [f\"{r['name']},{r['owes']}\" for r in rows])\n"
        "call('dev/fs/write_file', path='debtors.csv', content=text)\ntext",
    ),
    "people": Job(
        _people_single,
        _people_lists,
        "g = call('dev/memory/read_graph')\n"
        "there = {e['name'] for e in g['entities'] if 'lives in Wien' in e['observations']}\n"
        "sorted(r['from'] for r in g['relations'] if r['to'] == 'Project 1' and r['from'] in there)",
    ),
    "zones": Job(
        _zones_single,
        _zones_lists,
        f"{{z: call('dev/time/convert_time', source_timezone='Europe/Vienna', time='15:00', target_timezone=z)"
        f"['target']['datetime'][11:16] for z in '{' '.join(ZONES)}'.split()}}",
    ),
    "log": Job(
        _log_single,
        _log_lists,
        "counts = {}\nfor line in call('dev/fs/read_text_file', path='app.log').splitlines():\n"
        "    _, level, service, *_ = line.split()\n    if level == 'ERROR':\n"
        "        counts[service] = counts.get(service, 0) + 1\ncounts",
    ),
}
