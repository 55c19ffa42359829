"""Pictures of `benchmarks.simulate`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.simulation.capacity import Level
from benchmarks.simulation.day import Day

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (10.0, 4.2)


def draw_check(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw measured points on simulated curves, for the runs with several numbers of sessions."""
    panels: tuple[tuple[str, Callable[[Level], float]], ...] = (
        ("p95 of interims, s", lambda level: level["interim_lag_s"]["p95"]),
        ("p95 of finals, s", lambda level: level["final_s"]["p95"]),
        ("interims of those due, %", lambda level: 100 * level["interims_of_due"]),
    )
    figure, subplots = _figure(len(panels))
    for axes, (title, value) in zip(subplots, panels, strict=True):
        for i, row in enumerate(row for row in rows if len(row["measured"]) > 1):
            sessions = [level["streams"] for level in row["measured"]]
            axes.plot(
                sessions, [value(level) for level in row["simulated"]], f"C{i}-", label=f"{row['title']}, simulated"
            )
            axes.plot(
                sessions, [value(level) for level in row["measured"]], f"C{i}o", label=f"{row['title']}, measured"
            )
        axes.set_title(title)
        axes.set_xlabel("sessions")
        axes.set_ylim(bottom=0)
    subplots[0].legend(fontsize="x-small")
    _save(figure, path)


def draw_fleet(
    pools: Sequence[dict[str, Any]], fleets: Sequence[dict[str, Any]], measured: Sequence[tuple[int, float]], path: Path
) -> None:
    """Draw sessions per GPU over the number of GPUs; `measured` are numbers of GPUs with the sessions they held."""
    figure, (axes,) = _figure(1)
    axes.plot([row["gpus"] for row in pools], [row["held"] / row["gpus"] for row in pools], "C0o-", label="one pool")
    for i, gpus_per_host in enumerate(sorted({row["gpus_per_host"] for row in fleets}), start=1):
        own = [row for row in fleets if row["gpus_per_host"] == gpus_per_host]
        for place, style in (("random", ":"), ("fewest sessions", "-")):
            axes.plot(
                [row["gpus"] for row in own],
                [row["held"][place] / row["gpus"] for row in own],
                f"C{i}{style}",
                label=f"hosts of {gpus_per_host} that share nothing, {place}",
            )
    axes.plot([gpus for gpus, _ in measured], [held / gpus for gpus, held in measured], "k*", ms=12, label="measured")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("sessions held, per GPU")
    axes.legend(fontsize="small", loc="lower right")
    _save(figure, path)


def draw_routing(rows: Sequence[dict[str, Any]], n_engines: int, path: Path) -> None:
    """Draw the latencies of each policy over the sessions per GPU."""
    figure, subplots = _figure(2)
    for axes, measure, title in zip(subplots, ("interim_lag_s", "final_s"), ("interims", "finals"), strict=True):
        for i, row in enumerate(rows):
            per_gpu = [level["streams"] / n_engines for level in row["levels"]]
            axes.plot(per_gpu, [level[measure]["p95"] for level in row["levels"]], f"C{i}o-", label=row["policy"])
        axes.set_title(f"p95 of {title}, s")
        axes.set_xlabel("sessions per GPU")
        axes.set_ylim(bottom=0)
    subplots[0].legend(fontsize="small")
    _save(figure, path)


def draw_loss(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the p95 of finals and interims, second by second, before and after engines were lost."""
    figure, subplots = _figure(len(rows), share_y=True)
    for axes, row in zip(subplots, rows, strict=True):
        seconds = [each["s"] for each in row["course"]]
        axes.plot(seconds, [each["final_p95_s"] for each in row["course"]], "C0-", label="finals")
        axes.plot(seconds, [each["interim_p95_s"] for each in row["course"]], "C1-", label="interims")
        axes.axvspan(0, row["back_after_s"], color="C3", alpha=0.1, label="engines away")
        axes.set_title(f"{row['lost']} of {row['engines']} lost, {row['per_gpu']} sessions a GPU")
        axes.set_xlabel("seconds after the loss")
        axes.set_ylim(bottom=0)
    subplots[0].set_ylabel("p95 of a second, s")
    subplots[0].legend(fontsize="small")
    _save(figure, path)


def draw_day(day: Day, per_gpu: float, path: Path) -> None:
    """Draw a day: sessions and what the GPUs hold, and the p95 of interims and finals."""
    figure, (fleet, latency) = _figure(2)
    fleet.plot(day.hours, day.sessions, "C0-", label="sessions")
    fleet.plot(day.hours, [per_gpu * gpus for gpus in day.gpus_ready], "C2-", label="held by GPUs that are ready")
    fleet.plot(day.hours, [per_gpu * gpus for gpus in day.gpus_paid], "C2:", label="by all that are paid for")
    fleet.set_title("sessions")
    latency.plot(day.hours, day.interim_p95_s, "C1-", label="interims")
    latency.plot(day.hours, day.final_p95_s, "C0-", label="finals")
    latency.set_title("p95, s")
    for axes in (fleet, latency):
        axes.set_xlabel("hour of the day")
        axes.set_xlim(0, 24)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")
    _save(figure, path)


def _figure(n: int, *, share_y: bool = False) -> "tuple[Any, list[Axes]]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, layout="constrained")
    subplots = figure.subplots(1, n, sharey=share_y, squeeze=False)[0]
    for axes in subplots:
        axes.grid(alpha=0.3)
    return figure, list(subplots)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
