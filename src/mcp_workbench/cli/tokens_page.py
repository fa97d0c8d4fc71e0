"""The report of `mcp-workbench tokens` as HTML, and a self-contained page around it: a single file with its styles
(`page.css`), and nothing from the network. Names come from configurations and are escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from mcp_workbench.cli.token_report import (
    ABOUT_FLAT,
    ABOUT_FULL,
    COLUMNS,
    FORMS,
    Report,
    ToolboxCost,
    percent,
    rows,
    summary,
)
from mcp_workbench.engine.printable import plural


def tokens_html(report: Report) -> str:
    """Return figures, charts and the table, without a page around them."""
    heads = "".join(f"<th>{head}</th>" for head in ("", *COLUMNS))
    sentences = "".join(f"<p>{escape(line)}</p>" for line in summary(report))
    return f"""<h1>What tools cost an agent</h1>
<p><code>{escape(report.config)}</code>, in tokens (bytes / 4)</p>
<div class="cards">{"".join(_cards(report))}</div>
{_figures(report) if report.tools else _NOTHING}
<h2>Every toolbox and server in every form</h2>
<div class="scroll"><table>
<thead><tr>{heads}</tr></thead>
<tbody>
{"".join(_rows(report))}
</tbody></table></div>
<h2>In short</h2>
{sentences}"""


_NOTHING = "<p>These servers have not been listed yet: <code>mcp-workbench tokens --connect</code> starts them.</p>"


def _figures(report: Report) -> str:
    return f"""<h2>Toolboxes: the flat list, and opened here</h2>
<figure>
<div class="legend"><span><i class="flat"></i>all definitions, as a flat list</span>
<span><i class="opened"></i>opened, in the form that fits its budget</span></div>
{"".join(_bars(report.toolboxes))}
<figcaption>A flat list is part of every conversation; a toolbox is opened only when it is needed.</figcaption>
</figure>
<h2>All known tools, form by form</h2>
<figure class="forms">
{"".join(_form_bars(report))}
<figcaption><code>open_toolbox</code> shows definitions with schemas (full, lean) where they fit the budget, else an
overview in the longest of the other forms that fits a quarter of it; <code>detail</code> asks for another. {ABOUT_FLAT}
{ABOUT_FULL}
</figcaption>
</figure>"""


def _cards(report: Report) -> Iterable[str]:
    def card(number: str, text: str, kind: str = "") -> str:
        return f'<div class="card {kind}"><b>{number}</b><span>{text}</span></div>'

    if report.tools:
        yield card(f"{report.flat:,}", f"tokens for {plural(report.tools, 'tool')} as a flat list")
    yield card(f"{report.in_force:,}", f"tokens that a conversation starts with here, in the face {report.face}")
    if report.face == "proxy":
        if report.saved:
            yield card(percent(report.saved), "fewer tokens to start with", "good")
    elif report.tools:
        way = "grouped into toolboxes" if report.plain else "in the face proxy"
        yield card(f"{report.start:,}", f"tokens that it would start with {way}", "good")
    if report.unknown:
        count = len(report.unknown)
        yield card(f"{count}", f"server{'s' * (count > 1)} not listed yet, not counted")


def _bars(toolboxes: list[ToolboxCost]) -> Iterable[str]:
    most = max((toolbox.cost.flat for toolbox in toolboxes), default=0) or 1
    for toolbox in sorted(toolboxes, key=lambda each: -each.cost.flat):
        if not toolbox.cost.tools:
            continue
        plural = "" if toolbox.cost.tools == 1 else "s"
        page = "" if toolbox.opened.shown == toolbox.cost.tools else f", first {toolbox.opened.shown}"
        opened = f"{toolbox.opened.tokens:,} · {toolbox.opened.form}{page}"
        tools = f"<small>{toolbox.cost.tools:,} tool{plural}</small>"
        yield (
            f'<div class="row"><strong>{escape(toolbox.name)}{tools}</strong>'
            f"<div>{_bar('flat', toolbox.cost.flat / most, f'{toolbox.cost.flat:,}')}"
            f"{_bar('opened', toolbox.opened.tokens / most, opened)}</div></div>\n"
        )


def _form_bars(report: Report) -> Iterable[str]:
    costs = {"flat list": report.flat}
    costs |= {form: sum(toolbox.cost.forms[form] for toolbox in report.toolboxes) for form in FORMS}
    most = max(costs.values()) or 1
    for form, tokens in costs.items():
        bar = _bar("flat" if form == "flat list" else "opened", tokens / most, f"{tokens:,}")
        yield f'<div class="row"><strong>{form}</strong><div>{bar}</div></div>\n'


def _bar(kind: str, part: float, label: str) -> str:
    # The label comes after the bar, so the longest bar leaves room for it.
    return f'<div class="bar"><div class="{kind}" style="width:{min(part, 1.1) * 70:.2f}%"></div>{escape(label)}</div>'


def _rows(report: Report) -> Iterable[str]:
    unknown = '<td class="none">?</td>' + "<td></td>" * (len(COLUMNS) - 2)
    for row in rows(report):
        numbers = unknown if row.numbers is None else "".join(f"<td>{number:,}</td>" for number in row.numbers)
        opened = f"{row.opened.tokens:,}" if row.opened else ""
        kind = ' class="box"' if row.is_toolbox else ""
        yield f"<tr{kind}><td>{escape(row.name)}</td>{numbers}<td>{opened}</td></tr>\n"


def html_page(title: str, body: str) -> str:
    """Return a page with this body, which is already HTML."""
    # Read on use: no other command needs it in memory.
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} – MCP Workbench</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
