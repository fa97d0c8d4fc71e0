"""The safety net of `use_tool`: arguments are held against the tool's schema before the call.

What is wrong is answered with where, what was meant, and the schema in short: a model corrects itself from that
without another request. In doubt the call is made; an error from the server is left as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgspec import Raw

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.economy.quick import Accepts, compiled
from mcp_workbench.jsonrpc.messages import encode

# Tools whose test is kept ready. An agent uses a handful.
MOST_KEPT: Final = 1000
MOST_PROBLEMS: Final = 5


class ArgumentChecker:
    """Keeps a ready test for each tool that is used."""

    def __init__(self) -> None:
        self._tests: OrderedDict[tuple[str, str, str], tuple[Raw, Accepts | None]] = OrderedDict()

    def complaint(self, entry: ServerEntry, tool: str, arguments: Raw) -> str | None:
        """What is wrong with these arguments, for a model to read; None when nothing is, or nobody can tell."""
        definition = entry.tools[tool]
        test = self._test(entry, tool, definition)
        if test is not None and test(bytes(arguments)):
            return None
        return _thorough(entry, tool, definition, arguments)

    def _test(self, entry: ServerEntry, tool: str, definition: Raw) -> Accepts | None:
        key = (entry.toolbox, entry.config.name, tool)
        kept = self._tests.get(key)
        # A changed definition is another object.
        if kept is not None and kept[0] is definition:
            return kept[1]
        from mcp_workbench.economy.tool import parts

        test = compiled(parts(bytes(definition)).schema())
        self._tests[key] = (definition, test)
        if len(self._tests) > MOST_KEPT:
            self._tests.popitem(last=False)
        return test


def _thorough(entry: ServerEntry, tool: str, definition: Raw, arguments: Raw) -> str | None:
    from mcp_workbench.economy.arguments import check_json
    from mcp_workbench.economy.lean import lean
    from mcp_workbench.economy.tool import parts

    known = parts(bytes(definition))
    checked = check_json(bytes(arguments), bytes(known.input_schema))
    if not checked.problems:
        return None
    said = "\n".join(f"- {problem}" for problem in checked.problems[:MOST_PROBLEMS])
    schema = encode(lean(known.schema())).decode()
    return (
        f"[{entry.toolbox}/{entry.name}/{tool}] the arguments do not fit, so it was not called:\n{said}\n"
        f"Its schema: {schema}"
    )
