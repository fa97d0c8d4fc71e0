"""The report of `mcp-workbench tokens` as one page: needs nothing beside it, and nothing from the network.

Owns the look of the page. Names come from configurations and are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_workbench.cli.tokens import Report, ToolboxCost

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #dfe4ea; --back: #fbfcfd; --card: #ffffff;
  --flat: #c2cad6; --opened: #1f7a8c; --good: #16734a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #2c3540; --back: #12171d;
  --card: #1a2129; --flat: #465262; --opened: #49b3c6; --good: #5cc792; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 2rem 1.25rem 4rem; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.5rem 0 .75rem; }
p, figcaption { color: var(--soft); margin: .25rem 0 0; }
figcaption { margin-top: .75rem; } .cards + p { margin-top: 1.25rem; } code { font-size: .95em; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: 1rem; margin-top: 1.5rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: 1rem 1.25rem; }
.card b { display: block; font-size: 1.9rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.card.good b { color: var(--good); } .card span { color: var(--soft); font-size: .9rem; }
figure { margin: 0; } .legend { display: flex; gap: 1.25rem; flex-wrap: wrap; margin: .25rem 0 1rem; font-size: .9rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem; margin-right: .4rem; }
.row { display: grid; grid-template-columns: minmax(6rem, 14rem) 1fr; gap: .25rem 1rem; align-items: center;
  padding: .5rem 0; border-top: 1px solid var(--line); }
.row > strong { overflow-wrap: anywhere; font-weight: 600; } .row small { display: block; color: var(--soft);
  font-weight: 400; }
.forms .row { grid-template-columns: minmax(6rem, 9rem) 1fr; padding: .15rem 0; border: 0; }
.forms .row > strong { font-weight: 400; }
@media (max-width: 40rem) { .row { grid-template-columns: 1fr; } }
.bar { display: flex; align-items: center; gap: .5rem; height: 1.35rem; font-size: .85rem;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar div { height: .85rem; border-radius: 0 .25rem .25rem 0; min-width: 2px; flex: none; }
.flat { background: var(--flat); } .opened { background: var(--opened); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .75rem; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } tr:last-child td { border-bottom: 0; }
td:first-child, th:first-child { text-align: left; } tr.box td { font-weight: 600; }
tr:not(.box) td:first-child { padding-left: 1.75rem; } td.none { color: var(--soft); }
"""


def written(report: Report) -> str:
    """The page."""
    from mcp_workbench.cli.tokens import said

    sentences = "".join(f"<p>{escape(line)}</p>" for line in said(report))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>What tools cost – MCP Workbench</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>What tools cost an agent</h1>
<p><code>{escape(report.config)}</code>, in tokens (bytes / 4)</p>
<div class="cards">{"".join(_cards(report))}</div>
{_figures(report) if report.tools else _NOTHING}
<h2>Every toolbox and server in every form</h2>
<div class="scroll"><table>
<thead><tr>{_heads()}</tr></thead>
<tbody>
{"".join(_rows(report))}
</tbody></table></div>
<h2>In short</h2>
{sentences}
</body>
</html>
"""


_NOTHING = "<p>These servers have not been listed yet: <code>mcp-workbench tokens --connect</code> starts them.</p>"


def _figures(report: Report) -> str:
    from mcp_workbench.cli.tokens import ABOUT_FLAT

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
</figcaption>
</figure>"""


def _cards(report: Report) -> Iterable[str]:
    from mcp_workbench.cli.tokens import percent

    def card(number: str, text: str, kind: str = "") -> str:
        return f'<div class="card {kind}"><b>{number}</b><span>{text}</span></div>'

    if report.tools:
        yield card(f"{report.flat:,}", f"tokens for {report.tools:,} tool{'s' * (report.tools > 1)} as a flat list")
    yield card(f"{report.in_force:,}", f"tokens that a conversation starts with here, in the face {report.face}")
    if report.face == "proxy":
        if report.saved:
            yield card(percent(report.saved), "less to start with", "good")
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
    from mcp_workbench.cli.tokens import FORMS

    costs = {"flat list": report.flat}
    costs |= {form: sum(toolbox.cost.forms[form] for toolbox in report.toolboxes) for form in FORMS}
    most = max(costs.values()) or 1
    for form, tokens in costs.items():
        bar = _bar("flat" if form == "flat list" else "opened", tokens / most, f"{tokens:,}")
        yield f'<div class="row"><strong>{form}</strong><div>{bar}</div></div>\n'


def _bar(kind: str, part: float, label: str) -> str:
    # The label stands behind the bar, so the longest one leaves room for it.
    return f'<div class="bar"><div class="{kind}" style="width:{min(part, 1.1) * 70:.2f}%"></div>{escape(label)}</div>'


def _heads() -> str:
    from mcp_workbench.cli.tokens import FORMS

    return "".join(f"<th>{head}</th>" for head in ("", "tools", "flat list", *FORMS, "opened"))


def _rows(report: Report) -> Iterable[str]:
    from mcp_workbench.cli.tokens import FORMS

    unknown = '<td class="none">?</td>' + "<td></td>" * (len(FORMS) + 2)
    for box in report.toolboxes:
        numbers = [box.cost.tools, box.cost.flat, *(box.cost.forms[form] for form in FORMS), box.opened.tokens]
        known = any(server.cost for server in box.servers)
        yield f'<tr class="box"><td>{escape(box.name)}</td>{_numbers(numbers) if known else unknown}</tr>\n'
        for server in box.servers:
            if server.cost is None:
                yield f"<tr><td>{escape(server.name)}</td>{unknown}</tr>\n"
            else:
                numbers = [server.cost.tools, server.cost.flat, *(server.cost.forms[form] for form in FORMS)]
                yield f"<tr><td>{escape(server.name)}</td>{_numbers(numbers)}<td></td></tr>\n"


def _numbers(numbers: Iterable[int]) -> str:
    return "".join(f"<td>{number:,}</td>" for number in numbers)
