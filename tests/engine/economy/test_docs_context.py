"""The examples of docs/guides/context.md and of `tokens` in docs/reference/cli.md are what the command really says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from mcp_workbench.engine.economy.search_answer import LIMIT
from mcp_workbench.engine.economy.tokens import MIN_TOKEN_BUDGET
from mcp_workbench.engine.face import kept_results
from mcp_workbench.engine.face.open_request import DETAILS, MAX_NAMED_TOOLS, MAX_SEARCH_HITS, OpenRequest
from mcp_workbench.engine.router.lists import LISTED_STAYS, STARTS_AT_ONCE
from mcp_workbench.engine.router.toolboxes import SEARCH_PATIENCE
from tests.cli.shell import run
from tests.support.client import RawClient
from tests.support.documented_requests import answer, blocks, documented, matches, written_config
from tests.support.workbench import workbench_command

pytestmark = pytest.mark.processes

DOCS = Path(__file__).resolve().parents[3] / "docs"
CONTEXT = (DOCS / "guides" / "context.md").read_text(encoding="utf-8")
RESULT_ID = re.compile(r"workbench://results/[\w-]+")


async def test_every_request_of_the_page_is_answered_as_it_says(tmp_path: Path) -> None:
    asked = list(documented(CONTEXT))
    assert len(asked) > 10
    (prepare,) = blocks(CONTEXT, "sh")
    subprocess.run(prepare, shell=True, check=True, cwd=tmp_path)
    kept = ""
    async with RawClient.spawn(
        workbench_command(written_config(blocks(CONTEXT, "json")[0], tmp_path)), cwd=tmp_path
    ) as client:
        told = await client.initialize()
        assert told["instructions"] == blocks(CONTEXT, "text")[0].rstrip("\n")
        await client.call_tool("open_toolbox", {"query": "everything"})
        for example in asked:
            text = await answer(client, example.method, example.arguments.replace("workbench://results/ID", kept))
            if found := RESULT_ID.search(text):
                kept = found[0]
            said = RESULT_ID.sub("workbench://results/ID", text).split("\n")
            assert matches(example.answer, said), f"{example.method} {example.arguments}\n{text}"


@pytest.mark.parametrize(
    ("written", "said", "expected"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a…", "b"], ["abc", "b"], True),
        (["a", "…", "d"], ["a", "b", "c", "d"], True),
        (["a", "…"], ["a"], True),
        (["a"], ["a", "b"], False),
        (["a", "…", "x"], ["a", "b"], False),
        (["b…"], ["abc"], False),
    ],
)
def test_dots_match_any_text(written: list[str], said: list[str], expected: bool) -> None:
    assert matches(written, said) is expected


def test_every_argument_is_explained() -> None:
    finding = CONTEXT.partition("## Finding tools")[2].partition("## Forms")[0]
    assert re.findall(r"^\| `(\w+)` \| .* \| .* \|$", finding, re.MULTILINE) == list(OpenRequest.__struct_fields__)
    calling = CONTEXT.partition("## Calling tools")[2].partition("## Large results")[0]
    assert re.findall(r"^\| `(\w+)` \| .* \| .* \|$", calling, re.MULTILINE) == [
        *("tool", "arguments", "max_tokens", "select", "calls")
    ]
    reading = CONTEXT.partition("## Large results")[2].partition("## Pinned tools")[0]
    assert set(re.findall(r"^\| `(\w+)` \| .* \|$", reading, re.MULTILINE)) == {
        field for field in kept_results.ReadOn.__struct_fields__ if field != "around"
    }
    assert "`around`" in reading


def test_every_form_is_explained_in_order() -> None:
    forms = CONTEXT.partition("## Forms")[2].partition("## Budgets")[0]
    assert re.findall(r"^\| `(\w+)` \| .* \| \d+ \|$", forms, re.MULTILINE) == list(DETAILS)


def test_the_numbers_of_the_page_are_those_of_the_source() -> None:
    assert (LIMIT, MAX_SEARCH_HITS, MAX_NAMED_TOOLS, MIN_TOKEN_BUDGET) == (10, 50, 50, 300)
    assert (STARTS_AT_ONCE, SEARCH_PATIENCE, LISTED_STAYS) == (8, 10.0, 60.0)
    assert (kept_results.MAX_KEPT_RESULTS, kept_results.MAX_KEPT_RESULT_BYTES, kept_results.KEPT_RESULT_LIFETIME) == (
        200,
        128 * 1024 * 1024,
        1800.0,
    )
    assert (kept_results.MIN_PIECE_TOKENS, kept_results.DEFAULT_PIECE) == (200, 2000)


def test_documented_table_matches_the_command(tmp_path: Path) -> None:
    section = (
        (DOCS / "reference" / "cli.md").read_text(encoding="utf-8").partition("\n## tokens\n")[2].partition("\n## ")[0]
    )
    (shown,) = blocks(section, "text")
    written = json.loads(blocks(CONTEXT, "json")[0])
    del written["toolboxes"]["lab"]
    path = written_config(json.dumps(written), tmp_path)
    assert run("tokens", "--connect", path).stdout == shown
