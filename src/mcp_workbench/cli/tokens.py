"""`mcp-workbench tokens`: what tools cost an agent, as a flat list and here.

Owns the report and its table. Counting is `economy.costs`, the page `tokens_page`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.json import decode

from mcp_workbench.cli.complain import FAILED, complain, remark
from mcp_workbench.cli.engine import Engine, connect
from mcp_workbench.cli.flags import Command, Flag, Parsed
from mcp_workbench.cli.screen import Part, Screen, Style, stdout
from mcp_workbench.cli.settings import CONFIG, DEBUG, JSON, configuration, log_for
from mcp_workbench.config.model import FaceName, WorkbenchConfig
from mcp_workbench.config.redact import Redactor
from mcp_workbench.economy.costs import Cost, cost, flat_cost
from mcp_workbench.economy.forms import Form
from mcp_workbench.economy.tokens import tokens
from mcp_workbench.face.opening import opened
from mcp_workbench.face.proxy import ProxyFace
from mcp_workbench.face.request import OpenRequest
from mcp_workbench.face.view import View
from mcp_workbench.gateway import Options
from mcp_workbench.serving import LOCAL_PRINCIPAL

FORMS: Final = tuple(form.value for form in Form)

CONNECT = Flag("connect", None, "start the servers that have not been listed yet")
HTML = Flag("html", "FILE", "write the same as an HTML page with charts")

ABOUT_FLAT: Final = (
    "The flat list has complete definitions, including outputSchema and icons, which the form full leaves out."
)
ABOUT = """
Shows what the tools of every toolbox and server cost an agent, in tokens (bytes / 4): as a flat list, which is part of
every conversation without the workbench; in each form that open_toolbox can show them in; and when a toolbox is opened
within its budget. Counts the servers that have been listed before; --connect starts the others.

