"""Demo server `calculator`: arithmetic expressions and statistics, and a crash on request to show recovery.

Run as `python -m mcp_workbench.cli.demo.calculator [--with-crash]`. An expression is parsed into Python's syntax tree
and only numbers, the operators below and a few named functions are evaluated: nothing is ever executed as code.
"""

from __future__ import annotations

import os
import sys

from mcp_workbench.cli.demo.offerings import ToolError, object_schema
from mcp_workbench.cli.demo.stdio_server import Server, usage_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from typing import Any

    from mcp_workbench.cli.demo.offerings import Outcome
    from mcp_workbench.cli.demo.stdio_server import Request

    Number = int | float

CALCULATOR_USAGE = "usage: python -m mcp_workbench.cli.demo.calculator [--with-crash]"
MAX_EXPRESSION_LENGTH = 1000
# Python's integers are unbounded, but most JSON readers cannot handle numbers beyond a double's range.
MAX_NUMBER_BITS = 1023
CRASH_STATUS = 70

FUNCTIONS = ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "floor", "ceil")
CONSTANTS = ("pi", "e", "tau")
RESULT_SCHEMA = object_schema({"expression": {"type": "string"}, "value": {"type": "number"}})
STATISTICS = object_schema(
    {
        "count": {"type": "integer"},
        "sum": {"type": "number"},
        "minimum": {"type": "number"},
        "maximum": {"type": "number"},
        "mean": {"type": "number"},
        "median": {"type": "number"},
        "standard_deviation": {"type": "number", "description": "of the numbers themselves, not of a larger whole"},
    }
)

server = Server("calculator", "Demo calculator", "Evaluates arithmetic and describes lists of numbers.")


def value_of(expression: str) -> Number:
    import ast

    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise ToolError(f"the expression is longer than {MAX_EXPRESSION_LENGTH} characters")
    try:
        # Most people write powers with `^`, and exclusive or is not needed here.
        tree = ast.parse(expression.strip().replace("^", "**"), mode="eval")
        value = _evaluate(tree.body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ToolError(f"cannot read `{expression}` as an arithmetic expression") from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (OverflowError, ValueError) as error:
        raise ToolError(f"no result: {error}") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ToolError("the result is not a finite number")
    return value


def _evaluate(node: ast.expr) -> Number:
    import ast

    match node:
        # `True` is an `int` in Python.
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.Name(id=name) if name in CONSTANTS:
            return float(_from_math(name))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand)
        case ast.BinOp(left=left, op=operator, right=right):
            return _bounded(_combine(operator, _evaluate(left), _evaluate(right)))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            return _bounded(_from_math(name)(_evaluate(argument)))
        case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
            return abs(_evaluate(argument))
    allowed = ", ".join((*FUNCTIONS, "abs", *CONSTANTS))
    raise ToolError(f"`{ast.unparse(node)}` is not allowed; use numbers, + - * / // % **, brackets, and {allowed}")


def _combine(operator: ast.operator, left: Number, right: Number) -> Number:
    import ast

    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case ast.Pow():
            return _power(left, right)
    raise ToolError("only the operators + - * / // % ** are allowed")


def _power(base: Number, exponent: Number) -> Number:
    # Estimate the number of bits first: computing the result could take for ever.
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and (abs(base).bit_length() - 1) * exponent > MAX_NUMBER_BITS
    ):
        raise OverflowError("the power is too large")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("a root of a negative number")
    return result


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
        raise OverflowError("the number is too large")
    return value


def _from_math(name: str) -> Any:
    import math

    return getattr(math, name)


@server.tool(
    "Evaluate an arithmetic expression, such as `2 * (3 + 4) ** 2` or `sqrt(2) * pi`.",
    {"expression": {"type": "string", "minLength": 1}},
    required=("expression",),
    output=RESULT_SCHEMA,
)
def evaluate(request: Request, expression: str) -> Outcome:
    value = value_of(expression)
    return f"{expression} = {value}", {"expression": expression, "value": value}


@server.tool(
    "Count, sum, extremes, mean, median and standard deviation of a list of numbers.",
    {"numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1}},
    required=("numbers",),
    output=STATISTICS,
)
def statistics(request: Request, numbers: list[float]) -> Outcome:
    import math
    import statistics

    try:
        described: dict[str, Number] = {
            "count": len(numbers),
            "sum": sum(numbers),
            "minimum": min(numbers),
            "maximum": max(numbers),
            "mean": statistics.fmean(numbers),
            "median": statistics.median(numbers),
            "standard_deviation": statistics.pstdev(numbers),
        }
        lines = [f"{name.replace('_', ' ')}: {value:g}" for name, value in described.items()]
    except (OverflowError, ValueError) as error:
        raise ToolError(f"no result: {error}") from None
    if not all(map(math.isfinite, described.values())):
        raise ToolError("the result is not a finite number")
    return "\n".join(lines), described


def add_crash() -> None:
    @server.tool("End this server at once, in the middle of the call: shows how a crash is handled.", {})
    def crash(request: Request) -> Outcome:
        print("calculator: crashing because it was asked to", file=sys.stderr, flush=True)
        # At once, as a crash is: no cleanup, no answer, buffers lost.
        os._exit(CRASH_STATUS)


if __name__ == "__main__":
    if sys.argv[1:] == ["--with-crash"]:
        add_crash()
    elif sys.argv[1:]:
        usage_error(CALCULATOR_USAGE)
    server.run()
