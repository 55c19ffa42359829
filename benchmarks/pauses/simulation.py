"""Runs the detector and an endpointing policy over recordings, in audio time.

At a pause the engine is asked for the text so far, as a session asks it for a speculative final. Every repeated run
gives the same figures, whatever else the machine does. Answers are kept in a file, because policies ask for much the
same windows.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app.media.pcm import Samples
from app.session.commands import Endpointing
from app.session.endpointing import FRAME_SAMPLES, Endpointer, SpeechBegan, SpeechEnded, WebRtcDetector
from app.session.turn_taking import PauseEvidence, TurnModel, required_silence_ms
from engine import api
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES

PAUSE_SAMPLES = SAMPLE_RATE // 10
"""Samples without a voiced frame that make a pause, at which the engine is asked (100 ms)."""
PADDING_SAMPLES = SAMPLE_RATE * Endpointing().padding_ms // 1000
NO_SAMPLES: Samples = np.zeros(0, dtype=np.float32)


class ScriptedDetector:
    """Repeats what a detector has decided of every frame: policies do not change that."""

    memory_samples = 0

    def __init__(self, are_voiced: list[bool]) -> None:
        self._decisions: Iterator[bool] = iter(are_voiced)

    def is_speech(self, frame: Samples) -> bool:
        """See `SpeechDetector`."""
        return next(self._decisions)

    def set_threshold(self, threshold: float | None) -> None:
        """See `SpeechDetector`; the decisions are made."""

    def renew(self) -> None:
        """See `SpeechDetector`; the decisions are fixed."""


def find_voiced(samples: Samples) -> list[bool]:
    """What the default detector decides of every frame."""
    detector = WebRtcDetector()
    starts = range(0, len(samples) - FRAME_SAMPLES + 1, FRAME_SAMPLES)
    return [detector.is_speech(samples[start : start + FRAME_SAMPLES]) for start in starts]


class Answers:
    """What the engine finds in windows: from the file of an earlier run, or from the engine."""

    def __init__(self, engine: api.Transcriber, file: Path, language: str) -> None:
        """Read the file, if there is one. The language is that of all windows."""
        self._engine, self._file, self._language = engine, file, language
        self._known: dict[str, tuple[str, float | None]] = {}
        if file.exists():
            self._known = {key: (text, logprob) for key, (text, logprob) in json.loads(file.read_text()).items()}

    async def ask(self, samples: Samples) -> PauseEvidence:
        """The evidence of a window that ends in a pause."""
        key = hashlib.sha256(samples.tobytes() + f"{self._engine.info.name} {self._language}".encode()).hexdigest()
        if key not in self._known:
            options = api.DecodeOptions(language=self._language)
            async with self._engine.submit(api.Window(samples=samples, session="pauses", options=options)) as events:
                *_, done = [event async for event in events]
            assert isinstance(done, api.DoneEvent)
            self._known[key] = (done.text, done.last_text_logprob)
        text, logprob = self._known[key]
        return PauseEvidence(text=text, language=self._language, last_text_logprob=logprob)

    def save(self) -> None:
        """Write all answers to the file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._known))


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of endpointing. Without a model the silence is always the same."""

    title: str
    endpointing: Endpointing
    model: TurnModel | None = None
    asks: bool = False
    """Ask the engine without a model as well, to collect what it says."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause at which the engine was asked."""

    speech_until: int
    """Position after the last frame of speech, in samples."""
    evidence: PauseEvidence


@dataclass(frozen=True, slots=True)
class End:
    """An endpoint that a policy has found; positions in samples."""

    speech_until: int
    """Position after the last frame of speech."""
    position: int
    """Position at which the utterance ended."""


@dataclass(slots=True)
class Outcome:
    """What a policy did with one recording."""

    ends: list[End] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)


async def simulate(
    samples: Samples, are_voiced: list[bool], policy: Policy, answers: Answers, answer_samples: int = 0
) -> Outcome:
    """Run a policy over a recording.

    Args:
        samples: the recording.
        are_voiced: what the detector decides of its frames.
        policy: says how long a silence must be.
        answers: of the engine.
        answer_samples: how long the engine takes for an answer, in samples of audio that arrive meanwhile.
    """
    outcome = Outcome()
    endpointer = Endpointer(ScriptedDetector(are_voiced), policy.endpointing.silence_ms)
    asks = policy.asks or policy.model is not None
    window_start = last_end = 0
    answer: tuple[int, int] | None = None
    """When the answer arrives, and the silence that follows from it."""
    for is_voiced in are_voiced:
        change = endpointer.push(NO_SAMPLES)
        if isinstance(change, SpeechBegan):
            window_start = max(change.position - PADDING_SAMPLES, last_end)
        if is_voiced:
            answer = None
        if asks and endpointer.is_speaking and endpointer.position - endpointer.voiced_until == PAUSE_SAMPLES:
            start = max(window_start, endpointer.position - WINDOW_SAMPLES)
            evidence = await answers.ask(samples[start : endpointer.position])
            outcome.pauses.append(Pause(endpointer.speech_until, evidence))
            if policy.model:
                silence_ms = required_silence_ms(policy.model.confidence(evidence), policy.endpointing)
                answer = (endpointer.position + answer_samples, silence_ms)
        if answer and endpointer.is_speaking and endpointer.position >= answer[0]:
            change, answer = endpointer.require_silence(answer[1]), None
        if isinstance(change, SpeechEnded):
            outcome.ends.append(End(change.position, endpointer.position))
            last_end = endpointer.position
    return outcome