Exit code: 0, or 1 if a server that had to be started failed.
"""


class ServerCost(Struct):
    """One server; `cost` is None while nobody knows it."""

    name: str
    cost: Cost | None


class Opened(Struct):
    """What opening a toolbox costs: the form that fits, and how many tools the first answer has."""

    form: str
    tokens: int
    shown: int


class ToolboxCost(Struct):
    """One toolbox: its servers, all that is known of them together, and what opening it costs."""

    name: str
    servers: list[ServerCost]
    cost: Cost
    opened: Opened
    budget: int | None


class Report(Struct):
    """Everything, with what each conversation pays from the start: the two tools, pinned ones, the instructions."""

    config: str
    # The face in force, and what its tools and its instructions cost a conversation that starts.
    face: FaceName
    listed: int
    told: int
    plain: bool
    two_tools: int
    pinned: int
    instructions: int
    toolboxes: list[ToolboxCost]

    @property
    def flat(self) -> int:
        """What the list of all tools would cost."""
        return sum(toolbox.cost.flat for toolbox in self.toolboxes)

    @property
    def tools(self) -> int:
        """How many tools are known."""
        return sum(toolbox.cost.tools for toolbox in self.toolboxes)

    @property
    def in_force(self) -> int:
        """What every conversation pays, as clients are served now."""
        return self.listed + self.told

    @property
    def start(self) -> int:
        """What every conversation pays in the face `proxy`."""
        return self.two_tools + self.pinned + self.instructions

    @property
    def saved(self) -> float:
        """The part of the flat list that a conversation does not start with; 0 where it is the other way round."""
        return max(0.0, 1 - self.start / self.flat) if self.flat else 0.0

    @property
    def unknown(self) -> list[str]:
        """Servers that nobody knows yet, as `toolbox/server`."""
        return [f"{box.name}/{server.name}" for box in self.toolboxes for server in box.servers if server.cost is None]


def measure(config: WorkbenchConfig, engine: Engine) -> Report:
    """Count what is known now."""
    face = engine.face
    face.catalog.load(face.catalog.entries())
    toolboxes = []
    for name, servers in face.catalog.toolboxes.items():
        known = {server: face.tool_index.tools([entry]) for server, entry in servers.items() if entry.offer is not None}
        together = [tool for tools in known.values() for tool in tools]
        own = config.toolboxes[name].budget
        budget = (config.budget if own is None else own) or None
        costs = [ServerCost(server, cost(known[server]) if server in known else None) for server in servers]
        toolboxes.append(ToolboxCost(name, costs, cost(together), _opened(face, name), budget))
    if face.tool_index.is_summary_missing:
        face.tool_index.summarise()
    start = _start(face)
    return Report(config.path, config.face_in_force, *_in_force(engine, config, start), config.plain, *start, toolboxes)


def _in_force(engine: Engine, config: WorkbenchConfig, proxy: tuple[int, int, int]) -> tuple[int, int]:
    """What every conversation pays for tools and for instructions in the face that clients are shown."""
    if config.face_in_force == "proxy":
        return proxy[0] + proxy[1], proxy[2]
    shown = engine.shown_to_clients(Options())
    view = View(LOCAL_PRINCIPAL)
    return sum(tokens(definition.decode(errors="replace")) for definition in shown.tools(view)), tokens(
        shown.instructions(view)
    )


def _start(face: ProxyFace) -> tuple[int, int, int]:
    """What every conversation pays: for the two tools, for those that are pinned and known, for the instructions."""
    view = View(LOCAL_PRINCIPAL)
    listed = [tokens(definition.decode()) for definition in face.tools(view)]
    two = len(face.two_tools)
    return sum(listed[:two]), sum(listed[two:]), tokens(face.instructions(view))


def _opened(face: ProxyFace, toolbox: str) -> Opened:
    made, result = opened(face.catalog, face.tool_index, OpenRequest(toolbox), {}, [])
    text: str = decode(result)["content"][0]["text"]
    return Opened(made.form.value, tokens(text), len(made.shown))


def run(parsed: Parsed) -> int:
    """Measure and show; the exit status."""
    config = configuration(parsed, parsed.positional(0))
    log_for(parsed, config)
    engine = Engine(config, use_cache=True)
    failures = connect(engine) if parsed.has("connect") else {}
    report = measure(config, engine)
    screen = stdout()
    if parsed.has("json"):
        screen.json(as_json(report))
    else:
        show(screen, report)
        screen.flush()
    page = parsed.value("html")
    if page is not None:
        from mcp_workbench.cli.tokens_page import written

        try:
            Path(page).write_text(written(report), encoding="utf-8")
        except OSError as failure:
            return complain(f"`{page}` cannot be written: {failure.strerror}", status=FAILED)
        remark("note", f"wrote {page}")
    redactor = Redactor(config.secrets)
    for place, error in failures.items():
        remark("warning", f"{place}: {redactor.text(error.message.partition(chr(10))[0])}")
    return FAILED if failures else 0


COMMAND = Command("tokens [OPTIONS] [CONFIG]", ABOUT, (CONFIG, CONNECT, JSON, HTML, DEBUG), run, takes=1)


def show(screen: Screen, report: Report) -> None:
    """The table, and what it comes down to."""
    rows: list[list[Part]] = []
    for toolbox in report.toolboxes:
        known = any(server.cost for server in toolbox.servers)
        within = f"{toolbox.opened.tokens:,} {toolbox.opened.form}" if toolbox.cost.tools else ""
        rows.append([(toolbox.name, "name"), *(_cells(toolbox.cost, "strong") if known else _UNKNOWN), within])
        for server in toolbox.servers:
            rows.append([f"  {server.name}", *(_cells(server.cost, "plain") if server.cost else _UNKNOWN), ""])
    header = ["", "tools", "flat list", *FORMS, "opened"]
    if not screen.fits(header, rows):
        # What decides comes first; a wider terminal, or a pipe, shows the other forms too.
        kept = [header.index(title) for title in _NARROW]
        header, rows = _NARROW, [[row[column] for column in kept] for row in rows]
    screen.table(header, rows, right=range(1, len(header) - 1))
    screen.blank()
    for line in [*said(report), ABOUT_FLAT]:
        screen.line(line)


def said(report: Report) -> list[str]:
    """What it comes down to, in sentences: what the face in force costs, and what another would make of it."""
    lines = _as_toolboxes(report) if report.face == "proxy" else _as_served(report)
    if report.unknown:
        count = len(report.unknown)
        lines.append(
            f"Not counted: {count} server{'s' * (count > 1)} not listed yet ({', '.join(report.unknown[:5])}"
            f"{', …' if count > 5 else ''}); --connect lists them."
        )
    return lines


def _as_toolboxes(report: Report) -> list[str]:
    lines = [f"Every conversation starts with {report.start:,} tokens: {_start_in_words(report)}."]
    if report.flat:
        saved = f"; that is {percent(report.saved)} less to start with" if report.saved else ""
        lines.append(f"As a flat list {report.tools:,} tools would be {report.flat:,} tokens{saved}.")
    opening = [toolbox.opened.tokens for toolbox in report.toolboxes if toolbox.cost.tools]
    if opening:
        lines.append(f"Opening a toolbox costs {sum(opening) // len(opening):,} on average, {max(opening):,} at most.")
    return lines


def _as_served(report: Report) -> list[str]:
    what = f"{report.tools:,} tool{'s' * (report.tools != 1)}" if report.face == "flat" else "open_toolbox"
    lines = [
        f"This file is served in the face {report.face}: every conversation starts with {report.in_force:,} tokens, "
        f"{report.listed:,} for {what}, {report.told:,} for the instructions."
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
    return f"{report.two_tools:,} for two tools, {pinned}{report.instructions:,} for the instructions"


def percent(part: float) -> str:
    """A part as people read it. 99.96 % is not 100 %."""
    return f"{min(part * 100, 99.9):.1f} %" if part > 0.99 else f"{part * 100:.0f} %"


def in_short(config: WorkbenchConfig) -> str | None:
    """One line for `check`, from what is known; None where that is nothing."""
    engine = Engine(config, use_cache=True)
    face = engine.face
    entries = list(face.catalog.entries())
    face.catalog.load(entries)
    unknown = sum(entry.offer is None for entry in entries)
    flat = flat_cost(face.tool_index.tools(entries))
    if not flat:
        return None
    start = _start(face)
    in_force = sum(_in_force(engine, config, start))
    otherwise = f"{flat:,} as a flat list"
    if config.face_in_force != "proxy":
        way = "grouped into toolboxes" if config.plain else "in the face proxy"
        otherwise = f"as served in the face {config.face_in_force}, {sum(start):,} {way}"
    uncounted = f" ({unknown} server{'s' * (unknown > 1)} not counted)" if unknown else ""
    return f"{in_force:,} tokens to start with, {otherwise}{uncounted}; mcp-workbench tokens shows details"


def as_json(report: Report) -> dict[str, Any]:
    """The same for programs."""
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


_NARROW: Final = ["", "tools", "flat list", "full", "opened"]
_UNKNOWN: Final[list[Part]] = [("?", "dim"), *([""] * (len(FORMS) + 1))]


def _cells(cost: Cost, style: Style) -> list[Part]:
    numbers = [cost.tools, cost.flat, *(cost.forms[form] for form in FORMS)]
    return [(f"{number:,}", style) for number in numbers]
