"""The table of `benchmarks.live`, and warnings about figures that are not reliable."""

from collections.abc import Callable
from typing import Any

from benchmarks import report
from benchmarks.report import Table, number, percent, spread

LATE_S = 0.1
"""A load generator that is later than this (one chunk, in seconds) makes the figures worse than the server's."""


def table(result: dict[str, Any]) -> Table:
    """The table: one column for each number of clients."""
    levels = result["levels"]
    n_streams = (f"{level['streams']} stream{'s' if level['streams'] > 1 else ''}" for level in levels)
    return Table(
        "Live sessions (times in s, p50/p95/p99)",
        ("", *n_streams),
        [(name, *(read(level) for level in levels)) for name, read in ROWS.items()] + _encoding_rows(levels),
    )


def _encoding_rows(levels: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Rows with the word errors of each encoding, if there are several."""
    names = dict.fromkeys(name for level in levels for name in level["by_encoding"])
    if len(names) < 2:
        return []
    return [(f"WER % of {name}", *(percent(_wer(level, name)) for level in levels)) for name in names]


def _wer(level: dict[str, Any], encoding: str) -> float | None:
    found: float | None = level["by_encoding"].get(encoding, {}).get("wer")
    return found


def _steps(level: dict[str, Any], *, with_drafts: bool = True) -> str:
    """Decode steps of all sequences per second of audio.

    The first token of a window and the accepted draft tokens take no step of their own.
    """
    engine = level["engine"]
    if engine["tokens"] is None:
        return report.NO_VALUE
    n_steps = engine["tokens"] - engine["windows_done"] - with_drafts * engine["draft_tokens"]["accepted"]
    return number(n_steps / level["audio_s"], 1)


def _queue(wait: dict[str, float | None]) -> str:
    return f"{number(wait['mean'], 3)}/{number(wait['p95'], 3)}"


def _speculative(finals: dict[str, float]) -> str:
    return f"{finals['used']:.0f}/{finals['unused']:.0f}"


def _late(late_s: dict[str, Any]) -> str:
    return f"{1000 * late_s['p99']:.0f}/{1000 * late_s['max']:.0f}" if late_s["n"] else report.NO_VALUE


ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "first text": lambda level: spread(level["first_text_s"]),
    "interim lag": lambda level: spread(level["interim_lag_s"]),
    "word first shown": lambda level: spread(level["word_seen_s"]),
    "word shown for good": lambda level: spread(level["word_shown_s"]),
    "word stable": lambda level: spread(level["word_stable_s"]),
    "final after end_s": lambda level: spread(level["final_s"]),
    "final after true end": lambda level: spread(level["final_true_s"]),
    "endpoint after true end": lambda level: spread(level["endpoint_s"]),
    "final after endpoint": lambda level: spread(level["after_endpoint_s"]),
    "utterances split inside": lambda level: str(level["wrong_splits"]),
    "WER %": lambda level: percent(level["wer"]),
    "missing words %": lambda level: percent(level["missing"]),
    "revised words %": lambda level: percent(level["revised_per_word"]),
    "connections resumed": lambda level: str(level["resumed"]),
    "failed sessions": lambda level: str(level["failed"]),
    "audio s": lambda level: number(level["audio_s"], 0),
    "server CPU s per audio s": lambda level: number(level["server"]["cpu_s_per_audio_s"], 3),
    "server cores": lambda level: number(level["server"]["cores"]),
    "server RSS MiB": lambda level: number(level["server"]["rss_mib"], 0),
    "windows per encoder call": lambda level: number(level["engine"]["encode_batch"]),
    "sequences per decode step": lambda level: number(level["engine"]["decode_batch"]),
    "decode steps per audio s": _steps,
    "the same without drafts": lambda level: _steps(level, with_drafts=False),
    "queue of finals, mean/p95": lambda level: _queue(level["engine"]["final_queue_s"]),
    "queue of interims, mean/p95": lambda level: _queue(level["engine"]["interim_queue_s"]),
    "speculative finals used/unused": lambda level: _speculative(level["engine"]["speculative_finals"]),
    "generator late, p99/max ms": lambda level: _late(level["generator"]["late_s"]),
    "generator cores": lambda level: number(level["generator"]["cores"]),
    "other processes' cores": lambda level: number(level["others_cores"]),
}


def complain(result: dict[str, Any]) -> list[str]:
    """Warnings about sessions that failed and about figures that are not reliable."""
    found = [result["ended_early"]] if result["ended_early"] else []
    for level in result["levels"]:
        mark = f"{level['streams']} streams: "
        found += [mark + each for each in [*level["problems"], *late_text(level["generator"]["late_s"]["max"])]]
    return found


def late_text(late_max_s: float | None) -> list[str]:
    """A warning if the load generator was late."""
    if (late_max_s or 0.0) <= LATE_S:
        return []
    return [f"the load generator was up to {late_max_s:.2f} s late; the figures are worse than the server's"]
