"""The record of a call as JSON and as subtitles with speakers."""

from typing import Any

from tutti_server.app.files.call_record import CallRecord, SpeakerShare, Turn
from tutti_server.app.files.subtitles import DEFAULT_LAYOUT, Cue, CueCutter, CueLayout, readable
from tutti_server.app.languages import joined

VERSION = 1
"""Changes when a field changes its meaning or goes. Fields may come."""


def as_json(record: CallRecord) -> dict[str, Any]:
    """The record as an object. `docs/call_records.md` describes its fields."""
    return {
        "type": "call_record",
        "version": VERSION,
        "duration_s": round(record.duration_s, 3),
        "silence_s": round(record.silence_s, 3),
        "silence_share": _share(record.silence_s, record.duration_s),
        "overlap_s": round(record.overlap_s, 3),
        "speakers": [_speaker(each, record) for each in record.speakers],
        "interruptions": [{"at_s": round(each.at_s, 3), "by": each.by, "of": each.of} for each in record.interruptions],
        "redactions": _redactions(record),
        "turns": [_turn(each) for each in record.turns],
    }


def as_cues(record: CallRecord, layout: CueLayout = DEFAULT_LAYOUT, *, names_speakers: bool = False) -> list[Cue]:
    """The text as subtitles in the order of their times, each with its speaker. Those of two speakers may overlap."""
    cutters: dict[str, CueCutter] = {}
    found: list[Cue] = []
    for turn in record.turns:
        cutter = cutters.setdefault(turn.speaker, CueCutter(turn.speaker, layout=layout, names_speaker=names_speakers))
        for each in turn.stretches:
            found += cutter.cut(each)
    return readable(sorted(found, key=lambda cue: cue.start_ms))


def _speaker(share: SpeakerShare, record: CallRecord) -> dict[str, Any]:
    return {
        "name": share.name,
        "talk_s": round(share.talk_s, 3),
        "talk_share": _share(share.talk_s, record.duration_s),
        "words": share.n_words,
        "words_per_minute": round(60 * share.n_words / share.talk_s, 1) if share.talk_s else 0.0,
        "turns": share.n_turns,
        "longest_turn_s": round(share.longest_turn_s, 3),
        "interruptions": sum(each.by == share.name for each in record.interruptions),
    }


def _redactions(record: CallRecord) -> list[dict[str, Any]]:
    found = [
        {
            "kind": each.kind,
            "speaker": turn.speaker,
            "start_s": round(each.start_s, 3),
            "end_s": round(each.end_s, 3),
        }
        for turn in record.turns
        for stretch in turn.stretches
        for each in stretch.redactions
    ]
    return sorted(found, key=lambda each: (each["start_s"], each["end_s"]))


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "speaker": turn.speaker,
        "start_s": round(turn.start_s, 3),
        "end_s": round(turn.end_s, 3),
        "text": joined(each.text for each in turn.stretches),
        "words": [
            {"word": word.text, "start_s": word.start_s, "end_s": word.end_s, "confidence": word.confidence}
            for each in turn.stretches
            for word in each.words
        ],
    }


def _share(part_s: float, whole_s: float) -> float:
    return round(part_s / whole_s, 4) if whole_s else 0.0
