"""What the REST endpoint keeps of the engine's throughput: a real server around the fake engine, and the verdict."""

import asyncio
import multiprocessing
import wave
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO
from typing import Any

import av
import numpy as np
import pytest

from benchmarks import rest_throughput
from benchmarks.files.labelled_clips import to_wav
from benchmarks.rest_throughput import MAX_CLIP_S, complain, encoded, measure_service, speech_clips, table
from benchmarks.server import RunningServer
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, speech
from tutti_server.app.files.transcription import FILE_ENDPOINTING
from tutti_server.app.service.settings import Settings
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES, Endpointer, WebRtcDetector
from tutti_server.engine.api import SAMPLE_RATE


@pytest.mark.parametrize("clip_s", [7.0, MAX_CLIP_S])
def test_clips_are_speech_without_a_pause_to_cut_at(clip_s: float) -> None:
    """Each is one utterance, and so one window, to the detector that the service uses."""
    first, second = speech_clips(2, clip_s)
    assert len(first) == len(second) == round(clip_s * SAMPLE_RATE)
    assert not np.array_equal(first, second)
    for clip in speech_clips(8, clip_s):
        endpointer = Endpointer(WebRtcDetector(), FILE_ENDPOINTING.silence_ms)
        frames = range(0, len(clip) - FRAME_SAMPLES + 1, FRAME_SAMPLES)
        found = [event for at in frames if (event := endpointer.push(clip[at : at + FRAME_SAMPLES]))]
        assert len(found) == 1


def test_a_clip_in_flac_has_the_samples_of_the_wav() -> None:
    (clip,) = speech_clips(1, 1.0)
    with av.open(BytesIO(encoded(clip, "flac")), "r") as container:
        found = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])
    with wave.open(BytesIO(encoded(clip, "wav"))) as wav:
        assert np.array_equal(found, np.frombuffer(wav.readframes(wav.getnframes()), "<i2"))


async def test_every_request_is_answered_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_throughput, "_cpu_s", lambda server: 0.0)
    monkeypatch.setattr(rest_throughput, "SETTLED_S", 0.0)
    file = to_wav(np.round(speech([1, 2, 3]) * 32_767).astype(np.int16))
    async with asyncio.timeout(60), running(Settings(port=0), FakeTranscriber()) as server:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = await asyncio.to_thread(
                measure_service, RunningServer(server.http, None), pool, [file], 2, 5, processes=1
            )
    assert (found["answered"], found["failures"]) == (5, [])
    assert 0 < found["p50_s"] <= found["p95_s"]


GOOD: dict[str, Any] = {
    "model": "random:tiny",
    "concurrency": 2,
    "audio_s": 7.0,
    "container": "flac",
    "ratio": 0.9,
    "engine": {"requests_per_s": 10.0, "p50_s": 0.1, "p95_s": 0.2, "tokens_per_request": 30, "wrong_length": 0},
    "service": {
        "requests_per_s": 9.0,
        "p50_s": 0.1,
        "p95_s": 0.2,
        "answered": 8,
        "failures": [],
        "windows": 8.0,
        "tokens_per_request": 31.0,
        "cpu_s_per_request": 0.009,
    },
}


def test_a_good_run_has_nothing_to_complain_of() -> None:
    assert complain(GOOD) == []
    assert table(GOOD).rows[1] == ("service", "9.0", "0.100", "0.200", "31.0", "9.0")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"windows": 9.0}, "expected a window for each request, got 9 for 8"),
        ({"tokens_per_request": 35.0}, "tokens per request: 35.00 in the service, 30 in the engine"),
        ({"failures": ["HTTP 429"]}, "failed: HTTP 429"),
    ],
)
def test_other_work_and_failures_fail_the_run(changes: dict[str, Any], complaint: str) -> None:
    assert complain({**GOOD, "service": {**GOOD["service"], **changes}}) == [complaint]
