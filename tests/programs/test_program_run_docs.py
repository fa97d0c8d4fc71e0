"""The example of the guide, run as it is written there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcp_workbench.engine.config.program_settings import ProgramsConfig
from mcp_workbench.programs import program_run
from tests.support.client import Json
from tests.support.in_process_workbench import Server, text_of, tool, workbench_with

pytestmark = pytest.mark.processes
pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "programs.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
LOG = "12:00 ERROR web down\n" * 3 + "12:01 info web up\n" + "12:02 ERROR billing late\n" * 12


async def test_the_example_of_the_guide_answers_as_it_says(tmp_path: Path) -> None:
    code = PROGRAMS[0]
    answer = re.findall(r"```text\n(.*?)\n```", GUIDE, re.DOTALL)[0]

    def read(name: str, arguments: Json) -> Json:
        return {"content": [{"type": "text", "text": LOG if arguments["path"] == "app.log" else ""}]}

    reads = {**tool("read_file", "Reads a file.", path_="string"), "annotations": {"readOnlyHint": True}}
    async with workbench_with(tmp_path, {"lab": {"files": Server(reads, answer=read)}}, programs=True) as seen:
        result = await seen.client.call_tool("run_program", {"code": code})
        assert sorted(text_of(result)[1:-1].split(",")) == sorted(answer[1:-1].split(","))


async def test_the_second_example_finds_the_files_of_each_fix(tmp_path: Path) -> None:
    """In the words of the published server for git."""
    log = "Commit history:\nCommit: 'aa11'\nAuthor: A\nMessage: 'fix: one'\n\nCommit: 'bb22'\nMessage: 'feat: two'\n"
    diff = "Commit: 'aa11'\nMessage: 'fix: one'\n\n--- a/src/b.py\n+++ b/src/b.py\n--- x\n+++ b/a.py\n"

    def answer(name: str, arguments: Json) -> Json:
        assert name == "git_log" or arguments["revision"] == "aa11"
        return {"content": [{"type": "text", "text": log if name == "git_log" else diff}]}

    tools = [{**tool(name), "annotations": {"readOnlyHint": True}} for name in ("git_log", "git_show")]
    async with workbench_with(tmp_path, {"dev": {"git": Server(*tools, answer=answer)}}, programs=True) as seen:
        result = await seen.client.call_tool("run_program", {"code": PROGRAMS[1]})
        assert text_of(result) == '{"fix: one":["a.py","src/b.py"]}'


def test_the_limits_of_the_guide_are_those_of_the_source() -> None:
    usual = ProgramsConfig()
    assert (usual.calls, usual.seconds, usual.memory, usual.writes) == (100, 60.0, 64, "ask")
    assert (program_run.MAX_CPU_SECONDS, program_run.MAX_VALUE_BYTES) == (10.0, 16 << 20)
    assert program_run.MAX_SOURCE_BYTES == program_run.MAX_PRINTED_BYTES == 64 * 1024
    assert (program_run.MAX_PROGRAMS_OF_ONE, program_run.MAX_PROGRAMS, program_run.MAX_SLEEP) == (2, 4, 1.0)
    assert program_run.DEFAULT_ANSWER_TOKENS == 2_000
