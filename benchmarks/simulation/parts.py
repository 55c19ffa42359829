"""The questions of `benchmarks.simulate`: each part runs the simulation and gives figures and a table."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.live_capacity import MIN_INTERIMS
from benchmarks.report import Table, number
from benchmarks.scoring import percentile
from benchmarks.simulation.capacity import Level, most_held, search
from benchmarks.simulation.day import Day, Scaling, run_day
from benchmarks.simulation.fleet import MIN_IN_TIME, PLACES, Response, fleet_holds
from benchmarks.simulation.measured import Measurement
from benchmarks.simulation.routing import OURS, POLICIES
from benchmarks.simulation.stage_times import StageTimes
from benchmarks.simulation.trial import Setup, Trial, steady_load

HOST_GPUS = 8
"""GPUs of a large host, whose engines all its gateways share."""
ROUTED_ENGINES = 4
"""Engines with which policies are compared."""
ROUTED_PER_GPU = {"full": (100, 250, 290), "interims": (200, 450, 580)}
"""Sessions per GPU at which they are compared, by audio context: a third, three quarters and all that one holds."""
LOST_PER_GPU = {"full": 180, "interims": 380}
"""Sessions per GPU when engines are lost, by audio context: about two thirds of what one holds."""
RESPONSE_SHARES = (0.25, 0.5, 0.75, 0.9, 1.1)
"""Sessions of a host, as shares of what it holds, at which it is simulated to know what its sessions see."""
N_CHECKED_HOSTS = 8
"""Hosts of one GPU with which the coarse model is compared with the detailed one."""
BIN_S = 1.0
"""Latencies after a loss are shown over periods of this many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all parts need."""

    setup: Setup
    lengths_s: tuple[float, ...]
    """Lengths of utterances, in seconds."""
    seconds: float
    """Time that each run of the detailed simulation measures."""
    gpu_hour: float
    """Price of a GPU for an hour, in any currency."""

    def level(self, n_engines: int, policy: str, n_sessions: int) -> Level:
        """The figures of sessions on engines that share their work."""
        setup = replace(self.setup, n_engines=n_engines, policy=policy)
        load = steady_load(n_sessions, setup.habits, self.lengths_s, self.seconds, setup.seed)
        _note(f"{n_sessions} sessions on {n_engines} engines, {policy}")
        return Trial(setup, load).run()


def _note(text: str) -> None:
    print(f"{text} …", file=sys.stderr, flush=True)


# Beside measurements.


def check(measurements: Iterable[Measurement], times: dict[str, StageTimes]) -> list[dict[str, Any]]:
    """Simulate what was measured. `times` are by model and the most windows of an encoder call."""
    rows = []
    for measurement in measurements:
        setup = Setup(
            times=times[measurement.model],
            config=measurement.config,
            habits=measurement.habits,
            n_engines=measurement.n_engines,
            n_gateways=measurement.n_gateways,
        )
        simulated = []
        for level in measurement.levels:
            _note(f"{level['streams']} sessions, {measurement.title}")
            simulated.append(Trial(setup, measurement.load(level["streams"])).run())
        rows.append(
            {
                "title": measurement.title,
                "n_engines": measurement.n_engines,
                "measured": measurement.levels,
                "simulated": simulated,
                "measured_held": most_held(measurement.levels),
                "simulated_held": most_held(simulated),
            }
        )
    return rows


def measured_limits(measurements: Iterable[Measurement], context: str) -> list[tuple[int, float]]:
    """Numbers of GPUs, and the sessions at which they were measured to reach the limit, for an audio context."""
    limits = [(each.n_engines, most_held(each.levels)) for each in measurements if each.config.audio_context == context]
    return [(n_engines, held) for n_engines, held in limits if held]


def check_tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """The tables of `check`: each level, and the sessions at the limit."""
    columns = (
        "measured → simulated",
        "interim lag s,\np50/p95",
        "interims\nof due %",
        "final s,\np50/p95",
        "windows\na call",
        "rows\na step",
        "held",
    )
    lines = [
        (f"{measured['streams']:,}, {row['title']}", *_pairs(measured, simulated))
        for row in rows
        for measured, simulated in zip(row["measured"], row["simulated"], strict=True)
    ]
    limits = [
        (
            row["title"],
            str(row["n_engines"]),
            number(row["measured_held"], 0),
            number(row["simulated_held"], 0),
            f"{100 * (row['simulated_held'] / row['measured_held'] - 1):+.0f} %",
        )
        for row in rows
        if row["measured_held"] and row["simulated_held"]
    ]
    return [
        Table("Sessions, measured and simulated", columns, lines),
        Table(
            f"Sessions at the limit, at which the first condition fails (mostly {100 * MIN_INTERIMS:.0f} % of due)",
            ("runs", "GPUs", "measured", "simulated", "error"),
            limits,
        ),
    ]


def _pairs(measured: Level, simulated: Level) -> list[str]:
    cells: tuple[Callable[[Level], str], ...] = (
        lambda level: _two(level["interim_lag_s"]),
        lambda level: number(100 * level["interims_of_due"], 0),
        lambda level: _two(level["final_s"]),
        lambda level: number(level["engine"]["encode_batch"], 1),
        lambda level: number(level["engine"]["decode_batch"], 1),
        lambda level: "yes" if level["holds"] else "no",
    )
    return [f"{cell(measured)} → {cell(simulated)}" for cell in cells]


def _two(summary: dict[str, Any]) -> str:
    return f"{number(summary['p50'])}/{number(summary['p95'])}"


# Engines that share their work.


def capacity(plan: Plan, sizes: Sequence[int], guess: int) -> list[dict[str, Any]]:
    """The sessions that different numbers of engines hold, each number as one pool."""
    rows = []
    for n_engines in sizes:
        held, levels = search(partial(plan.level, n_engines, OURS), guess * n_engines)
        guess = round(held / n_engines)
        rows.append({"gpus": n_engines, "held": held, "levels": levels})
    return rows


def response(plan: Plan, row: dict[str, Any]) -> Response:
    """What the sessions of a host see, with as many GPUs as a row of `capacity` has."""
    tried = {round(share * row["held"]) for share in RESPONSE_SHARES}
    levels = [plan.level(row["gpus"], OURS, n_sessions) for n_sessions in sorted(tried)]
    return Response.of([*row["levels"], *levels], row["held"], row["gpus"])


def fleet_check(plan: Plan, one: Response) -> dict[str, Any]:
    """Compare the coarse model with the detailed one: hosts of one GPU, over which sessions are spread at random."""
    random = np.random.default_rng(plan.setup.seed)
    counts = random.multinomial(round(0.95 * one.held * N_CHECKED_HOSTS), np.full(N_CHECKED_HOSTS, 1 / N_CHECKED_HOSTS))
    measures: dict[str, tuple[Callable[[Level], float], Callable[[float], float]]] = {
        "interims of due %": (lambda level: 100 * float(level["interims_of_due"]), lambda load: 100 * one.due(load)),
        "interim lag p95 s": (lambda level: float(level["interim_lag_s"]["p95"]), one.interim_s),
        "final p95 s": (lambda level: float(level["final_s"]["p95"]), one.final_s),
    }
    levels = [plan.level(1, OURS, int(count)) for count in counts]
    return {
        "sessions": counts.tolist(),
        "measures": {
            name: {"detailed": [of_level(each) for each in levels], "coarse": [of_load(int(n)) for n in counts]}
            for name, (of_level, of_load) in measures.items()
        },
    }


def fleet_check_table(checked: dict[str, Any]) -> Table:
    """The table of `fleet_check`."""
    lines = []
    for name, values in checked["measures"].items():
        pairs = list(zip(values["detailed"], values["coarse"], strict=True))
        errors = [abs(coarse - detailed) / detailed for detailed, coarse in pairs]
        lines.append(
            (
                name,
                *(number(sum(each) / len(each)) for each in (values["detailed"], values["coarse"])),
                number(100 * sum(errors) / len(errors), 1),
                number(100 * max(errors), 1),
            )
        )
    counts = checked["sessions"]
    return Table(
        f"{len(counts)} hosts of one GPU with {min(counts)} to {max(counts)} sessions, detailed and coarse",
        ("measure", "detailed", "coarse", "mean\nerror %", "largest\nerror %"),
        lines,
    )


def fleet(rows: Sequence[dict[str, Any]], sizes: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """The sessions that fleets hold, from `capacity`: hosts that share nothing, each with the GPUs of a row."""
    found = []
    for row in (row for row in rows if row["gpus"] in (1, HOST_GPUS)):
        for gpus in (gpus for gpus in sizes if gpus >= row["gpus"]):
            n_hosts = gpus // row["gpus"]
            held = {place: fleet_holds(n_hosts, row["held"], place, seed=seed) for place in PLACES}
            found.append({"gpus": n_hosts * row["gpus"], "gpus_per_host": row["gpus"], "held": held})
    return found


def capacity_tables(rows: Sequence[dict[str, Any]], fleets: Sequence[dict[str, Any]], gpu_hour: float) -> list[Table]:
    """The tables of `capacity` and `fleet`."""
    one = rows[0]["held"] / rows[0]["gpus"]
    pools = [
        (
            str(row["gpus"]),
            f"{row['held']:,.0f}",
            number(row["held"] / row["gpus"], 0),
            number(row["held"] / row["gpus"] / one),
            number(1000 * gpu_hour * row["gpus"] / row["held"], 2),
        )
        for row in rows
    ]
    spread = [
        (
            f"{row['gpus']:,}, {row['gpus_per_host']} a host",
            *(f"{held:,}" for held in row["held"].values()),
            number(max(row["held"].values()) / row["gpus"], 0),
            number(1000 * gpu_hour * row["gpus"] / max(row["held"].values()), 2),
        )
        for row in fleets
    ]
    cost = "1,000 session\nhours cost"
    return [
        Table(
            f"Engines that share their work ({gpu_hour:g} a GPU hour)",
            ("GPUs", "sessions held", "a GPU", "of one\nGPU's", cost),
            pools,
        ),
        Table(
            f"Hosts that share nothing, by how sessions are spread ({100 * MIN_IN_TIME:.0f} % of them in time)",
            ("GPUs", *PLACES, "best,\na GPU", cost),
            spread,
        ),
    ]


# Routing.


def routing(plan: Plan, n_engines: int, per_gpu: Sequence[int]) -> list[dict[str, Any]]:
    """The figures of each policy at some numbers of sessions per GPU."""
    return [
        {"policy": policy, "levels": [plan.level(n_engines, policy, n_engines * each) for each in per_gpu]}
        for policy in POLICIES
    ]


def routing_table(rows: Sequence[dict[str, Any]], n_engines: int) -> Table:
    """The table of `routing`."""
    lines = [
        (
            f"{row['policy']}, {level['streams'] // n_engines} a GPU",
            _two(level["interim_lag_s"]),
            number(100 * level["interims_of_due"], 0),
            _two(level["final_s"]),
            number(level["engine"]["encode_batch"], 1),
            str(level["failed"]),
            "yes" if level["holds"] else "no",
        )
        for row in rows
        for level in row["levels"]
    ]
    return Table(
        f"Policies of gateways, {n_engines} engines (s, p50/p95)",
        ("policy", "interim lag", "of due %", "final", "windows\na call", "sessions\nended", "held"),
        lines,
    )


# A loss.


def loss(plan: Plan, n_engines: int, n_lost: int, per_gpu: int, back_after_s: float) -> dict[str, Any]:
    """Let engines go at once, and give what callers see, second by second, until after they are back."""
    setup = replace(plan.setup, n_engines=n_engines)
    lost_at_s, seconds = 20.0, back_after_s + 30.0
    load = steady_load(n_engines * per_gpu, setup.habits, plan.lengths_s, seconds, setup.seed)
    _note(f"{n_lost} of {n_engines} engines lost at {per_gpu} sessions a GPU")
    trial = Trial(setup, load)
    for name in list(trial.pool.engines)[:n_lost]:
        trial.clock.call_at(lost_at_s, partial(trial.pool.lose, name, back_after_s))
    level = trial.run()
    course = []
    for index in range(int((load.measured[0] + seconds) / BIN_S)):
        begin_s, end_s = index * BIN_S, (index + 1) * BIN_S
        finals = [lag_s for spoken_s, lag_s in trial.log.finals if begin_s <= spoken_s < end_s]
        interims = [lag_s for spoken_s, lag_s in trial.log.interims if begin_s <= spoken_s < end_s]
        course.append(
            {
                "s": begin_s - lost_at_s,
                "final_p95_s": percentile(finals, 95),
                "interim_p95_s": percentile(interims, 95),
                "interims_per_s": len(interims) / BIN_S,
            }
        )
    return {
        "engines": n_engines,
        "lost": n_lost,
        "per_gpu": per_gpu,
        "back_after_s": back_after_s,
        "sessions_ended": level["failed"],
        "finals_given_again": trial.pool.n_again,
        "course": course[int(load.measured[0] / BIN_S) :],
    }


def loss_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The table of `loss`."""
    lines = []
    for row in rows:
        periods = ((-10, 0), (0, 5), (5, row["back_after_s"]), (row["back_after_s"] + 10, row["back_after_s"] + 28))
        of_periods = [_worst(row["course"], *period) for period in periods]
        lines.append(
            (
                f"{row['lost']} of {row['engines']}, {row['per_gpu']} a GPU",
                *(f"{number(final_s)} / {number(interim_s)}" for final_s, interim_s in of_periods),
                str(row["finals_given_again"]),
                str(row["sessions_ended"]),
            )
        )
    return Table(
        "Engines lost at once: the worst second's p95 of finals / interims (s)",
        (
            "engines lost",
            "10 s before",
            "first 5 s",
            "until they\nare back",
            "from 10 s\nafter that",
            "finals\ngiven again",
            "sessions\nended",
        ),
        lines,
    )


