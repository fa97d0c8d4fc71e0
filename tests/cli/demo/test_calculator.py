"""The demo server `calculator`: what it evaluates, what it refuses, and its crash."""

from __future__ import annotations

import math
from contextlib import suppress

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cli.demo.calculator import value_of
from mcp_workbench.cli.demo.offerings import ToolError
from tests.cli.demo.sdk import ERAS, command, connect
from tests.support.client import RawClient, RpcError

both_eras = pytest.mark.parametrize("era", ERAS)


@both_eras
async def test_expressions_are_evaluated_and_lists_described(era: str) -> None:
    async with connect("calculator", era=era) as client:
        result = await client.call_tool("evaluate", {"expression": "2 * (3 + 4) ** 2"})
        assert result.structured_content == {"expression": "2 * (3 + 4) ** 2", "value": 98}
        described = (await client.call_tool("statistics", {"numbers": [1, 2, 3.5, 5.5]})).structured_content
        assert described is not None
        assert (described["count"], described["sum"], described["median"]) == (4, 12.0, 2.75)
        assert described["standard_deviation"] == pytest.approx(1.695582)


@both_eras
async def test_a_failed_computation_is_a_tool_error(era: str) -> None:
    async with connect("calculator", era=era) as client:
        for tool, arguments, complaint in (
            ("evaluate", {"expression": "1 / 0"}, "division by zero"),
            ("evaluate", {"expression": "1 +"}, "cannot read `1 +`"),
            ("statistics", {"numbers": []}, "`numbers` needs at least 1 item(s)"),
            ("statistics", {"numbers": [10**400, 1.5]}, "no result"),
            ("statistics", {"numbers": [1.7e308, 1.7e308]}, "no"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert isinstance(result.content[0], types.TextContent) and complaint in result.content[0].text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7 // 2 + 7 % 4", 6),
        ("-2 ^ 2", -4),
        ("sqrt(16) + abs(-1)", 5),
        ("cos(0) * pi", math.pi),
        ("2 ** 1000", 2**1000),
        ("1e3 / 8", 125),
    ],
)
def test_the_usual_notation_is_understood(expression: str, value: float) -> None:
    assert value_of(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').getcwd()",
        "(1).__class__",
        "'a' * 10",
        "[1, 2]",
        "True + 1",
        "sqrt(2, 3)",
        "sqrt(x=2)",
        "lambda: 1",
        "1 if 1 else 2",
        "pi()",
        "9 ** 9 ** 9",
        "10.0 ** 400",
        "(-8) ** 0.5",
        "1e308 * 10",
        "1 << 100",
        "log(0)",
        "1\0",
        "1 +" * 400,
        "(" * 900 + "1" + ")" * 90,
    ],
)
def test_everything_else_is_refused(expression: str) -> None:
    with pytest.raises(ToolError):
        value_of(expression)


@given(st.text(max_size=60))
def test_any_text_has_a_finite_value_or_is_refused(expression: str) -> None:
    with suppress(ToolError):
        assert math.isfinite(value_of(expression))


numbers = st.integers(-1000, 1000).map(lambda number: f"({number})")


@given(
    st.recursive(
        numbers,
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map("".join).map("({})".format),
        max_leaves=40,
    )
)
def test_nested_arithmetic_has_the_value_that_python_gives_it(expression: str) -> None:
    expected = eval(expression)
    if expected.bit_length() < 500:
        assert value_of(expression) == expected


async def test_the_crash_is_offered_only_on_request() -> None:
    async with RawClient.spawn(command("calculator"), modern=True) as client:
        assert "crash" not in [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
        with pytest.raises(RpcError, match="Unknown tool: crash"):
            await client.call_tool("crash")


async def test_the_crash_ends_the_process_in_the_middle_of_the_call() -> None:
    async with RawClient.spawn(command("calculator", "--with-crash"), modern=True) as client:
        assert "crash" in [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
        with pytest.raises(EOFError):
            await client.call_tool("crash")
        assert await client.wait_exit() == 70
        await client.wait_for(lambda: "because it was asked to" in client.stderr, "last words")
