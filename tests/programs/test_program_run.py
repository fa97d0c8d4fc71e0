"""Programs through the real face and a real interpreter: values, errors, limits, and the steps of each call."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.programs import program_run
from tests.faces.harness import introduce
from tests.faces.memory import MemoryClient
from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

pytestmark = pytest.mark.processes
pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")
READS: Json = {"readOnlyHint": True}
ALLOWED: Json = {"programs": {"writes": "allow"}}


def said(name: str, arguments: Json) -> Json:
    path = arguments.get("path")
    if path == "bad":
        return {"content": [{"type": "text", "text": "no such file"}], "isError": True}
    value = {"path": path, "size": len(str(path))}
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


def boxes() -> dict[str, dict[str, Server]]:
    read = {**tool("read", "Reads a file.", path_="string"), "annotations": READS}
    return {"dev": {"fs": Server(read, tool("write", "", path_="string"), answer=said)}}


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    assert not [each for each in os.listdir("/proc") if each.isdecimal() and _runs_program(each)]


def _runs_program(pid: str) -> bool:
    try:
        command = Path("/proc", pid, "cmdline").read_bytes()
        parent = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return False
    return b"mcp_workbench.programs.worker" in command and parent == str(os.getpid())


async def run(seen: ConnectedClient, code: str, **more: Any) -> Json:
    return await seen.client.call_tool("run_program", {"code": code, **more})


# values


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_program_calls_tools_and_answers_with_its_last_expression(tmp_path: Path, era: str) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, era=era, programs=True) as seen:
        code = "sizes = [call('dev/fs/read', path=p)['size'] for p in ['a', 'bb', 'ccc']]\nsum(sizes)"
        result = await run(seen, code)
        assert text_of(result) == "6" and "isError" not in result
        assert len(every["dev"]["fs"].calls) == 3


async def test_arguments_may_be_a_dict_and_output_comes_before_the_value(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        result = await run(seen, "print('hello')\ncall('dev/fs/read', {'path': 'ab'})")
        assert text_of(result) == 'hello\n{"path":"ab","size":2}'


async def test_find_tells_which_tools_there_are(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        found = await run(seen, "[(t['source_server'], t['name']) for t in find('read a file')['tools']]")
        assert text_of(found) == '[["fs","read"]]'


async def test_signatures_end_with_the_type_of_the_result_where_programs_are_on(tmp_path: Path) -> None:
    output = {"type": "object", "properties": {"path": {"type": "string"}, "size": {"type": "integer"}}}
    for is_on in (True, False):
        every = boxes()
        every["dev"]["fs"].tools[0]["outputSchema"] = output
        async with workbench_with(tmp_path, every, programs=is_on) as seen:
            found = await seen.said(query="read a file")
            assert ("read(path: string) -> {path?: string, size?: integer}" in found) is is_on, found
            opened = await seen.said(toolbox_name="dev", detail="text")
            assert (" -> {path?: string, size?: integer}" in opened) is is_on, opened


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("return 5", "5"),
        ("'text'", "text"),
        ("(1, [2], {3}, None, True)", "[1,[2],[3],null,true]"),
        ("x = 1", "(no value: end the program with an expression)"),
        ("float('inf')", "inf"),
    ],
)
async def test_answers_are_plain_values(tmp_path: Path, code: str, answer: str) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        assert text_of(await run(seen, code)) == answer


async def test_a_long_answer_is_kept(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        result = await run(seen, "[{'number': n} for n in range(5000)]", max_tokens=300)
        assert "Shape: 5,000 × {number: integer}" in text_of(result)
        rest = await seen.use(result["content"][1]["uri"], {"select": "[-1].number"})
        assert text_of(rest).endswith("4999")


async def test_a_kept_result_is_a_value_like_any(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        kept = await run(seen, "[{'number': n} for n in range(5000)]", max_tokens=300)
        uri = kept["content"][1]["uri"]
        assert text_of(await run(seen, f"sum(each['number'] for each in call('{uri}'))")) == str(sum(range(5000)))
        assert text_of(await run(seen, f"call('{uri}', select='[7].number') + 1")) == "8"


@pytest.mark.parametrize(
    ("structured", "text", "type_of_value", "value"),
    [
        ({"content": "abc"}, "abc", "string", "abc"),
        ({"content": "abc"}, '{"content": "abc"}', "string", "abc"),
        ({"result": [1, 2]}, "[1, 2]", "integer[]", "[1,2]"),
        ({"result": 5}, "the answer is five", "integer", "5"),
        ({"entities": [1]}, "[1]", "{entities: integer[]}", '{"entities":[1]}'),
        ({"text": "abc"}, "abc", "{text: string}", '{"text":"abc"}'),
        ({"result": 5, "unit": "m"}, "5 m", "{result: integer, unit: string}", '{"result":5,"unit":"m"}'),
    ],
)
async def test_a_value_has_the_type_that_the_signature_says(
    tmp_path: Path, structured: Json, text: str, type_of_value: str, value: str
) -> None:
    kinds: dict[type, Json] = {
        str: {"type": "string"},
        int: {"type": "integer"},
        list: {"type": "array", "items": {"type": "integer"}},
    }
    properties = {name: kinds[type(each)] for name, each in structured.items()}
    output = {"type": "object", "properties": properties, "required": list(structured)}
    result = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    read = {**tool("read", "Reads a file."), "annotations": READS, "outputSchema": output}
    every = {"dev": {"fs": Server(read, answer=lambda name, arguments: result)}}
    async with workbench_with(tmp_path, every, programs=True) as seen:
        assert f"read() -> {type_of_value}\n" in await seen.said(query="read a file")
        assert text_of(await run(seen, "call('dev/fs/read')")) == value


# off by default


async def test_without_the_setting_there_is_no_such_tool(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        assert len((await seen.client.request("tools/list"))["tools"]) == 2
        with pytest.raises(Exception, match="run_program"):
            await run(seen, "1")


async def test_it_costs_one_tool_of_at_most_95_tokens_and_changes_no_other(tmp_path: Path) -> None:
    lists = []
    both: tuple[Json, Json] = {"programs": False}, {"programs": True}
    for settings in both:
        async with workbench_with(tmp_path, boxes(), **settings) as seen:
            lists.append((await seen.client.request("tools/list"))["tools"])
    assert lists[1][:2] == lists[0]
    # The o200k tokenizer counts 3.8 bytes a token in definitions like this.
    assert len(json.dumps(lists[1][2], separators=(",", ":"), ensure_ascii=False).encode()) <= 95 * 3.8


# errors


@pytest.mark.parametrize(
    ("code", "line", "cause"),
    [
        ("x = 1\ncall('dev/fs/read', path='bad')", "line 2", "[dev/fs/read] no such file"),
        ("call('dev/fs/read', pth='x')", "line 1", "`path` is missing"),
        ("call('dev/fs/raed', path='x')", "line 1", "`read`"),
        ("\n1 / 0", "line 2", "ZeroDivisionError"),
        ("x = [1,", "line 1", "SyntaxError"),
        ("def f():\n    yield 1\n", "line 2", "append to a list"),
        ("import statistics", "line 1", "available: json"),
        ("sorted('ab', key=lambda p: call('dev/fs/read', path=p))", "line 1", "in a loop or a comprehension"),
        ("class Failed(Exception): pass", "line 1", "use functions"),
        ("call()", "line 1", "TypeError: call() missing"),
        ("await call('dev/fs/read', path='a')", "line 1", "leave out `await`"),
        ("open('a')", "line 1", "call a tool that reads them"),
        ("find(['a'])", "line 1", "TypeError: find takes a text"),
        ("raise ValueError('x' * 10_000_000)", "line 1", "ValueError: xxx"),
    ],
)
async def test_an_error_names_the_line_and_the_cause(tmp_path: Path, code: str, line: str, cause: str) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        result = await run(seen, code)
        assert result["isError"] is True
        assert line in text_of(result) and cause in text_of(result), text_of(result)


async def test_error_of_a_tool_gets_no_advice_about_the_language(tmp_path: Path) -> None:
    every = boxes()
    said = {"content": [{"type": "text", "text": "the yield of 'del' is unknown"}], "isError": True}
    every["dev"]["fs"].answer = lambda name, arguments: said
    async with workbench_with(tmp_path, every, programs=True) as seen:
        told = text_of(await run(seen, "call('dev/fs/read', path='a')"))
        assert "RuntimeError: [dev/fs/read] the yield of 'del' is unknown\n" in told


async def test_error_lists_the_calls_made_before(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        code = "print('begun')\nfor p in ['a', 'b', 'bad', 'c']:\n    call('dev/fs/read', path=p)"
        result = await run(seen, code)
        assert text_of(result).splitlines()[2:] == [
            "Done before: 2 calls (dev/fs/read ×2)",
            "Failed: 1 call (dev/fs/read ×1)",
            "Printed before:",
            "begun",
        ]


@pytest.mark.parametrize("after", ["1 / 0", "call('dev/fs/read', path='a')"])
async def test_printed_output_hides_no_error(tmp_path: Path, after: str) -> None:
    async with workbench_with(tmp_path, boxes(), programs={"calls": 1}) as seen:
        result = await run(seen, f"call('dev/fs/read', path='a')\nprint('word ' * 12_000)\n{after}")
        said = text_of(result)
        assert result["isError"] is True and f"line 3: `{after}`" in said and "Done before: 1 call" in said
        assert len(said) < 20_000 and "workbench://results/" in said, "within its budget, like any answer"


async def test_a_failed_call_raises_and_may_be_caught(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        code = (
            "found = []\nfor p in ['a', 'bad', 'c']:\n    try:\n"
            "        found.append(call('dev/fs/read', path=p)['path'])\n"
            "    except RuntimeError as error:\n        found.append(str(error))\nfound"
        )
        assert json.loads(text_of(await run(seen, code))) == ["a", "[dev/fs/read] no such file", "c"]


@pytest.mark.parametrize("arguments", [{}, {"code": 1}, {"code": "1", "max_tokens": "x"}])
async def test_bad_arguments_run_nothing(tmp_path: Path, arguments: Json) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        result = await seen.client.call_tool("run_program", arguments)
        assert result["isError"] is True and "nothing was run" in text_of(result)


# steps

POLICY = [{"tools": ["dev/fs/delete"], "then": "deny"}, {"then": "allow"}]


def writing_boxes() -> dict[str, dict[str, Server]]:
    every = boxes()
    every["dev"]["fs"].tools.append(tool("delete", "", path_="string"))
    return every


async def test_a_denied_an_asked_and_a_limited_call_leave_the_lines_of_three_calls(tmp_path: Path) -> None:
    every = writing_boxes()
    asked: list[Json] = []

    def answer(params: Json) -> Json:
        asked.append(params)
        return {"action": "accept", "content": {"allow": "once"}}

    settings: Json = {
        "policy": POLICY,
        "limits": [{"servers": ["*"], "callsPerMinute": 1}],
        "audit": {"file": str(tmp_path / "audit.jsonl")},
        "programs": True,
    }
    code = (
        "said = []\nfor name in ['delete', 'write', 'read']:\n    try:\n        call('dev/fs/' + name, path='x')\n"
        "        said.append('ok')\n    except PermissionError as error:\n        said.append(str(error))\nsaid"
    )
    async with workbench_with(tmp_path, every, abilities={"elicitation": {"form": {}}}, **settings) as seen:
        seen.client.handlers["elicitation/create"] = answer
        denied, written, limited = json.loads(text_of(await run(seen, code)))
        assert "policy[0]" in denied and written == "ok" and "within a minute" in limited
        assert len(asked) == 1 and "dev/fs/write" in asked[0]["message"]
        assert every["dev"]["fs"].calls == [("write", {"path": "x"})]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    calls = [line for line in lines if line["kind"] == "call"]
    assert [(line["item"], line["decision"], line["rule"]) for line in calls] == [
        ("delete", "denied", "policy[0]"),
        ("write", "passed", "programs.writes, approved"),
        ("read", "denied", "policy[1], limits[0]"),
    ]
    (program,) = [line for line in lines if line["kind"] == "program"]
    assert program["sha256"] == hashlib.sha256(code.encode()).hexdigest()
    assert {line["program"] for line in calls} == {program["program"]}


async def test_writing_tools_need_approval_and_are_refused_without_a_person(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, programs=True) as seen:
        result = await run(seen, "call('dev/fs/read', path='a')\ncall('dev/fs/write', path='b')")
        assert result["isError"] is True and "PermissionError" in text_of(result)
        assert "Done before: 1 call (dev/fs/read ×1)" in text_of(result)
        assert [name for name, _ in every["dev"]["fs"].calls] == ["read"]
        # Of calls outside of programs nothing changes.
        assert "isError" not in await seen.use("dev/fs/write", {"path": "b"})


@pytest.mark.parametrize("settings", [{"programs": {"writes": "never"}}, {"programs": True, "useTool": "split"}])
async def test_programs_that_must_not_write_do_not(tmp_path: Path, settings: Json) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, abilities={"elicitation": {"form": {}}}, **settings) as seen:
        result = await run(seen, "call('dev/fs/read', path='a')\ncall('dev/fs/write', path='b')")
        assert result["isError"] is True
        assert [name for name, _ in every["dev"]["fs"].calls] == ["read"]


async def test_cancelling_ends_the_program_and_its_call(tmp_path: Path) -> None:
    every = boxes()
    server = every["dev"]["fs"]
    async with workbench_with(tmp_path, every, programs=True) as seen:
        await seen.use("dev/fs/read", {"path": "x"})
        server.held = []
        request = await seen.client.start_tool("run_program", {"code": "while True: call('dev/fs/read', path='a')"})
        while not server.held:
            await asyncio.sleep(0.01)
        await seen.client.cancel(request)
        while not server.cancelled:
            await asyncio.sleep(0.01)
        server.held = None
        made = len(server.calls)
        assert text_of(await run(seen, "1 + 1")) == "2"
        assert len(server.calls) == made


# limits

# A value that takes little memory, and has no end when it is written.
SHARED = "x = []\nfor _ in range(60): x = [x, x]"


@pytest.mark.parametrize(
    ("code", "settings", "named"),
    [
        ("while True: call('dev/fs/read', path='a')", {"calls": 5}, "5 calls, the most allowed"),
        ("import time\nwhile True: time.sleep(0.1)", {"seconds": 0.5}, "0.5 s, the longest allowed"),
        ("while True: pass", {"seconds": 0.5}, "0.5 s, the longest allowed"),
        ("x = 'a' * 10**9", {}, "64 MiB, the most allowed"),
        ("{n: str(n) for n in range(10**9)}", {}, "64 MiB, the most allowed"),
        ("while True: print('xxxxxxxxxxxxxxx')", {}, "64 KiB, the most allowed"),
        ("#" * 70_000, {}, "64 KiB"),
        ("import time\nwhile True: time.sleep(0)", {"calls": 5}, "2,020 times, the most allowed"),
        (f"{SHARED}\nx", {}, "16 MiB or a million values"),
        (f"{SHARED}\ncall('dev/fs/read', path=x)", {}, "line 3: `call"),
        ("['a' * 1_000_000] * 1_000", {}, "16 MiB or a million values"),
        ("'\\0' * 10_000_000", {}, "16 MiB or a million values"),
    ],
)
async def test_each_limit_is_named_in_its_error(tmp_path: Path, code: str, settings: Json, named: str) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, programs=settings or True) as seen:
        result = await run(seen, code)
        assert result["isError"] is True and named in text_of(result), text_of(result)
        assert len(every["dev"]["fs"].calls) <= 5
        assert text_of(await run(seen, "1 + 1")) == "2", "the next program is not affected"


async def test_a_third_program_of_one_client_has_to_wait_and_a_fifth_of_all(tmp_path: Path) -> None:
    every = boxes()
    server = every["dev"]["fs"]
    async with workbench_with(tmp_path, every, programs=True) as seen:
        await seen.use("dev/fs/read", {"path": "x"})
        server.held = []
        two = [asyncio.ensure_future(run(seen, "call('dev/fs/read', path='a')['path']")) for _ in range(2)]
        while len(server.held) < 2:
            await asyncio.sleep(0.01)
        assert "2 programs of this client" in text_of(await run(seen, "1"))
        # Another client of the same user is not affected, until there are four in all.
        async with MemoryClient.of(seen.gateway, "") as other, MemoryClient.of(seen.gateway, "") as third:
            for each in (other, third):
                await introduce(each, "legacy")
            code = {"code": "call('dev/fs/read', path='b')['path']"}
            two += [asyncio.ensure_future(other.call_tool("run_program", code)) for _ in range(2)]
            while len(server.held) < 4:
                await asyncio.sleep(0.01)
            assert "4 programs are running" in text_of(await third.call_tool("run_program", {"code": "1"}))
            for answer in server.held:
                answer()
            assert [text_of(await each) for each in two] == ["a", "a", "b", "b"]


async def test_computing_is_limited_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_run, "MAX_CPU_SECONDS", 0.5)
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        said = text_of(await run(seen, "sum(range(10**12))"))
        assert "the program has computed for 0.5 s, the longest allowed" in said


async def test_a_program_that_prints_too_much_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_run, "MAX_CPU_SECONDS", 300.0)
    async with workbench_with(tmp_path, boxes(), programs={"seconds": 300}) as seen:
        # Computing on takes it to another limit: the time for which its client waits.
        said = text_of(await run(seen, "find('a')\nprint('x' * 70_000)\nwhile True: pass"))
        assert "after line 1: `find('a')`\nthe program prints more than 64 KiB, the most allowed\n" in said


async def test_one_sleep_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_run, "MAX_SLEEP", 0.0)
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        assert text_of(await run(seen, "import time\ntime.sleep(3600)\n'awake'")) == "awake"


async def test_the_result_of_a_call_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.programs.program_run.MAX_VALUE_BYTES", 1_000)
    every = boxes()
    every["dev"]["fs"].answer = lambda name, arguments: {"content": [{"type": "text", "text": "x" * 2_000}]}
    async with workbench_with(tmp_path, every, programs=True) as seen:
        said = text_of(await run(seen, "call('dev/fs/read', path='a')"))
        assert "the most that a program can read" in said
        assert said.endswith("Failed: 1 call (dev/fs/read ×1)"), "its tool was called"


# what is told of a program that a limit has ended


async def test_too_many_calls_of_a_program_are_reported_with_line_and_output(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs={"calls": 2}) as seen:
        code = (
            "print('begun')\nfor p in 'abc':\n    try:\n        call('dev/fs/read', path=p)\n    except Exception: pass"
        )
        assert text_of(await run(seen, code)).splitlines() == [
            "line 4: `call('dev/fs/read', path=p)`",
            "the program has made 2 calls, the most allowed (`programs.calls`)",
            "Done before: 2 calls (dev/fs/read ×2)",
            "Printed before:",
            "begun",
        ]


class Watched(program_run.ProgramRun):
    """A program, and the limit of its time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.bound = asyncio.timeout(None)
        latest.append(self)

    @property
    def place(self) -> tuple[object, bool]:
        """The line of its latest call or pause, and whether it is still there."""
        return self._line, self._is_there