def _worst(course: Sequence[dict[str, Any]], begin_s: float, end_s: float) -> tuple[float, float]:
    seconds = [each for each in course if begin_s <= each["s"] < end_s]
    return (
        max(each["final_p95_s"] or 0.0 for each in seconds),
        max(each["interim_p95_s"] or 0.0 for each in seconds),
    )


# A day.


def days(response: Response, peak: float, targets: Sequence[float], seed: int) -> dict[float, Day]:
    """A day for each target of the autoscaler."""
    return {target: run_day(response, Scaling(target=target), peak, seed=seed) for target in targets}


def day_table(courses: dict[float, Day], peak: float, gpu_hour: float) -> Table:
    """The table of `days`."""
    lines = [
        (
            number(target),
            f"{max(day.gpus_ready):,}",
            f"{day.gpu_hours:,.0f}",
            f"{day.fixed_gpu_hours:,.0f}",
            f"{100 * (1 - day.gpu_hours / day.fixed_gpu_hours):.0f}",
            number(1000 * gpu_hour * day.gpu_hours / day.session_hours, 2),
            number(max(day.interim_p95_s)),
            number(max(day.final_p95_s)),
            number(100 * day.late_share, 2),
        )
        for target, day in courses.items()
    ]
    return Table(
        f"A day with {peak:,.0f} sessions at its peak, hosts of {HOST_GPUS} GPUs ({gpu_hour:g} a GPU hour)",
        (
            "sessions per\ncapacity",
            "most\nGPUs",
            "GPU hours",
            "of a fixed\nfleet",
            "saved %",
            "1,000 session\nhours cost",
            "worst interim\np95 s",
            "worst final\np95 s",
            "session time\nnot held %",
        ),
        lines,
    )
