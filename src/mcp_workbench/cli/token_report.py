"""What tools cost an agent with one configuration: the report, independent of how it is shown.

Owns the figures, the rows of the table, the sentences and the JSON. Knows nothing about terminals and pages.
`engine.economy.costs` does the counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.json import decode

from mcp_workbench.app.gateway import Options
from mcp_workbench.app.use_memory import proposed_pins, read, use_file
from mcp_workbench.cli.engine import Engine
from mcp_workbench.engine.config.model import FaceName, WorkbenchConfig
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.engine.economy.costs import Cost, cost, flat_cost
from mcp_workbench.engine.economy.forms import Form
from mcp_workbench.engine.economy.tokens import tokens
from mcp_workbench.engine.economy.tool import Tool
from mcp_workbench.engine.face.base import Face
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.face.opening import opened
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.printable import plural

FORM_NAMES: Final = tuple(form.value for form in Form)
COLUMNS: Final = ("tools", "flat list", *FORM_NAMES, "opened")
# What fewer clients did may be chance; what fewer than most of them needed is not worth its tokens to the others.
MIN_PINNING_CLIENTS: Final = 5
MIN_PINNING_SHARE: Final = 0.6
MAX_PROPOSALS: Final = 5
ABOUT_FLAT: Final = (
    "Full is everything that servers sent, as in the flat list; the other forms leave out outputSchema and icons."
)
ABOUT_FULL: Final = (
    "Full adds the toolbox and server of each tool and keeps the white space of its schema, so it can be longer."
)


class ServerCost(Struct):
    """The cost of a server; `cost` is None until it has been listed."""

    name: str
    cost: Cost | None


class Opened(Struct):
    """What opening a toolbox costs: the form that fits, and the number of tools in the first answer."""

    form: str
    tokens: int
    shown: int


class ToolboxCost(Struct):
    """The cost of a toolbox: its servers, their total, and the cost of opening it."""

    name: str
    servers: list[ServerCost]
    cost: Cost
    opened: Opened
    budget: int | None


class Proposal(Struct):
    """A tool to pin: how many of the last clients used it, and what it would cost every conversation."""

    path: str
    used: int
    clients: int
    tokens: int


class Report(Struct):
    """The whole report, with what each conversation pays at its start: the two tools, pinned tools and the
    instructions."""

    config: str
    # The face in use, and what its tools and instructions cost at the start of a conversation.
    face: FaceName
    listed: int
    introduced: int
    plain: bool
    two_tools: int
    pinned: int
    instructions: int
    toolboxes: list[ToolboxCost]
    proposals: list[Proposal] = []
    # `useTool: split` and programs add one each to the two tools.
    own_tools: int = 2

    @property
    def flat(self) -> int:
        """The cost of the list of all tools."""
        return sum(toolbox.cost.flat for toolbox in self.toolboxes)

    @property
    def tools(self) -> int:
        return sum(toolbox.cost.tools for toolbox in self.toolboxes)

    @property
    def in_force(self) -> int:
        """The cost at the start of every conversation, as clients are served now."""
        return self.listed + self.introduced

    @property
    def start(self) -> int:
        """The cost at the start of every conversation with the face `proxy`."""
        return self.two_tools + self.pinned + self.instructions

    @property
    def saved(self) -> float:
        """The part of the flat list that a conversation does not start with; 0 if it costs more."""
        # With a handful of small tools, the two tools cost more than they save.
        return max(0.0, 1 - self.start / self.flat) if self.flat else 0.0

    @property
    def unknown(self) -> list[str]:
        """Servers that have not been listed yet, as `toolbox/server`."""
        return [f"{box.name}/{server.name}" for box in self.toolboxes for server in box.servers if server.cost is None]


def measure(config: WorkbenchConfig, engine: Engine) -> Report:
    """Count the tokens of what is known now."""
    face, index = engine.face, engine.tool_index
    face.catalog.load(face.catalog.entries())
    toolboxes = []
    for name, servers in face.catalog.toolboxes.items():
        known = {server: index.tools([entry]) for server, entry in servers.items() if entry.offer is not None}
        together = [tool for tools in known.values() for tool in tools]
        own = config.toolboxes[name].budget
        # 0 stands for `null` in the file: no limit.
        budget = (config.budget if own is None else own) or None
        costs = [ServerCost(server, cost(known[server]) if server in known else None) for server in servers]
        toolboxes.append(ToolboxCost(name, costs, cost(together), _opened(engine, name), budget))
    # Instructions list what is distinctive about a toolbox, which is computed on demand.
    if index.is_summary_missing:
        index.summarise()
    start = _start(face)
    in_force = _in_force(engine, config, start)
    proposals = _proposals(config, {tool.path: tool for tool in index.tools(face.catalog.entries())})
    return Report(
        config.path, config.face_in_force, *in_force, config.plain, *start, toolboxes, proposals, len(face.own_names())
    )


def _proposals(config: WorkbenchConfig, known: dict[str, Tool]) -> list[Proposal]:
    """Return the tools that most clients used and that are not pinned. Only the user pins: each pin costs every
    conversation, and another list of tools empties the client's prompt cache."""
    path = use_file(OWN_USER)
    used = [] if path is None else proposed_pins(read(path), MIN_PINNING_CLIENTS, MIN_PINNING_SHARE)
    wanted = [each for each in used if each[0] in known and each[0] not in config.pin]
    return [Proposal(path, times, clients, flat_cost([known[path]])) for path, times, clients in wanted[:MAX_PROPOSALS]]