latest: list[Watched] = []


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    """The programs that run. Their time ends when the test says so."""
    latest.clear()
    monkeypatch.setattr(program_run, "ProgramRun", Watched)
    monkeypatch.setattr(program_run, "timeout", lambda seconds: latest[-1].bound)
    return latest


async def test_a_call_in_flight_when_the_time_is_over_may_have_been_carried_out(
    tmp_path: Path, watched: list[Watched]
) -> None:
    every = writing_boxes()
    server = every["dev"]["fs"]
    async with workbench_with(tmp_path, every, **ALLOWED) as seen:
        await seen.use("dev/fs/read", {"path": "x"})
        code = "print('begun')\ncall('dev/fs/read', path='a')\ndef f():\n    call('dev/fs/delete', path='b')\nf()"
        waiting = asyncio.ensure_future(run(seen, code))
        while [name for name, _ in server.calls] != ["read", "read"]:
            await asyncio.sleep(0)
        server.held = []
        while not server.held:
            await asyncio.sleep(0.001)
        watched[0].bound.reschedule(0.0)
        said = text_of(await waiting).splitlines()
        assert "the longest allowed (`callSeconds` of `clients`" in said[1], "nothing is known of the client"
        assert said == [
            "line 4: `call('dev/fs/delete', path='b')`",
            said[1],
            "Done before: 1 call (dev/fs/read ×1)",
            "In flight: dev/fs/delete, which was cancelled and may have been carried out",
            "Printed before:",
            "begun",
        ]
        assert len(server.cancelled) == 1


@pytest.mark.parametrize(
    ("code", "place", "where"),
    [
        ("import time\nprint('begun')\nwhile True:\n    time.sleep(9)", (4, True), "line 4: `time.sleep(9)`"),
        ("print('begun')\nfind('a')\nwhile True: pass", (2, False), "after line 2: `find('a')`"),
    ],
)
async def test_a_program_whose_time_is_over_is_told_how_far_it_came(
    tmp_path: Path, watched: list[Watched], code: str, place: tuple[object, bool], where: str
) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        waiting = asyncio.ensure_future(run(seen, code))
        while not watched or watched[0].place != place:
            await asyncio.sleep(0.001)
        watched[0].bound.reschedule(0.0)
        said = text_of(await waiting).splitlines()
        assert said[0] == where and said[-1] == "begun"
        assert "the longest allowed" in said[1]


def test_a_program_ends_before_its_client_gives_up() -> None:
    assert program_run.longest(60.0, None) == program_run.longest(60.0, 295.0) == (60.0, "`programs.seconds`")
    seconds, why = program_run.longest(60.0, 54.5)
    assert seconds == 54.5 and "`callSeconds` of `clients`" in why
    assert program_run.longest(60.0, -1.0)[0] == 0.0
