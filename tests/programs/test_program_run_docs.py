"""The example of the guide, run as it is written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.config.program_settings import ProgramsConfig
from mcp_workbench.programs import program_run
from tests.support import documented_requests
from tests.support.client import Json, RawClient
from tests.support.in_process_workbench import Server, text_of, tool, workbench_with
from tests.support.workbench import workbench_command

pytestmark = pytest.mark.processes
pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "programs.md").read_text(encoding="utf-8")
PROGRAMS = documented_requests.blocks(GUIDE, "python")


async def test_the_example_of_the_guide_answers_as_it_says(tmp_path: Path) -> None:
    answers = documented_requests.blocks(GUIDE, "text")
    config = documented_requests.written_config(documented_requests.blocks(GUIDE, "json")[0], tmp_path)
    async with RawClient.spawn(workbench_command(config), cwd=tmp_path) as client:
        await client.initialize()
        result = await client.call_tool("run_program", {"code": PROGRAMS[0]})
        assert text_of(result) == answers[0].rstrip("\n")
        failing = 'zones = ["UTC", "Asia/Tokyo", "home"]\nfor zone in zones:\n    call("desk/clock/now", zone=zone)'
        result = await client.call_tool("run_program", {"code": failing})
        assert text_of(result) == answers[1].rstrip("\n")


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
