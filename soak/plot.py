"""A picture of a run: memory, descriptors, tasks and latency over time, as SVG that is readable in light and dark.

Owns the drawing. Refuses to know what the numbers mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, PANEL_HEIGHT, GAP = 860, 120, 46
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 30, 40
# Colours that pages of either kind leave legible; the page decides which, by what the reader prefers.
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a; }
.title { font-weight: 600; fill: #24292f; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.first { stroke: #0969da; } .second { stroke: #bc4c00; }
.first, .second { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.name1 { fill: #0969da; } .name2 { fill: #bc4c00; }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1; } .title { fill: #f0f6fc; } .grid { stroke: #3d444d; }
  .first { stroke: #58a6ff; } .second { stroke: #f0883e; } .name1 { fill: #58a6ff; } .name2 { fill: #f0883e; }
}
"""
Line = Sequence[float | None]


@dataclass(frozen=True)
class Panel:
    """One chart; at most two lines. `is_logarithmic` for what spans magnitudes."""

    title: str
    lines: Sequence[tuple[str, Line]]
    is_logarithmic: bool = False


def draw(minutes: Sequence[float], panels: Sequence[Panel]) -> str:
    """The whole picture."""
    height = TOP + len(panels) * (PANEL_HEIGHT + GAP) - GAP + BOTTOM
    body = []
    for number, panel in enumerate(panels):
        body += _panel(minutes, panel, TOP + number * (PANEL_HEIGHT + GAP), is_last=number == len(panels) - 1)
    titles = ", ".join(panel.title for panel in panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>{escape(titles)} over time</title>\n<style>{STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _panel(minutes: Sequence[float], panel: Panel, top: float, *, is_last: bool) -> list[str]:
    values = [value for _, line in panel.lines for value in line if value is not None]
    ticks = _magnitudes(values) if panel.is_logarithmic else _round_ticks(max(values, default=1.0))
    low, high = _place(ticks[0], panel), _place(ticks[-1], panel)
    end = max(minutes, default=1.0) or 1.0

    def x(minute: float) -> float:
        return LEFT + minute / end * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return top + PANEL_HEIGHT - (_place(max(value, ticks[0]), panel) - low) / (high - low) * PANEL_HEIGHT

    drawn = [f'<text class="title" x="{LEFT}" y="{top - 10}">{escape(panel.title)}</text>']
    if len(panel.lines) > 1:
        for index, (name, _) in enumerate(panel.lines):
            place = WIDTH - RIGHT - (len(panel.lines) - 1 - index) * 130
            drawn.append(
                f'<text class="name{index + 1}" x="{place}" y="{top - 10}" text-anchor="end">{escape(name)}</text>'
            )
    for tick in ticks:
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    for index, (_, line) in enumerate(panel.lines):
        points = " ".join(
            f"{x(minute):.1f},{y(value):.1f}" for minute, value in zip(minutes, line, strict=True) if value is not None
        )
        drawn.append(f'<polyline class="{("first", "second")[index]}" points="{points}"/>')
    bottom = top + PANEL_HEIGHT
    for minute in _round_ticks(end, most=10):
        if minute <= end:
            drawn.append(f'<text x="{x(minute):.1f}" y="{bottom + 18}" text-anchor="middle">{minute:g}</text>')
    if is_last:
        drawn.append(f'<text x="{WIDTH - RIGHT}" y="{bottom + 34}" text-anchor="end">minutes</text>')
    return drawn


def _place(value: float, panel: Panel) -> float:
    return math.log10(value) if panel.is_logarithmic else value


def _round_ticks(most_value: float, most: int = 4) -> list[float]:
    """From nought in steps of 1, 2 or 5 times a power of ten, at least to the largest value."""
    rough = max(most_value, 1e-9) / most
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough * 0.999)
    return [round(number * step, 12) for number in range(max(1, math.ceil(most_value / step - 1e-9)) + 1)]


def _magnitudes(values: Sequence[float]) -> list[float]:
    positive = [value for value in values if value > 0] or [1.0]
    first = math.floor(math.log10(min(positive)))
    last = max(first + 1, math.ceil(math.log10(max(positive))))
    return [10.0**power for power in range(first, last + 1)]