def _in_force(engine: Engine, config: WorkbenchConfig, proxy: tuple[int, int, int]) -> tuple[int, int]:
    """Return what every conversation pays for tools and for instructions with the face that clients see."""
    if config.face_in_force == "proxy":
        return proxy[0] + proxy[1], proxy[2]
    shown = engine.shown_to_clients(Options())
    view = View(OWN_USER)
    return sum(tokens(definition.decode(errors="replace")) for definition in shown.tools(view)), tokens(
        shown.instructions(view)
    )


def _start(face: Face) -> tuple[int, int, int]:
    """Return what every conversation pays for the two tools, for known pinned tools, and for the instructions."""
    view = View(OWN_USER)
    listed = [tokens(definition.decode()) for definition in face.tools(view)]
    two = len(face.own_names())
    return sum(listed[:two]), sum(listed[two:]), tokens(face.instructions(view))


def _opened(engine: Engine, toolbox: str) -> Opened:
    made, result = opened(engine.face.catalog, engine.tool_index, OpenRequest(toolbox), {}, [])
    text: str = decode(result)["content"][0]["text"]
    return Opened(made.form.value, tokens(text), len(made.shown))


class Row(NamedTuple):
    """A row of the table: a toolbox, or a server below it; without numbers until its tools have been listed."""

    name: str
    is_toolbox: bool
    numbers: list[int] | None
    opened: Opened | None = None


def rows(report: Report) -> Iterator[Row]:
    """Return every toolbox with its servers, for terminals and pages."""
    for toolbox in report.toolboxes:
        is_known = any(server.cost for server in toolbox.servers)
        opened = toolbox.opened if toolbox.cost.tools else None
        yield Row(toolbox.name, True, _numbers(toolbox.cost) if is_known else None, opened)
        for server in toolbox.servers:
            yield Row(server.name, False, _numbers(server.cost) if server.cost else None)


def _numbers(cost: Cost) -> list[int]:
    return [cost.tools, cost.flat, *(cost.forms[form] for form in FORM_NAMES)]


def summary(report: Report) -> list[str]:
    """Summarise in sentences what the face in use costs, and what another would."""
    lines = _as_toolboxes(report) if report.face in ("proxy", "auto") else _as_served(report)
    if report.face == "auto" and report.flat:
        # What they pay at the start is theirs to decide: they load definitions when their model searches for them.
        lines.append(
            f"Clients that defer tool definitions, such as Claude Code, get all {plural(report.tools, 'tool')} instead "
            "(face auto) and load those that they need."
        )
    if report.proposals and report.face in ("proxy", "auto"):
        lines.append('You can list these beside the two tools with "pin", at this cost in every conversation:')
        lines += [
            f"  {each.path}: used in {each.used} of {each.clients} sessions, {each.tokens:,} tokens"
            for each in report.proposals
        ]
    if report.unknown:
        count = len(report.unknown)
        lines.append(
            f"Not counted: {plural(count, 'server')} not listed yet ({', '.join(report.unknown[:5])}"
            f"{', …' if count > 5 else ''}); --connect lists them."
        )
    return lines


