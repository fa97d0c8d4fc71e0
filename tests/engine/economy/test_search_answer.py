from __future__ import annotations

from collections.abc import Sequence

from mcp_workbench.engine.economy.search_answer import NEXT_IN_RANK, SIBLINGS, answer
from mcp_workbench.engine.economy.tool import Tool
from tests.engine.economy.tools import schema, tool

RANKED = [tool(f"t{number:02}", f"Text of number {number}.", inputSchema=schema("path")) for number in range(40)]


def grouped(tools: Sequence[Tool]) -> dict[tuple[str, str], list[Tool]]:
    groups: dict[tuple[str, str], list[Tool]] = {}
    for each in tools:
        groups.setdefault((each.toolbox, each.server), []).append(each)
    return groups


def test_three_come_with_text_and_seven_as_signatures() -> None:
    made = answer(RANKED, matched=143, siblings={})
    lines = made.text.split("\n")
    assert lines[0] == "10 of 143: signatures, the first 3 with text"
    assert lines[-1].endswith(" More: `limit`.")
    assert lines[1:3] == ["dev/files/t00(path: string)", "  Text of number 0."]
    assert [line for line in lines if line.startswith("  ")] == [f"  Text of number {number}." for number in range(3)]
    assert sum("(path: string)" in line for line in lines) == 10
    assert [each.name for each in made.tools] == [f"t{number:02}" for number in range(10)]


def test_the_next_in_rank_are_named() -> None:
    made = answer(RANKED, matched=40, siblings={})
    assert [each.name for each in made.near] == [f"t{number}" for number in range(10, 10 + NEXT_IN_RANK)]
    assert "Near: dev/files/ t10, t11, " in made.text


def test_other_tools_of_the_first_servers_are_named_once() -> None:
    first = [tool(f"a{number}", server=f"s{number}") for number in range(5)]
    others = [tool(f"b{number}", server=f"s{number % 5}") for number in range(100)]
    made = answer(first, matched=5, siblings=grouped([*first, *others]))
    assert len(made.near) == SIBLINGS
    assert {each.server for each in made.near} <= {"s0", "s1", "s2"}
    assert not {each.path for each in made.near} & {each.path for each in made.tools}


def test_asking_for_a_few_names_no_others() -> None:
    made = answer(RANKED, matched=40, siblings=grouped(RANKED), limit=3)
    assert len(made.tools) == 3
    assert made.near == ()
    assert "Near" not in made.text


def test_the_same_tool_in_two_toolboxes_takes_one_place() -> None:
    twins = [tool("read", "Reads.", toolbox=name) for name in ("a", "b", "c", "d", "e")]
    made = answer([*twins, *RANKED], matched=45, siblings={})
    assert [each.path for each in made.tools][:2] == ["a/files/read", "dev/files/t00"]
    assert "a/files/read() (same: b/files/read, c/files/read, d/files/read and 1 more)" in made.text


def test_an_incomplete_signature_is_reported() -> None:
    wide = tool("wide", inputSchema=schema(*(f"argument_{number}" for number in range(100))))
    made = answer([wide], matched=1, siblings={})
    assert made.incomplete == (wide,)
    assert "`tools`" in made.text


def test_long_signatures_are_cut_those_of_the_first_three_later() -> None:
    def long(name: str, arguments: int) -> Tool:
        return tool(name, inputSchema=schema(*(f"argument_{name}_{number}" for number in range(arguments))))

    tools = [long("a", 20), long("b", 20), long("c", 60), long("d", 20)]
    made = answer(tools, matched=4, siblings={})
    assert made.incomplete == (tools[2], tools[3])
    assert max(len(line) for line in made.text.split("\n")) <= 600
    # What is required stays.
    assert "dev/files/c(argument_c_0: string, " in made.text


def test_arguments_that_most_of_the_shown_tools_share_are_written_once() -> None:
    common = {"subscription": {"type": "string"}, "tenant": {"type": "string"}}
    tools = [tool(f"t{number}", inputSchema={"properties": common}) for number in range(4)]
    other = tool("alone", server="other", inputSchema={"properties": common})
    text = answer([*tools, other], matched=5, siblings={}).text
    assert "\ndev/files/t0(+)\n" in text
    assert "\nIn dev/files/: + = subscription?: string, tenant?: string" in text
    assert "\ndev/other/alone(subscription?: string, tenant?: string)\n" in text


def test_weak_matches_are_reported_as_weak_and_fill_no_places() -> None:
    weak = {each.path for each in RANKED}
    made = answer(RANKED, matched=40, siblings={}, weak=weak)
    assert made.text.split("\n")[1].startswith("Weak matches: ")
    assert len(made.tools) == 5
    some = answer(RANKED, matched=40, siblings={}, weak=weak - {RANKED[0].path, RANKED[6].path})
    assert "Weak" not in some.text
    assert [each.name for each in some.tools] == [f"t{number:02}" for number in range(7)]
    assert "t07" in some.text
    one = answer(RANKED, matched=40, siblings={}, weak=weak - {RANKED[0].path})
    assert len(one.tools) == 5
    assert len(answer(RANKED, matched=40, siblings={}, weak=weak, limit=2).tools) == 2


def test_empty_search_gives_a_hint() -> None:
    made = answer([], matched=0, siblings={})
    assert made.tools == () and "open a toolbox" in made.text


def test_empty_result_lists_the_toolboxes_if_they_fit() -> None:
    there = "Toolboxes:\n- dev\n- home"
    made = answer([], matched=0, siblings={}, instead=there)
    assert made.text.startswith("Nothing matches.") and made.text.endswith(f"\n{there}")
    assert there in str(made.content["note"])
    assert "home" not in answer([], matched=0, siblings={}, instead=there, most=100).text
    assert "home" not in answer(RANKED, matched=40, siblings={}, instead=there).text


def test_a_manual_for_a_description_is_cut() -> None:
    made = answer([tool("t", "word " * 10_000)], matched=1, siblings={})
    assert len(made.text) < 1_500
