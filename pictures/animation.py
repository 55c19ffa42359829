"""Screens of a terminal as one animated SVG: text that appears and disappears by CSS, without scripts and fonts.

Every line is drawn once and shown while the terminal showed it. The picture follows the reader's colour scheme, and a
reader who prefers reduced motion sees the last screen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from pictures.terminal import Line, Run, Shown

CHARACTER_PX = 8.4
"""Width of a character: monospaced fonts are about 0.6 of their size wide, and `textLength` makes it exact."""
FONT_PX = 14
LINE_PX = 20
MARGIN_PX = 18
BAR_PX = 34
"""Height of the window's title bar."""

STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace;
  fill: #1f2328; white-space: pre }
.window { fill: #f6f8fa; stroke: #d1d9e0 } .bar { fill: #e6eaef } .button { fill: #b7bfc8 }
.b { font-weight: 600 } .d { fill: #656d76 } .i { font-style: italic }
.title, .prompt { fill: #656d76 } .title { text-anchor: middle; font-size: 12px }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .d, .title, .prompt { fill: #8d96a0 }
  .window { fill: #0d1117; stroke: #30363d } .bar { fill: #161b22 } .button { fill: #484f58 }
}
@media (prefers-reduced-motion: reduce) { g { animation: none !important } }
"""


@dataclass(frozen=True, slots=True)
class Span:
    """A line that is shown for a time."""

    row: int
    line: Line
    from_s: float
    until_s: float


def spans(shown: Sequence[Shown], end_s: float) -> list[Span]:
    """For each row, the lines that it shows one after another. Empty lines are left out."""
    found: list[Span] = []
    for row in range(max(len(screen.lines) for screen in shown)):
        line: Line = ()
        since_s = 0.0
        for screen in shown:
            now = screen.lines[row] if row < len(screen.lines) else ()
            if now != line:
                if line:
                    found.append(Span(row, line, since_s, screen.at_s))
                line, since_s = now, screen.at_s
        if line:
            found.append(Span(row, line, since_s, end_s))
    return found


def animated(shown: Sequence[Shown], *, title: str, columns: int, hold_s: float) -> str:
    """The SVG. The last screen stays for `hold_s` seconds, and then the animation begins again."""
    end_s = shown[-1].at_s + hold_s
    n_rows = max(len(screen.lines) for screen in shown)
    width = round(columns * CHARACTER_PX + 2 * MARGIN_PX)
    height = BAR_PX + n_rows * LINE_PX + 2 * MARGIN_PX
    frames, lines = [], []
    names: dict[tuple[float, float], str] = {}
    for span in spans(shown, end_s):
        when = (span.from_s, span.until_s)
        if when not in names:
            names[when] = f"t{len(names)}"
            frames.append(_keyframes(names[when], *when, end_s))
        lines.append(f'<g class="{names[when]}">{_text(span)}</g>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img" aria-label="{escape(title)}">',
            f"<style>{STYLE}{''.join(frames)}</style>",
            f'<rect class="window" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="9"/>',
            f'<path class="bar" d="M1 {BAR_PX}V10a9 9 0 0 1 9-9H{width - 10}a9 9 0 0 1 9 9V{BAR_PX}Z"/>',
            *(f'<circle class="button" cx="{20 + 18 * i}" cy="{BAR_PX / 2:g}" r="5.5"/>' for i in range(3)),
            f'<text class="title" x="{width / 2:g}" y="{BAR_PX / 2 + 4:g}">{escape(title)}</text>',
            *lines,
            "</svg>\n",
        ]
    )


def _keyframes(name: str, from_s: float, until_s: float, end_s: float) -> str:
    """CSS that shows an element from one moment to another; without animation it is shown if it lasts to the end."""
    lasts = until_s >= end_s
    if from_s <= 0 and lasts:
        return ""
    begin = "" if from_s <= 0 else f"0%{{opacity:0}}{100 * from_s / end_s:.2f}%{{opacity:1}}"
    first = "0%{opacity:1}" if from_s <= 0 else begin
    last = "100%{opacity:1}" if lasts else f"{100 * until_s / end_s:.2f}%,100%{{opacity:0}}"
    base = "" if lasts else "opacity:0;"
    return f"@keyframes {name}{{{first}{last}}}.{name}{{{base}animation:{name} {end_s:.1f}s step-end infinite}}\n"


def _text(span: Span) -> str:
    y = BAR_PX + MARGIN_PX + span.row * LINE_PX + FONT_PX
    return f'<text y="{y}">' + "".join(_run(run) for run in span.line) + "</text>"


def _run(run: Run) -> str:
    """A run of characters at its column, as wide as its characters are in any font."""
    text = run.text.rstrip()
    if not text:
        return ""
    text, lead = text.lstrip(), len(text) - len(text.lstrip())
    names = [name for name, has in zip("bdi", (run.style.bold, run.style.dim, run.style.italic), strict=True) if has]
    kind = f' class="{" ".join(names)}"' if names else ""
    x = MARGIN_PX + (run.column + lead) * CHARACTER_PX
    return f'<tspan x="{x:.1f}" textLength="{len(text) * CHARACTER_PX:.1f}"{kind}>{escape(text)}</tspan>'