def _as_toolboxes(report: Report) -> list[str]:
    lines = [f"Every conversation starts with {report.start:,} tokens: {_start_in_words(report)}."]
    if report.flat:
        saved = f"; the workbench starts with {percent(report.saved)} less" if report.saved else ""
        lines.append(f"As a flat list, {report.tools:,} tools would be {report.flat:,} tokens{saved}.")
    opening = [toolbox.opened.tokens for toolbox in report.toolboxes if toolbox.cost.tools]
    if opening:
        lines.append(f"Opening a toolbox costs {sum(opening) // len(opening):,} on average, {max(opening):,} at most.")
    return lines


def _as_served(report: Report) -> list[str]:
    what = plural(report.tools, "tool") if report.face == "flat" else "open_toolbox"
    lines = [
        f"This file is served in the face {report.face}: every conversation starts with {report.in_force:,} tokens, "
        f"{report.listed:,} for {what}, {report.introduced:,} for the instructions."
    ]
    if report.face == "dynamic":
        lines.append("The definitions of a toolbox (flat list) are added when it is opened.")
    if report.flat:
        way = "Grouped into toolboxes" if report.plain else "In the face proxy"
        less = report.in_force and 1 - report.start / report.in_force
        saved = f"; that is {percent(less)} less" if less > 0 else ""
        lines.append(f"{way} it would start with {report.start:,}: {_start_in_words(report)}{saved}.")
    return lines


def _start_in_words(report: Report) -> str:
    pinned = f"{report.pinned:,} for pinned ones, " if report.pinned else ""
    tools = {2: "two", 3: "three"}.get(report.own_tools, str(report.own_tools))
    return f"{report.two_tools:,} for {tools} tools, {pinned}{report.instructions:,} for the instructions"


def percent(part: float) -> str:
    """Format a fraction for people. 99.96 % is not 100 %."""
    # Never 100 %: something is always left.
    return f"{min(part * 100, 99.9):.1f} %" if part > 0.99 else f"{part * 100:.0f} %"


def short_summary(config: WorkbenchConfig) -> str | None:
    """Return one line for `check` from the cache; None if it is empty."""
    engine = Engine(config, use_cache=True)
    face = engine.face
    entries = list(face.catalog.entries())
    face.catalog.load(entries)
    unknown = sum(entry.offer is None for entry in entries)
    flat = flat_cost(engine.tool_index.tools(entries))
    if not flat:
        return None
    start = _start(face)
    in_force = sum(_in_force(engine, config, start))
    otherwise = f"{flat:,} as a flat list"
    if config.face_in_force == "auto":
        otherwise += "; clients that defer definitions get that list (face auto)"
    elif config.face_in_force != "proxy":
        way = "grouped into toolboxes" if config.plain else "in the face proxy"
        otherwise = f"as served in the face {config.face_in_force}, {sum(start):,} {way}"
    uncounted = f" ({plural(unknown, 'server')} not counted)" if unknown else ""
    return f"{in_force:,} tokens to start with, {otherwise}{uncounted}; mcp-workbench list --tokens shows details"


def as_json(report: Report) -> dict[str, Any]:
    return {
        "config": report.config,
        "unit": "bytes / 4",
        "face": report.face,
        "inForce": report.in_force,
        "twoTools": report.two_tools,
        "pinned": report.pinned,
        "instructions": report.instructions,
        "start": report.start,
        "tools": report.tools,
        "flat": report.flat,
        "saved": round(report.saved, 4),
        "unknown": report.unknown,
        "proposedPins": [
            {"tool": each.path, "used": each.used, "sessions": each.clients, "tokens": each.tokens}
            for each in report.proposals
        ],
        "toolboxes": [
            {
                "name": toolbox.name,
                **_counted(toolbox.cost),
                "opened": {
                    "form": toolbox.opened.form,
                    "tokens": toolbox.opened.tokens,
                    "tools": toolbox.opened.shown,
                    "budget": toolbox.budget,
                },
                "servers": [
                    {"name": server.name, **(_counted(server.cost) if server.cost else {"tools": None})}
                    for server in toolbox.servers
                ],
            }
            for toolbox in report.toolboxes
        ],
    }


def _counted(cost: Cost) -> dict[str, Any]:
    return {"tools": cost.tools, "flat": cost.flat, "forms": cost.forms}
