"""Ordinary jobs of an agent, done with single calls, with a list of calls, and as a program: equal answers, and what
each way costs in tokens written and read.

The servers answer in the shapes of the published ones (filesystem, memory, time), whose sizes make the costs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcp_workbench.engine.economy.tokens import estimated_tokens
from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

pytestmark = pytest.mark.processes
pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")

FILES = {
    f"service-{n:02}.ini": f"[service]\nname = {n}\n" + "retries = 3\n" * 60 + f"debug = {n % 7 == 3}\n"
    for n in range(40)
}
SERVICES = ("auth", "billing", "web")
LOG = "".join(
    f"2026-11-16T12:{n // 60 % 60:02}:{n % 60:02} {'ERROR' if n % 27 == 0 else 'info'} "
    f"{SERVICES[n % 7 % 3]} request {n} took {n % 900} ms\n"
    for n in range(6_000)
)
GRAPH = {
    "entities": [
        {"name": f"Person {n}", "entityType": "person", "observations": [f"lives in {'Graz' if n % 5 else 'Wien'}"]}
        for n in range(80)
    ],
    "relations": [{"from": f"Person {n}", "to": f"Project {n % 4}", "relationType": "works on"} for n in range(80)],
}
ZONES = ["UTC", "Asia/Tokyo", "America/New_York", "Europe/London", "Asia/Kolkata", "Africa/Cairo"]


def _both(text: str) -> Json:
    """As the filesystem server answers: the text twice."""
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"content": text}}


def _files(name: str, arguments: Json) -> Json:
    if name == "list_directory":
        return _both("\n".join(f"[FILE] {file}" for file in FILES))
    return _both(LOG if arguments["path"] == "app.log" else FILES[arguments["path"]])


def _converted(name: str, arguments: Json) -> Json:
    zone = arguments["target_timezone"]
    told = {"source": {"timezone": "Europe/Vienna", "datetime": "2026-11-16T15:00:00+01:00", "is_dst": False}}
    told["target"] = {"timezone": zone, "datetime": f"2026-11-16T{len(zone):02}:00:00", "is_dst": False}
    return {"content": [{"type": "text", "text": json.dumps(told, indent=2)}]}


def boxes() -> dict[str, dict[str, Server]]:
    def reads(name: str, **schema: Any) -> Json:
        return {**tool(name, "", **schema), "annotations": {"readOnlyHint": True}}

    graph = {"content": [{"type": "text", "text": json.dumps(GRAPH, indent=2)}], "structuredContent": GRAPH}
    return {
        "dev": {
            "fs": Server(
                reads("list_directory", path_="string"), reads("read_text_file", path_="string"), answer=_files
            ),
            "memory": Server(reads("read_graph"), answer=lambda name, arguments: graph),
            "time": Server(reads("convert_time", target_timezone_="string"), answer=_converted),
        }
    }


class Job(NamedTuple):
    calls: list[Json]
    # The calls that do the job in one turn or two, and how an agent reads their answers.
    listed: Json
    read: Callable[[Any], Any]
    code: str


def _read(*paths: str) -> list[Json]:
    return [{"tool": "dev/fs/read_text_file", "arguments": {"path": path}} for path in paths]


CONVERT = [{"tool": "dev/time/convert_time", "arguments": {"time": "15:00", "target_timezone": zone}} for zone in ZONES]
JOBS = {
    "which of 40 files have debug on": Job(
        _read(*FILES),
        {"calls": _read(*FILES), "select": "contains(@, 'debug = True')"},
        lambda flags: [file for file, is_on in zip(FILES, flags, strict=True) if is_on],
        "names = [l[7:] for l in call('dev/fs/list_directory', path='.').splitlines()]\n"
        "[n for n in names if 'debug = True' in call('dev/fs/read_text_file', path=n)]",
    ),
    "errors of each service in a log": Job(
        _read("app.log"),
        {"tool": "dev/fs/read_text_file", "arguments": {"path": "app.log"}, "max_tokens": 300},
        lambda counts: counts,
        "counts = {}\nfor line in call('dev/fs/read_text_file', path='app.log').splitlines():\n"
        "    _, level, service, *_ = line.split()\n    if level == 'ERROR':\n"
        "        counts[service] = counts.get(service, 0) + 1\ncounts",
    ),
    "people on a project in a city": Job(
        [{"tool": "dev/memory/read_graph", "arguments": {}}],
        {
            "tool": "dev/memory/read_graph",
            "select": "[entities[?contains(observations, 'lives in Wien')].name, relations[?to=='Project 1'].from]",
        },
        lambda both: sorted(set(both[0]) & set(both[1])),
        "g = call('dev/memory/read_graph')\n"
        "there = {e['name'] for e in g['entities'] if 'lives in Wien' in e['observations']}\n"
        "sorted(r['from'] for r in g['relations'] if r['to'] == 'Project 1' and r['from'] in there)",
    ),
    "one time in six zones": Job(
        CONVERT,
        {"calls": CONVERT, "select": "target.datetime"},
        lambda times: dict(zip(ZONES, times, strict=True)),
        f"{{z: call('dev/time/convert_time', time='15:00', target_timezone=z)['target']['datetime'] for z in {ZONES}}}",
    ),
}
# Tokens of all jobs together.
MAX_PROGRAM_TOKENS = 1_800
MAX_LIST_TOKENS = 8_000


class Agent:
    """Counts what is written and read."""

    def __init__(self, seen: ConnectedClient) -> None:
        self._seen = seen
        self.tokens = self.turns = 0

    async def use(self, name: str, arguments: Json) -> str:
        result = await self._seen.client.call_tool(name, arguments)
        assert "isError" not in result, result
        self.tokens += estimated_tokens(json.dumps(arguments).encode()) + estimated_tokens(json.dumps(result).encode())
        self.turns += 1
        return text_of(result)


async def _with_list(agent: Agent, job: Job) -> Any:
    said = await agent.use("use_tool", job.listed)
    if "select" in job.listed:
        return job.read(json.loads(said))
    uri = said.partition('{"tool": "')[2].partition('"')[0]
    grep = "|".join(f"ERROR {service}" for service in SERVICES)
    counted = await agent.use("use_tool", {"tool": uri, "arguments": {"grep": grep, "count": True}})
    counts = (line.split(": ERROR ") for line in counted.splitlines()[1:])
    return {service: int(count) for count, service in counts if count != "0"}


async def test_programs_and_lists_answer_alike_for_a_fraction_of_the_tokens(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        singly, listed, programs = Agent(seen), Agent(seen), Agent(seen)
        for name, job in JOBS.items():
            for call in job.calls:
                await singly.use("use_tool", {**call, "max_tokens": 1_000_000})
            as_list = await _with_list(listed, job)
            as_program = json.loads(await programs.use("run_program", {"code": job.code}))
            assert as_list == as_program and as_program, name
        assert programs.turns == len(JOBS) and programs.tokens <= MAX_PROGRAM_TOKENS, programs.tokens
        assert listed.turns == len(JOBS) + 1 and listed.tokens <= MAX_LIST_TOKENS, listed.tokens
        assert singly.turns > 40 and singly.tokens > 20 * listed.tokens, (singly.tokens, listed.tokens)
