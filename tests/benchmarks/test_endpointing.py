"""The curve of endpointing: policies in audio time, counted against the truth."""

import json
from collections import deque
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from app.media.pcm import AudioFormat, Samples
from app.session import commands, events
from app.session.commands import Endpointing
from app.session.effects import Send, Submit
from app.session.endpointing import FRAME_SAMPLES
from app.session.session import Session, SessionConfig
from app.session.turn_taking import WEIGHTS, PauseEvidence, TurnModel
from benchmarks import endpointing, plot
from benchmarks.faults.sessions import write_wav
from benchmarks.pauses.counting import Count, label, with_truth
from benchmarks.pauses.fitting import fit
from benchmarks.pauses.simulation import Answers, End, Pause, Policy, simulate
from benchmarks.recordings import Recording, ReferenceUtterance, load_folder
from engine.api import SAMPLE_RATE
from tests.fakes import FakeTranscriber, LevelDetector, silence
from tests.fakes import speech as words
from tests.small_model import SMALL_MODEL

FIXED = Policy("fixed", Endpointing(silence_ms=500))
ADAPTIVE = Policy("adaptive", Endpointing(mode="adaptive"), TurnModel())
AUDIO = np.concatenate((silence(0.4), words([1, 2, 3]), silence(0.8), words([4, 5]), silence(2.0)))
"""Words of 200 ms and the gaps between them, of which the engine of the tests writes no punctuation."""


def seconds(position: int) -> float:
    return position / SAMPLE_RATE


def voiced(*spans: tuple[float, float], until_s: float) -> list[bool]:
    """Which frames of a recording hold speech."""
    return [any(start <= at * 0.02 < end for start, end in spans) for at in range(round(until_s / 0.02))]


async def test_a_fixed_silence_ends_utterances_without_asking(tmp_path: Path) -> None:
    engine = FakeTranscriber()
    are_voiced = voiced((0.4, 1.0), (1.8, 2.4), until_s=4.0)
    found = await simulate(AUDIO, are_voiced, FIXED, Answers(engine, tmp_path / "answers.json", "en"))
    assert [(seconds(end.speech_until), seconds(end.position)) for end in found.ends] == [(1.0, 1.5), (2.4, 2.9)]
    assert not engine.windows and not found.pauses


class SameAnswer(Answers):
    """An engine that finds the same text in every window."""

    def __init__(self, text: str) -> None:
        super().__init__(FakeTranscriber(), Path("unused"), "en")
        self._text = text

    async def ask(self, samples: Samples) -> PauseEvidence:
        return PauseEvidence(text=self._text, language="en", last_text_logprob=-0.05)


async def test_the_silence_follows_from_the_text() -> None:
    """The same pause of 800 ms ends a sentence, and goes on within one."""
    are_voiced = voiced((0.4, 1.0), (1.8, 2.4), until_s=4.4)
    first, second = (await simulate(AUDIO, are_voiced, ADAPTIVE, SameAnswer(" I see."))).ends
    assert (seconds(first.speech_until), seconds(second.speech_until)) == (1.0, 2.4)
    assert first.position - first.speech_until == second.position - second.speech_until < 0.4 * SAMPLE_RATE
    (only,) = (await simulate(AUDIO, are_voiced, ADAPTIVE, SameAnswer(" My number is"))).ends
    assert seconds(only.speech_until) == 2.4 and seconds(only.position) > 3.3


async def test_a_late_answer_ends_an_utterance_late() -> None:
    """The silence can be no shorter than the pause and the engine's time; the usual one holds until the answer."""
    are_voiced = voiced((0.4, 1.0), until_s=3.0)
    outcomes = [await simulate(AUDIO, are_voiced, ADAPTIVE, SameAnswer(" Yes."), ms * 16) for ms in (0, 300, 900)]
    at_once, late, too_late = (seconds(each.ends[0].position) for each in outcomes)
    assert at_once < late and (late, too_late) == pytest.approx((1.4, 1.5))


async def test_a_session_ends_where_the_simulation_does() -> None:
    """The same audio, detector and engine give the same endpoints."""
    engine, config = FakeTranscriber(), SessionConfig(make_detector=LevelDetector, speculates=True)
    session = Session("bench", engine.info, config)
    start = commands.Start(audio=AudioFormat("pcm_f32le"), language="en", endpointing=ADAPTIVE.endpointing)
    waiting, ends_s = deque(session.receive(start)), []
    for at in range(0, len(AUDIO), FRAME_SAMPLES):
        waiting.extend(session.receive(commands.Audio(AUDIO[at : at + FRAME_SAMPLES].tobytes())))
        while waiting:
            match waiting.popleft():
                case Send(events.Endpoint(end_s=end_s)):
                    ends_s.append(end_s)
                case Submit(job, window):
                    async with engine.submit(window) as answers:
                        async for answer in answers:
                            waiting.extend(session.engine_event(job, answer))
    are_voiced = [
        LevelDetector().is_speech(AUDIO[at : at + FRAME_SAMPLES]) for at in range(0, len(AUDIO), FRAME_SAMPLES)
    ]
    found = await simulate(AUDIO, are_voiced, ADAPTIVE, Answers(engine, Path("unused"), "en"))
    assert ends_s and [round(seconds(end.position), 3) for end in found.ends] == ends_s
    # Neither is the usual silence.
    assert found.ends[-1].position - found.ends[-1].speech_until > 0.6 * SAMPLE_RATE


