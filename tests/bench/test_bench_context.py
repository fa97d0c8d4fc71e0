"""The measurements of context economy, on a catalogue small enough to know the right numbers."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from pathlib import Path

import pytest

from bench.context.__main__ import BEGIN, END, Row, main, with_section
from bench.context.data import Listed, Need, catalogue, counter, halves, needs
from bench.context.finding import reach, share, share_of_places
from bench.context.opening import open_each
from bench.context.routing import routed
from bench.context.sets import compare
from mcp_workbench.engine.economy.index import Index

TOOLS = [
    {"id": "fs/read", "server": "fs", "name": "read_file", "description": "Reads a file.", "inputSchema": {}},
    {"id": "fs/write", "server": "fs", "name": "write_file", "description": "Writes a file.", "inputSchema": {}},
    {"id": "sky/rain", "server": "sky", "name": "forecast", "description": "Tells the weather.", "inputSchema": {}},
]
NEEDS = [
    {"set": "livemcp-step", "text": "read a file", "gold": [["fs/read"]]},
    {"set": "livemcp-step", "text": "something else entirely", "gold": [["sky/rain"]]},
    {"set": "livemcp-agent", "text": "weather", "gold": [["sky/rain"]]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("livemcp", "real", "toucan"):
        with gzip.open(tmp_path / f"{name}_tools.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({**tool, "id": f"{tool['id']}"}) + "\n" for tool in TOOLS)
    (tmp_path / "livemcp_queries.jsonl").write_text("".join(json.dumps(need) + "\n" for need in NEEDS))
    return tmp_path


def length(text: str) -> int:
    return len(text)


def read(folder: Path) -> tuple[list[Listed], Index, list[Need]]:
    listed = catalogue(folder, "livemcp")
    return listed, Index.build([each.entry() for each in listed]), needs(folder, "step")


def test_needs_are_read_by_set(folder: Path) -> None:
    assert [len(needs(folder, name)) for name in ("step", "agent", "task")] == [2, 1, 0]


def test_the_halves_of_the_needs_are_about_as_large_and_have_none_in_common() -> None:
    asked = [Need(text=f"need {number}", gold=[[]], set="step") for number in range(200)]
    looked_at, kept = halves(asked)
    assert sorted(need.text for need in (*looked_at, *kept)) == sorted(need.text for need in asked)
    assert 70 < len(kept) < 130
    # What was kept once is kept for good, whatever else is asked.
    assert halves(asked[50:])[1] == [need for need in kept if need in asked[50:]]


def test_the_share_of_needs_that_find_their_tool(folder: Path) -> None:
    _, index, asked = read(folder)
    assert share(index, asked, among=1) == 50.0


def test_equal_offers_of_servers_take_one_place() -> None:
    copies = [Listed(id=f"copy{number}/read", server="disk", name="read_file") for number in range(4)]
    other = Listed(id="disk/write", server="disk", name="write_file")
    index = Index.build([each.entry() for each in (*copies, other)])
    needed = [Need(text="read file", gold=[[tool]], set="step") for tool in ("disk/write", "copy3/read")]
    assert share(index, needed, among=2) == 0.0
    assert share_of_places(index, (*copies, other), needed, among=2) == 100.0
    assert share_of_places(index, (*copies, other), needed, among=1) == 50.0


def test_a_need_that_finds_nothing_is_neither_shown_nor_in_front(folder: Path) -> None:
    listed, index, asked = read(folder)
    reached = reach(index, listed, asked, length)
    assert (reached.needs, reached.shown, reached.in_front) == (2, 50.0, 50.0)
    assert reached.tokens_when_found > reached.tokens


def test_a_set_is_measured_by_halves_and_beside_plain_search(folder: Path) -> None:
    asked = [
        {"set": "own", "text": f"read a file {number}", "gold": [["fs/read"], ["sky/rain"]]} for number in range(20)
    ]
    (folder / "other_queries.jsonl").write_text("".join(json.dumps(need) + "\n" for need in asked))
    (folder / "livemcp_tools.jsonl.gz").rename(folder / "other_tools.jsonl.gz")
    (folder / "livemcp_queries.jsonl").unlink()
    (row,) = compare(folder)
    # Of two things needed, the words name one.
    assert (row.name, row.tools, row.looked_at + row.kept) == ("own", 3, 20)
    assert row.ours == row.plain == (50.0, 50.0)


def test_baseline_search_has_no_synonyms_and_leaves_ours_unchanged(folder: Path) -> None:
    need = {"set": "own", "text": "fetch something", "gold": [["fs/read"]]}
    (folder / "livemcp_queries.jsonl").write_text(json.dumps(need) + "\n")
    for _ in range(2):
        (row,) = compare(folder)
        assert (sum(row.ours), sum(row.plain)) == (100.0, 0.0)


def test_a_need_is_routed_by_the_words_of_the_instructions(folder: Path) -> None:
    live = catalogue(folder, "livemcp")
    asked = [Need(text=text, gold=[["sky/rain"]], set="x") for text in ("the weather", "a file", "nothing of this")]
    assert routed(live, asked[:1], most=2_048) == 100.0
    assert routed(live, asked[1:], most=2_048) == 0.0


def test_every_server_is_opened_as_a_toolbox(folder: Path) -> None:
    opened = open_each(catalogue(folder, "real"), length)
    assert opened.toolboxes == 2
    assert opened.forms == {"full": 2}
    assert opened.over == 0


@pytest.mark.parametrize(("measured", "passed"), [(81.9, False), (82.0, True), (90.0, True)])
def test_a_target_is_met_or_missed(measured: float, passed: bool) -> None:
    assert Row("found", measured, "%", 82).passed is passed
    assert Row("cost", measured, "tokens", 82, at_least=False).passed is (measured <= 82)


def test_the_section_of_a_document_is_replaced_and_the_rest_kept() -> None:
    document = with_section("# Performance\n\nBefore.\n", "one")
    again = with_section(document + "\nAfter.\n", "two")
    assert "Before." in again
    assert "After." in again
    assert f"{BEGIN}\n\ntwo\n\n{END}" in again
    assert "one\n" not in again


def test_the_command_writes_its_section(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = folder / "performance.md"
    main([str(folder), "--write", str(target)])
    assert "right tool in front of the agent" in capsys.readouterr().out
    assert "| step needs: first of 3 | 50.0 % |" in target.read_text()


RANKS = ["a", "b", "c", " ", "ab", " a", " ab", "abc"]


def test_tokens_are_put_together_by_rank_and_not_across_words(folder: Path) -> None:
    (folder / "tokenizer").mkdir()
    lines = [f"{b64encode(token.encode()).decode()} {rank}" for rank, token in enumerate(RANKS)]
    (folder / "tokenizer" / "ranks").write_text("\n".join(lines))
    name, count = counter(folder)
    assert name == "o200k_base"
    assert [count(text) for text in ("", "abc", "ab ab", "ab  ab", "bca", "ba")] == [0, 1, 2, 3, 3, 2]


def test_a_folder_without_a_tokenizer_is_counted_in_bytes(folder: Path) -> None:
    name, count = counter(folder)
    assert name.startswith("bytes / 4")
    assert count("12345678") == 2


def test_a_folder_without_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "livemcp_queries.jsonl" in capsys.readouterr().err
