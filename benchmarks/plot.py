"""Draws latency over the number of streams from the JSON of a live benchmark.

    python -m benchmarks.plot build/bench/live.json

It reads results of `benchmarks.live`, `benchmarks.live_peers` and `benchmarks.live_capacity`. Several results of
`benchmarks.live_capacity` share one picture. For a result of `benchmarks.endpointing` it draws the utterances that were
split over the silence that was waited, and for one of `benchmarks.memory` the memory over the number of sessions.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.options import (
    CONTEXT_SETTINGS,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {"word_shown_s": "word shown for good", "word_stable_s": "word stable"}
"""Panel titles by the measure they show, for `benchmarks.live` and `benchmarks.live_peers`."""
CAPACITY_MEASURES = {"interim_lag_s": "interim", "final_s": "final"}
"""The same for `benchmarks.live_capacity`."""
SPLITS = {"inside sentences": ("sentence",), "inside numbers and spelled codes": ("number", "spelling")}
"""The same for `benchmarks.endpointing`: by the title of a panel, what its splits interrupt."""
INCHES = (10.0, 4.2)
FORMATS = (".svg", ".png", ".pdf")


@dataclass(frozen=True, slots=True)
class Curve:
    """The latency of one server at each number of streams."""

    title: str
    streams: list[int]
    p50_s: list[float]
    p95_s: list[float]


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("results", type=click.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), help="FILE.svg, FILE.png or FILE.pdf. Default: an SVG beside the JSON."
)
def main(results: tuple[Path, ...], out: Path | None) -> None:
    """Draw the p50 and p95 latencies of RESULTS over the number of streams."""
    path = out or results[0].with_suffix(".svg")
    check_path(path)
    read = []
    for result in results:
        try:
            read.append(json.loads(result.read_text()))
        except json.JSONDecodeError as error:
            raise click.ClickException(f"{result}: expected the JSON of a benchmark: {error}") from error
    draw(read, path)
    print(f"Written: {path}")


def check_path(path: Path) -> None:
    """Check that a picture can be written to `path`. Call it before a long benchmark, not after.

    Raises:
        ClickException: the file type is not supported, or matplotlib is not installed.
    """
    if path.suffix not in FORMATS:
        raise click.ClickException(f"expected a file that ends in one of {', '.join(FORMATS)}, got {path}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise click.ClickException("pictures need matplotlib: pip install -e '.[bench]'") from error


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw the picture of a result. Latencies have one panel for each measure, and one colour for each server.

    Raises:
        ClickException: a result comes from another benchmark, or holds no figures.
    """
    from matplotlib import rc_context

    match results[0].get("benchmark"):
        case "endpointing":
            figure = _draw_splits(results[0])
        case "memory":
            figure = _draw_memory(results[0])
        case _:
            figure = _draw_latencies(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Equal figures give equal files.
    with rc_context({"svg.hashsalt": "tutti"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_latencies(results: list[dict[str, Any]]) -> "Figure":
    from matplotlib.figure import Figure

    is_capacity = results[0].get("benchmark") == "live_capacity"
    measures, since = (CAPACITY_MEASURES, "its audio") if is_capacity else (MEASURES, "a word")
    panels = {title: [c for each in results for c in curves(each, measure)] for measure, title in measures.items()}
    if not any(panels.values()):
        raise click.ClickException("there are no latencies in this result")
    figure = Figure(figsize=INCHES, layout="constrained")
    for axes, (title, drawn) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        for i, curve in enumerate(drawn):
            axes.plot(curve.streams, curve.p95_s, f"C{i}o-", label=f"{curve.title}, p95")
            axes.plot(curve.streams, curve.p50_s, f"C{i}o:", label=f"{curve.title}, p50")
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        ticks = sorted({n for curve in drawn for n in curve.streams})
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_xlabel("streams")
        axes.grid(alpha=0.3)
    first = figure.axes[0]
    # The panels share this axis. Its limit is set last, because a limit set earlier would not follow the curves.
    first.set_ylim(bottom=0)
    first.set_ylabel(f"s from the end of {since}")
    first.legend(fontsize="small")
    return figure


def _draw_splits(result: dict[str, Any]) -> "Figure":
    """Draw the share of pauses that split an utterance over the silence waited, for the first kind of the result."""
    from matplotlib.figure import Figure

    rows = [row for row in result["rows"] if row["kind"] == result["rows"][0]["kind"]]
    fixed = [row for row in rows if not row["is_adaptive"]]
    adaptive = [row for row in rows if row["is_adaptive"]]
    figure = Figure(figsize=INCHES, layout="constrained")
    for axes, (title, kinds) in zip(figure.subplots(1, len(SPLITS), sharey=True), SPLITS.items(), strict=True):
        for drawn, waited, style, name in (
            (fixed, "p50", "C1o-", "fixed"),
            (adaptive, "p50", "C0o-", "adaptive, median"),
            (adaptive, "mean", "C0o:", "adaptive, mean"),
        ):
            axes.plot(
                [row["waited_s"][waited] for row in drawn],
                [split_share(row, kinds) for row in drawn],
                style,
                label=name,
            )
        axes.set_title(title)
        axes.set_xlabel("silence waited at the end of an utterance, s")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylim(bottom=0)
    figure.axes[0].set_ylabel("splits for each pause, %")
    figure.axes[0].legend(fontsize="small")
    return figure


def _draw_memory(result: dict[str, Any]) -> "Figure":
    """Draw the memory during the short sessions, and when the server is idle before and after them."""
    from matplotlib.figure import Figure

    points = [row for row in result["rows"] if row["n_sessions"]]
    if not points or not all(row["memory_mib"] for row in result["rows"]):
        raise click.ClickException("there is no memory of short sessions in this result")
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [row["n_sessions"] for row in points], [row["memory_mib"] for row in points], "C0o-", label="during sessions"
    )
    first, last = result["rows"].index(points[0]), result["rows"].index(points[-1])
    idle = [row["memory_mib"] for row in (result["rows"][first - 1], *result["rows"][last + 1 : last + 2])]
    axes.plot([0, points[-1]["n_sessions"]][: len(idle)], idle, "C1o:", label="idle, before and after")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("short sessions so far")
    axes.set_ylabel("memory of the server, MiB")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def split_share(row: dict[str, Any], kinds: Sequence[str]) -> float:
    """Splits for each pause of these kinds, in percent; 0 where there is no such pause."""
    n_pauses = sum(row["pauses"][kind] for kind in kinds)
    return 100 * sum(row["splits"][kind] for kind in kinds) / n_pauses if n_pauses else 0.0


def curves(result: dict[str, Any], measure: str) -> list[Curve]:
    """One curve for each server of a result. Levels without figures are left out.

    Raises:
        ClickException: the result comes from another benchmark.
    """
    match result.get("benchmark"):
        case "live":
            runs = [("tutti", level) for level in result["levels"]]
        case "live_peers":
            runs = [(run["title"], run) for run in result["runs"]]
        case "live_capacity":
            runs = [(result["title"], level) for level in result["levels"]]
        case other:
            raise click.ClickException(
                f"expected a result of benchmarks.live, benchmarks.live_peers, benchmarks.live_capacity or "
                f"benchmarks.endpointing, got {other}"
            )
    found = []
    for title in dict.fromkeys(title for title, _ in runs):
        points = [
            (run["streams"], run[measure]) for name, run in runs if name == title and run.get(measure, {}).get("n")
        ]
        if points:
            found.append(
                Curve(title, [n for n, _ in points], [s["p50"] for _, s in points], [s["p95"] for _, s in points])
            )
    return found


if __name__ == "__main__":
    main()
