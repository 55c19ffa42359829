"""Draws the chart of the README from `figures.json`, which repeats measured figures of the results pages.

python -m pictures.chart --out docs/images/results.svg
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict
from xml.sax.saxutils import escape

import click

FIGURES = Path(__file__).with_name("figures.json")
WIDTH, HEIGHT = 900, 330
PANEL_TOP, PANEL_BOTTOM = 78, 286
"""Where the bars and lines begin and end, from the top of the picture in pixels."""
BARS_LEFT, BARS_RIGHT = 172, 400
LINES_LEFT, LINES_RIGHT = 500, 745
STYLE = """
text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 } .note, .tick { fill: #59636e; font-size: 12px }
.end { text-anchor: end } .middle { text-anchor: middle } .ours { font-weight: 600 }
.grid { stroke: #d1d9e0; stroke-width: 1 } path { fill: none; stroke-width: 2; stroke: #818b98 }
rect, circle { fill: #aab4be } rect.ours, circle.ours { fill: #0b6e69 } path.ours { stroke: #0b6e69; stroke-width: 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note, .tick { fill: #9198a1 } .grid { stroke: #30363d }
  rect, circle { fill: #59636e } path { stroke: #848d97 }
  rect.ours, circle.ours { fill: #3fb8ac } path.ours { stroke: #3fb8ac }
}
"""


class Requests(TypedDict):
    """The left panel: a bar for each engine."""

    title: str
    note: str
    source: str
    bars: list[tuple[str, float]]


class Delays(TypedDict):
    """The right panel: a line for each server, and a grid up to `top_s`. A label stands right of its line's end."""

    title: str
    note: str
    source: str
    top_s: int
    step_s: int
    labels_left: list[str]
    lines: list[tuple[str, list[tuple[int, float]]]]


class Figures(TypedDict):
    """What `figures.json` holds. A `source` is the page with the table that the figures come from."""

    requests: Requests
    delays: Delays


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", type=click.Path(path_type=Path), default=Path("docs/images/results.svg"), show_default=True)
def main(out: Path) -> None:
    """Draw requests per second on a GPU, and the delay of a word on a CPU, for tutti and its peers."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(chart(load_figures()))
    click.echo(f"Written: {out}")


def load_figures() -> Figures:
    """The figures that the chart shows."""
    figures: Figures = json.loads(FIGURES.read_text())
    return figures


def chart(figures: Figures) -> str:
    """The picture as SVG, readable on light and on dark backgrounds."""
    label = f"{figures['requests']['title']}; {figures['delays']['title']}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' role="img" aria-label="{escape(label)}">',
        f"<style>{STYLE}</style>",
        *_bars(figures["requests"]),
        *_lines(figures["delays"]),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _heading(x: float, title: str, note: str) -> Iterator[str]:
    yield _label(x, 28, title, "title")
    yield _label(x, 48, note, "note")


def _label(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"' + (f' class="{kind}"' if kind else "") + f">{escape(text)}</text>"


def _bars(requests: Requests) -> Iterator[str]:
    yield from _heading(14, requests["title"], requests["note"])
    longest = max(value for _, value in requests["bars"])
    step = (PANEL_BOTTOM - PANEL_TOP) / len(requests["bars"])
    for i, (name, value) in enumerate(requests["bars"]):
        kind = "ours" if name == "tutti" else ""
        y = PANEL_TOP + i * step
        width = (BARS_RIGHT - BARS_LEFT - 40) * value / longest
        middle = y + step / 2 + 4
        yield _label(BARS_LEFT - 10, middle, name, f"end {kind}".strip())
        box = f'x="{BARS_LEFT}" y="{y + 6:.1f}" width="{width:.1f}" height="{step - 12:.1f}" rx="3"'
        yield f'<rect {box} class="{kind}"/>'
        yield _label(BARS_LEFT + width + 7, middle, f"{value:g}", kind)


def _lines(delays: Delays) -> Iterator[str]:
    yield from _heading(LINES_LEFT - 30, delays["title"], delays["note"])
    counts = sorted({n for _, points in delays["lines"] for n, _ in points})

    def x(n: float) -> float:
        return LINES_LEFT + (LINES_RIGHT - LINES_LEFT) * math.log2(n / counts[0]) / math.log2(counts[-1] / counts[0])

    def y(seconds: float) -> float:
        return PANEL_BOTTOM - (PANEL_BOTTOM - PANEL_TOP) * seconds / delays["top_s"]

    for seconds in range(0, delays["top_s"] + 1, delays["step_s"]):
        yield f'<path class="grid" d="M{LINES_LEFT - 8} {y(seconds):.1f}H{LINES_RIGHT + 8}"/>'
        yield _label(LINES_LEFT - 14, y(seconds) + 4, f"{seconds} s", "tick end")
    for n in counts:
        yield _label(x(n), PANEL_BOTTOM + 20, str(n), "tick middle")
    yield _label((LINES_LEFT + LINES_RIGHT) / 2, PANEL_BOTTOM + 38, "live streams", "tick middle")
    for name, points in delays["lines"]:
        kind = "ours" if name == "tutti" else ""
        shown = [(x(n), y(seconds)) for n, seconds in points]
        yield f'<path class="{kind}" d="M' + "L".join(f"{a:.1f} {b:.1f}" for a, b in shown) + '"/>'
        for a, b in shown:
            yield f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" class="{kind}"/>'
        last_x, last_y = shown[-1]
        if name in delays["labels_left"]:
            yield _label(last_x - 9, last_y + 4, name, f"end {kind}".strip())
        else:
            yield _label(last_x + 9, last_y + 4, name, kind)


if __name__ == "__main__":
    main()
