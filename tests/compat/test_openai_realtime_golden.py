"""OpenAI Realtime's golden exchanges, without a network.

The audio is 16 kHz in all of them, at which the made-up speech of `tests/fakes.py` is heard to the sample.
"""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from tests.compat.conformance import approximated, refused, supported
from tests.compat.exchange import PLAIN, cases, replay
from tests.compat.sentences import SENTENCES
from tests.fakes import MODEL
from tutti_server.app.dialects.openai.realtime_options import RealtimeSettings, named
from tutti_server.app.dialects.openai.realtime_session import RealtimeSession
from tutti_server.app.dialects.openai.realtime_wire import OpenAIRealtime
from tutti_server.app.media.pcm import Samples

DIALECT = "openai-realtime"
PIECE = 1600
ITEM = "conversation.item"
TRANSCRIPTION = f"{ITEM}.input_audio_transcription"
SHOWS = {
    "beta": [
        supported(DIALECT, "transcription_session.update (older shape)"),
        supported(DIALECT, f"{ITEM}.created (older shape)"),
    ],
    "changes": [supported(DIALECT, "session.update after audio")],
    "clear": [supported(DIALECT, "input_audio_buffer.clear")],
    "manual_commits": [
        supported(DIALECT, "turn_detection: null"),
        supported(DIALECT, "input_audio_buffer.commit"),
    ],
    "model_in_the_url": [
        approximated(
            DIALECT, "session.type: realtime", how="the server transcribes and does not answer; a warning says so"
        ),
        refused(
            DIALECT, "response.*, conversation.*, output_audio_buffer.*", how="an `error` event; the session continues"
        ),
    ],
    "server_vad": [
        supported(DIALECT, "session.created"),
        supported(DIALECT, "turn_detection: server_vad"),
        supported(DIALECT, f"{ITEM}.added, {ITEM}.done"),
        supported(DIALECT, f"{TRANSCRIPTION}.delta"),
        supported(DIALECT, "input_audio_buffer.speech_started, speech_stopped"),
        approximated(
            DIALECT,
            "transcription.model",
            how="with one model any name is accepted; a warning names the model that answers",
        ),
    ],
    "words_and_logprobs": [
        supported(DIALECT, f"{TRANSCRIPTION}.segment"),
        supported(DIALECT, "include: item.input_audio_transcription.words (ours)"),
        approximated(
            DIALECT,
            "include: item.input_audio_transcription.logprobs",
            how="one entry for each word, in `completed`",
        ),
    ],
}
"""What of the options an exchange shows."""


def as_appends(samples: Samples) -> list[str]:
    data = np.round(samples * 32768).astype("<i2")
    pieces = (data[at : at + PIECE].tobytes() for at in range(0, len(data), PIECE))
    return [
        json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(piece).decode()}) for piece in pieces
    ]


def dialect(path: Path) -> OpenAIRealtime:
    """The dialect for the URL and the headers that the name of the file stands for."""
    settings, warnings = named(RealtimeSettings(), "gpt-realtime" if "model" in path.stem else None, lambda _: MODEL)
    is_flat = path.stem.startswith("beta")
    session = RealtimeSession("x", settings, is_flat, lambda _: MODEL)
    return OpenAIRealtime(session, warnings=warnings, max_text_chars=1 << 20)


@pytest.mark.parametrize("path", cases(DIALECT, SHOWS))
def test_golden_exchanges(path: Path) -> None:
    # What was spoken decides about the ends of semantic turns.
    replay(path, dialect(path), as_appends, server=SENTENCES if path.stem == "model_in_the_url" else PLAIN)