async def test_answers_are_kept_for_the_next_run(tmp_path: Path) -> None:
    engine, file = FakeTranscriber(), tmp_path / "answers.json"
    are_voiced = voiced((0.4, 1.0), (1.8, 2.4), until_s=4.0)
    for _ in range(2):
        answers = Answers(engine, file, "en")
        await simulate(AUDIO, are_voiced, ADAPTIVE, answers)
        answers.save()
    assert len(engine.windows) == 2


def test_endpoints_are_right_or_split_an_utterance() -> None:
    """What a split interrupts is what the nearest pause interrupts; a second endpoint in one silence counts once."""
    number = ReferenceUtterance("my number is one two", ((1.0, 2.0), (2.5, 3.0), (3.6, 4.0)), ("sentence", "number"))
    other = ReferenceUtterance("yes", ((6.0, 6.5),))
    ends = [End(*(round(s * SAMPLE_RATE) for s in span)) for span in ((2.0, 2.4), (3.1, 3.5), (4.0, 4.5), (4.1, 5.0))]
    count = Count()
    count.add([number, other], ends, "sentence")
    assert (count.splits, count.n_utterances, count.n_joined) == ({"sentence": 1, "number": 1}, 2, 1)
    assert count.waited_s == pytest.approx([0.5]) and count.late_s == pytest.approx([0.5])
    labels = [
        label([number, other], Pause(round(s * SAMPLE_RATE), PauseEvidence(text=""))) for s in (0.5, 1.4, 2.1, 4.1)
    ]
    assert labels == [None, None, "sentence", "end"]


def test_a_clip_without_times_is_one_utterance() -> None:
    """Its speech is where it is loud, and its kind says what its pauses interrupt."""
    clip = Recording("clip", np.concatenate((silence(0.5), words([1, 2]), silence(1.0))), "w1 w2")
    (utterance,) = with_truth(clip, "synth-number").utterances
    assert utterance.text == "w1 w2" and utterance.start_s == pytest.approx(0.5, abs=0.05)
    assert utterance.end_s < 1.2 and utterance.pause_kinds == ()


def test_weights_are_fitted() -> None:
    """Punctuation tells ends from pauses, and a number that is cut costs more than an end that is late."""
    sentences = [("end", PauseEvidence(text=" Yes.")), ("sentence", PauseEvidence(text=" And"))] * 20
    found = fit(sentences)
    assert set(found) == set(WEIGHTS) and found["closed"] > 1 > found["bias"]
    digits = PauseEvidence(text=" 1 2.", language="en")
    numbers = [("end", digits), ("number", digits), ("end", PauseEvidence(text=" Yes."))] * 20
    assert TurnModel(fit(numbers)).confidence(digits) < 0.35


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One recording with an utterance that has a pause, and a manifest that says what the pause interrupts."""
    recording = Recording("a.wav", AUDIO, "w1 w2")
    write_wav(recording, tmp_path / recording.name)
    times = [
        {"start": 0.4, "end": 2.3, "speech": [[0.4, 1.0], [1.8, 2.3]], "text": "w1 w2", "pause_kinds": ["number"]},
    ]
    (tmp_path / "a.json").write_text(json.dumps({"utterances": times}))
    line = {"file": "a.wav", "kind": "calls", "text": "w1 w2", "segments": "a.json"}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path


def test_kinds_of_pauses_are_read_from_the_manifest(folder: Path) -> None:
    (recording,) = load_folder(folder, "calls")
    assert recording.utterances[0].pause_kinds == ("number",)


def test_the_command_writes_the_curve(folder: Path) -> None:
    """With the small model; the picture is drawn where matplotlib is installed."""
    arguments = ["--audio", str(folder), "--json", str(folder / "out.json"), "--answers", str(folder / "answers.json")]
    arguments += ["--kinds", "calls", "--fixed-ms", "300,500", "--thresholds", "20"]
    arguments += ["--model", SMALL_MODEL]
    ran = CliRunner().invoke(endpointing.main, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    rows = json.loads((folder / "out.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["fixed 300 ms", "fixed 500 ms", "adaptive 0.2"]
    assert rows[0]["pauses"] == {"sentence": 0, "number": 1, "spelling": 0}
    assert (
        plot.split_share(rows[0], ("number", "spelling")) in (0.0, 100.0)
        and plot.split_share(rows[0], ("sentence",)) == 0
    )
    pytest.importorskip("matplotlib")
    ran = CliRunner().invoke(plot.main, [str(folder / "out.json")])
    assert ran.exit_code == 0 and (folder / "out.svg").read_text().startswith("<?xml")


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="expected a folder with a manifest"):
        endpointing.load(tmp_path, ["calls"], "")
