"""Deepgram's live messages, as they were recorded. `python -m tests.compat.test_deepgram_golden` records anew."""

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from tests.compat.conformance import approximated, supported
from tests.compat.exchange import cases, golden, in_pieces, record, replay
from tests.fakes import MODEL
from tutti_server.app.dialects.deepgram.live_wire import Deepgram
from tutti_server.app.dialects.deepgram.metadata import Request
from tutti_server.app.dialects.deepgram.options import parse

LIVE = "deepgram-live"
RAW = "encoding=linear32&sample_rate=16000&"
QUERIES = {
    "interims": "interim_results=true&punctuate=true&vad_events=true&language=multi",
    "long_speech": "smart_format=true",
    "no_endpoints": "endpointing=false",
    "silence": "vad_events=true&utterance_end_ms=1000&interim_results=true",
    "unreadable": "extra=a:b",
    "utterance_end": "utterance_end_ms=1000&vad_events=true",
}
SHOWS = {
    "interims": [
        supported(LIVE, "interim_results"),
        supported(LIVE, "vad_events"),
    ],
    "utterance_end": [
        approximated(LIVE, "utterance_end_ms", how="counted from the last final word, after its utterance has ended")
    ],
    "finalize": [supported(LIVE, "Finalize")],
    "configure": [
        approximated(LIVE, "Configure", how="changes `keyterms`, and `punctuate` and `smart_format` in `features`")
    ],
}
"""What of the options an exchange shows."""


def dialect(name: str) -> Deepgram:
    options = parse(parse_qsl(RAW + QUERIES.get(name, "")), MODEL.languages, is_live=True)
    return Deepgram(options, Request("a-request", MODEL.name, "1.2.3", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))


@pytest.mark.parametrize("path", cases("deepgram", SHOWS))
def test_messages_are_answered_as_recorded(path: Path) -> None:
    replay(path, dialect(path.stem), in_pieces)


if __name__ == "__main__":
    for each in golden("deepgram"):
        record(each, dialect(each.stem), in_pieces)
