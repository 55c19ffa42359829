"""Deepgram's live messages, as they were recorded. `python -m tests.compat.test_deepgram_golden` records anew."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from tests.compat.conformance import approximated, supported
from tests.compat.exchange import golden, record, replay
from tests.fakes import MODEL, pcm
from tutti_server.app.dialects.deepgram.live_wire import Deepgram
from tutti_server.app.dialects.deepgram.metadata import Request
from tutti_server.app.dialects.deepgram.options import parse
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

LIVE = "deepgram-live"
PIECE_SAMPLES = SAMPLE_RATE // 10
PATHS = golden("deepgram")
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


def in_pieces(samples: Samples) -> Iterator[bytes]:
    for at in range(0, len(samples), PIECE_SAMPLES):
        yield pcm(samples[at : at + PIECE_SAMPLES])


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem, marks=SHOWS.get(path.stem, ())) for path in PATHS])
def test_messages_are_answered_as_recorded(path: Path) -> None:
    replay(path, dialect(path.stem), in_pieces)


if __name__ == "__main__":
    for each in PATHS:
        record(each, dialect(each.stem), in_pieces)
