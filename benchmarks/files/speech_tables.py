"""The tables of `benchmarks.real_speech`, from its result."""

from typing import Any

from benchmarks.report import NO_VALUE, Table, number, percent


def tables(result: dict[str, Any]) -> list[Table]:
    """All tables that have rows, the most important first."""
    found = [errors_table(result), differences_table(result), usage_table(result)]
    return [table for table in found if table.rows]


def errors_table(result: dict[str, Any]) -> Table:
    """Word error rates: one row for each kind, one column for each system; then words where there is no speech."""
    systems = _measured(result)
    rows = [
        (kind, str(of["files"]), str(of["words"]["words"]), *(percent(each["kinds"][kind]["wer"]) for each in systems))
        for kind, of in (systems[0]["kinds"] if systems else {}).items()
    ]
    if systems and (silent := systems[0]["invented"])["files"]:
        heading = f"words invented in {silent['files']} files, {silent['audio_s'] / 60:.1f} minutes without speech"
        rows.append((heading, "", "", *(str(each["invented"]["n_words"]) for each in systems)))
    return Table(f"Word errors in %, {result['model']}", ("", "files", "words", *map(_heading, systems)), rows)


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


def usage_table(result: dict[str, Any]) -> Table:
    """Processor time and failures: one row for each system."""
    audio_s = result["audio_s"]
    rows = [
        (
            each["title"],
            number(None if each["cpu_s"] is None else each["cpu_s"] / audio_s, 3),
            str(len(each["failures"])),
        )
        for each in _measured(result)
    ]
    return Table(
        f"Processor time for {audio_s / 60:.1f} min of audio, {result['threads']} threads",
        ("system", "CPU s per\naudio s", "files\nfailed"),
        rows,
    )


def _measured(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in result["systems"].values() if each["state"] == "measured"]


def _heading(system: dict[str, Any]) -> str:
    return str(system["title"]).replace(" ", "\n", 1)
