"""The tables of `benchmarks.real_speech`, from its result."""

from collections.abc import Callable
from typing import Any

from benchmarks.report import NO_VALUE, Table, number, percent

Read = Callable[[dict[str, Any]], str]


def tables(result: dict[str, Any]) -> list[Table]:
    """All tables that have rows, the most important first."""
    found = [
        errors_table(result),
        counts_table(result),
        differences_table(result),
        invented_table(result),
        invented_texts_table(result),
        word_starts_table(result),
        languages_table(result),
        usage_table(result),
    ]
    return [table for table in found if table.rows]


def errors_table(result: dict[str, Any]) -> Table:
    """Word error rates: one row for each kind, one column for each system."""
    return _by_kind(result, f"Word errors in %, {result['model']}", lambda found: percent(found["wer"]))


def counts_table(result: dict[str, Any]) -> Table:
    """Substituted, missing and inserted words: one row for each kind, one column for each system."""

    def read(found: dict[str, Any]) -> str:
        return "/".join(str(found["words"][name]) for name in ("substituted", "missing", "inserted"))

    return _by_kind(result, "Words substituted/deleted/inserted", read)


def differences_table(result: dict[str, Any]) -> Table:
    """Differences of word error rates with their intervals: a row for each other system, a column for each of ours."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for each in result["differences"]:
        rows.setdefault((each["group"], each["theirs"]), {})[each["ours"]] = (
            f"{each['points']:+.1f} ({each['low']:+.1f} to {each['high']:+.1f})"
        )
    ours = list(dict.fromkeys(each["ours"] for each in result["differences"]))
    systems = result["systems"]
    return Table(
        f"tutti minus another system, points of word errors (95 % of {result['n_resamples']:,} resamples of clips)",
        ("", "beside", *(_heading(systems[name]) for name in ours)),
        [
            (group, systems[theirs]["title"], *(cells.get(name, NO_VALUE) for name in ours))
            for (group, theirs), cells in rows.items()
        ],
    )


def invented_table(result: dict[str, Any]) -> Table:
    """Words where there is no speech: one row for each system."""
    return Table(
        "Words invented where there is no speech",
        ("system", "files", "minutes", "files\nwith words", "words", "words\nper minute"),
        [
            (
                each["title"],
                str(of["files"]),
                number(of["audio_s"] / 60, 1),
                str(len(of["texts"])),
                str(of["n_words"]),
                number(of["per_minute"], 1),
            )
            for each in _measured(result)
            if (of := each["invented"])["files"]
        ],
    )


def invented_texts_table(result: dict[str, Any]) -> Table:
    """The invented texts themselves."""
    return Table(
        "What was invented",
        ("file", "system", "text"),
        [
            (name, each["title"], text.replace("|", "\\|"))
            for each in _measured(result)
            for name, text in each["invented"]["texts"].items()
        ],
    )


def word_starts_table(result: dict[str, Any]) -> Table:
    """How far the starts of equal words are apart: one row for each pair of systems that time words."""
    systems = result["systems"]
    return Table(
        "Starts of equal words, seconds apart",
        ("", "words", "median", "p95", "largest", "later than the\nother by (median)"),
        [
            (
                f"{systems[each['ours']]['title']} and {systems[each['theirs']]['title']}",
                str(each["n"]),
                *(number(each[name], 3) for name in ("p50", "p95", "max", "signed_p50")),
            )
            for each in result["word_starts"]
        ],
    )


def languages_table(result: dict[str, Any]) -> Table:
    """The detected languages: one row for each system."""
    return Table(
        "Languages detected",
        ("system", "files", "right", "wrong"),
        [
            (
                each["title"],
                str(of["files"]),
                str(of["right"]),
                "; ".join(f"{name}: {what}" for name, what in of["wrong"].items()) or NO_VALUE,
            )
            for each in _measured(result)
            if (of := each["languages"])["files"]
        ],
    )


def usage_table(result: dict[str, Any]) -> Table:
    """Processor time, time and failures: one row for each system."""
    audio_s = result["audio_s"]
    rows = [
        (
            each["title"],
            number(each["cpu_s"], 1),
            number(None if each["cpu_s"] is None else each["cpu_s"] / audio_s, 3),
            number(each["wall_s"], 0),
            number(each["n_interims"] / audio_s) if each["n_interims"] else NO_VALUE,
            str(len(each["failures"])),
        )
        for each in _measured(result)
    ]
    return Table(
        f"Processor time for {audio_s / 60:.1f} min of audio, {result['threads']} threads",
        ("system", "CPU s", "CPU s per\naudio s", "s taken", "interims per\naudio s", "files\nfailed"),
        rows,
    )


def _by_kind(result: dict[str, Any], title: str, read: Read) -> Table:
    systems = _measured(result)
    kinds = systems[0]["kinds"] if systems else {}
    rows = [
        (
            kind,
            str(of["files"]),
            str(of["words"]["words"]),
            *(read(each["kinds"][kind]) for each in systems),
        )
        for kind, of in kinds.items()
    ]
    return Table(title, ("", "files", "words", *map(_heading, systems)), rows)


def _measured(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in result["systems"].values() if each["state"] == "measured"]


def _heading(system: dict[str, Any]) -> str:
    return str(system["title"]).replace(" ", "\n", 1)
