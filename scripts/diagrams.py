"""The diagrams of the documents: boxes with words, and the ways between them.

Every text has the width that is reckoned for it, whatever font a reader has, and one that would not fit its box is not
drawn but refused.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Final, NamedTuple

FONT: Final = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# Of a monospaced font: the width of a character in parts of its size.
ADVANCE: Final = 0.6
PADDING: Final = 8
LINE: Final = 1.4


class Style(NamedTuple):
    fill: str
    stroke: str
    text: str
    dashed: bool = False


CARD: Final = Style("#ffffff", "#d0d7de", "#1f2328")
FRONT: Final = Style("#ddf4ff", "#1f6feb", "#1f2328")
CORE: Final = Style("#0b2540", "#0b2540", "#ffffff")
CHIP: Final = Style("#1f6feb", "#1f6feb", "#ffffff")
OPEN: Final = Style("#eefaf3", "#2da44e", "#1f2328")
RUNNING: Final = Style("#2da44e", "#2da44e", "#ffffff")
ASLEEP: Final = Style("none", "#afb8c1", "#57606a", dashed=True)
WAY: Final = "#1f6feb"
WIRE: Final = "#2da44e"
IDLE: Final = "#afb8c1"


class Label(NamedTuple):
    text: str
    size: int = 13
    bold: bool = False
    faint: bool = False

    @property
    def width(self) -> float:
        return len(self.text) * self.size * ADVANCE


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    width: int
    height: int
    style: Style
    labels: tuple[Label, ...] = ()
    # Where its words begin, from its top; in the middle if not given.
    first: int | None = None

    def drawn(self) -> str:
        fill, stroke, text, dashed = self.style
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        shape = (
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="10" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="1.5"{dashes}/>'
        )
        lines = [shape]
        total = sum(label.size * LINE for label in self.labels)
        y = self.y + (self.first if self.first is not None else (self.height - total) / 2)
        for label in self.labels:
            if label.width > self.width - 2 * PADDING or y + label.size * LINE > self.y + self.height:
                raise ValueError(f"`{label.text}` does not fit a box of {self.width} by {self.height}")
            y += label.size * LINE
            lines.append(written(label, self.x + (self.width - label.width) / 2, y - label.size * 0.35, text))
        return "\n".join(lines)


def written(label: Label, x: float, y: float, colour: str) -> str:
    weight = ' font-weight="700"' if label.bold else ""
    opacity = ' opacity="0.7"' if label.faint else ""
    text = html.escape(label.text, quote=False)
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{label.size}" textLength="{label.width:g}" '
        f'lengthAdjust="spacingAndGlyphs" fill="{colour}"{weight}{opacity}>{text}</text>'
    )


def way(start: tuple[int, int], end: tuple[int, int], colour: str, dashed: bool = False) -> str:
    (x1, y1), (x2, y2) = start, end
    middle = (x1 + x2) // 2
    dashes = ' stroke-dasharray="5 5"' if dashed else ""
    curve = f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"
    return f'<path d="{curve}" fill="none" stroke="{colour}" stroke-width="2.5"{dashes}/>'


def diagram(width: int, height: int, title: str, text: str, parts: list[str | Box]) -> str:
    drawn = "\n".join(part.drawn() if isinstance(part, Box) else part for part in parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title text" \
font-family="{FONT}">
<title id="title">{title}</title>
<desc id="text">{text}</desc>
<rect width="{width}" height="{height}" rx="16" fill="#f6f8fa"/>
{drawn}
</svg>
"""


def sharing() -> str:
    """Three clients, three front ends, one workbench, and who shares which server."""
    parts: list[str | Box] = []
    for y, name, folder in ((40, "Claude Code", "~/shop"), (145, "Cursor", "~/shop"), (250, "Codex", "~/docs")):
        parts += [
            way((160, y + 35), (200, y + 35), WAY),
            way((310, y + 35), (400, 180), WAY),
            Box(30, y, 130, 70, CARD, (Label(name, 15, bold=True), Label(folder, faint=True))),
            Box(200, y + 12, 110, 46, FRONT, (Label("serve"),)),
        ]
    words = (
        Label("shared workbench", 16, bold=True),
        Label("one for each user"),
        Label(" "),
        Label("owns processes,", faint=True),
        Label("sign-ins, caches", faint=True),
        Label(" "),
        Label("mcp-workbench up", faint=True),
    )
    servers = (
        (40, "time", "user: all three"),
        (113, "git", "project ~/shop: two"),
        (186, "git", "project ~/docs: one"),
        (259, "playwright", "session: one for each client"),
    )
    parts += [way((590, 130 + 33 * number), (620, y + 30), WIRE) for number, (y, _, _) in enumerate(servers)]
    parts += [Box(400, 70, 190, 220, CORE, words)]
    parts += [
        Box(620, y, 250, 60, CARD, (Label(name, 14, bold=True), Label(who, faint=True))) for y, name, who in servers
    ]
    for text, x in (("Unix socket", 355), ("front ends copy bytes", 255)):
        label = Label(text, 12)
        parts.append(written(label, x - label.width / 2, 28 if x == 355 else 342, "#57606a"))
    return diagram(
        900,
        360,
        "One workbench for all clients",
        "Three clients, each with a thin front end that copies bytes, joined over a Unix socket to one shared "
        "workbench. Servers run once and are shared; one that keeps a person's state runs once for each client.",
        parts,
    )


def workbench() -> str:
    """An agent, the two tools, and the toolboxes behind them."""
    tools = (
        Label("MCP Workbench", 18, bold=True),
        Label("all that the agent sees", faint=True),
    )
    promises = (Label("starts servers when needed"), Label("restarts what crashes"), Label("leaves nothing behind"))
    boxes = (
        (36, "dev", "Files and git, opened", ("filesystem", "git"), True),
        (143, "data", "Reports, not started", ("postgres", "charts"), False),
        (250, "team", "Tickets and mail, not started", ("jira", "mail", "git"), False),
    )
    parts: list[str | Box] = [
        way((200, 190), (275, 190), WAY),
        *(way((505, 190), (570, y + 47), WIRE if opened else IDLE, not opened) for y, *_, opened in boxes),
        Box(30, 130, 170, 120, CARD, (Label("Your agent", 17, bold=True), Label("Claude Code"), Label("Cursor, …"))),
        Box(275, 50, 230, 280, CORE, tools, first=18),
        Box(310, 130, 160, 38, CHIP, (Label("open_toolbox", 14),)),
        Box(310, 180, 160, 38, CHIP, (Label("use_tool", 14),)),
        Box(276, 240, 228, 76, CORE._replace(stroke="none", fill="none", text="#9fb3c8"), promises),
    ]
    for y, name, about, servers, opened in boxes:
        parts.append(Box(570, y, 300, 94, OPEN if opened else CARD))
        heading = Label(name, 16, bold=True)
        parts.append(written(heading, 586, y + 28, "#1f2328"))
        parts.append(written(Label(about, 12), 586 + heading.width + 12, y + 28, "#57606a"))
        x = 586
        for server in servers:
            width = len(server) * 8 + 24
            parts.append(Box(x, y + 46, width, 32, RUNNING if opened else ASLEEP, (Label(server),)))
            x += width + 12
    return diagram(
        900,
        380,
        "One MCP server in front of many",
        "An agent sees two tools, open_toolbox and use_tool. Behind them the workbench holds toolboxes of MCP servers; "
        "those of the opened toolbox run, the others have not been started.",
        parts,
    )
