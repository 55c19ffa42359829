"""How much silence after speech must a final text be decoded with?

    python -m benchmarks.final_tail --audio FOLDER --markdown

Every utterance that the default detector finds, with 500 ms of silence to end it, is decoded several times: with all of
its audio, with some of the silence after its last voiced frame, and with some of the quiet after its last loud frame.
The lengths that the service uses are `TAIL_SAMPLES` and `FLUSH_TAIL_SAMPLES` in `app/session/speculation.py`.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from app.media.pcm import Samples
from app.session.endpointing import FRAME_SAMPLES, Endpointer, SpeechBegan, SpeechEnded, WebRtcDetector
from benchmarks import machine, report
from benchmarks.files.labelled_clips import Clip, Pcm, bundled_clips, load_clips
from benchmarks.options import CONTEXT_SETTINGS, audio_option, json_option, markdown_option
from benchmarks.report import NO_VALUE, Table, number
from benchmarks.scoring import WordErrors, word_errors, words
from engine import api
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from engine.checkpoint.catalog import EMBEDDED_MODEL
from engine.config import EngineConfig

SILENCE_MS = 500
PADDING_SAMPLES = 3 * SAMPLE_RATE // 10
"""Audio before an utterance that is decoded with it, as in a session."""


class Tail(NamedTuple):
    """What is decoded after the speech of an utterance."""

    kind: str
    """`all`; `silence`, after the last frame that the detector took for speech; `quiet`, after the last loud one."""
    length_ms: int = 0

    def __str__(self) -> str:
        return "all" if self.kind == "all" else f"{self.length_ms} ms of {self.kind}"


TAILS = (
    Tail("all"),
    *(Tail("silence", each) for each in (240, 160, 100, 60)),
    *(Tail("quiet", each) for each in (100, 80, 60, 40)),
)


class FoundUtterance(NamedTuple):
    """An utterance in a recording. All fields are positions in samples."""

    start: int
    loud_until: int
    voiced_until: int
    end: int

    def audio_end(self, tail: Tail) -> int:
        """Position after the audio that is decoded."""
        since = {"all": self.end, "silence": self.voiced_until, "quiet": self.loud_until}[tail.kind]
        return min(since + tail.length_ms * SAMPLE_RATE // 1000, self.end)


@dataclass(slots=True)
class TailScores:
    """The texts of one group of clips with one tail."""

    errors: WordErrors = field(default_factory=WordErrors)
    n_utterances: int = 0
    n_other_words: int = 0
    """Utterances whose words are not those with all audio."""


@click.command(context_settings=CONTEXT_SETTINGS)
@audio_option
@click.option("--kinds", default="", help="Kinds of the manifest to use, separated by commas. Default: all.")
@click.option("--model", default=EMBEDDED_MODEL, show_default=True)
@json_option("final_tail")
@markdown_option
def main(folder: Path | None, kinds: str, model: str, path: Path, markdown: bool) -> None:
    """Decode utterances with more and less of the silence after them, and count the word errors."""
    clips = load_clips(folder, [each for each in kinds.split(",") if each]) if folder else bundled_clips()
    groups = asyncio.run(measure([clip for clip in clips if clip.has_speech and clip.language == "en"], model))
    result: dict[str, Any] = {
        "benchmark": "final_tail",
        "schema": 1,
        **machine.describe(),
        "rows": [
            {
                "group": group,
                "tail": str(tail),
                "utterances": scores.n_utterances,
                "words": scores.errors.words,
                "wer": scores.errors.rate,
                "utterances_with_other_words": scores.n_other_words,
            }
            for group, by_tail in groups.items()
            for tail, scores in by_tail.items()
        ],
    }
    report.show([table(result)], result, as_markdown=markdown, path=path)


async def measure(clips: list[Clip], model: str) -> dict[str, dict[Tail, TailScores]]:
    """The scores of each group of kinds (the first word of their names), by tail."""
    from engine.engine import Engine

    groups: dict[str, dict[Tail, TailScores]] = {}
    async with Engine.start(EngineConfig(model=model, device="cpu")) as engine:
        for clip in clips:
            by_tail = groups.setdefault(clip.kind.split("-")[0], {tail: TailScores() for tail in TAILS})
            for channel, reference in zip(clip.channels, clip.texts, strict=True):
                await _add_channel(engine, channel, reference, by_tail)
    return groups


async def _add_channel(engine: api.Transcriber, channel: Pcm, reference: str, by_tail: dict[Tail, TailScores]) -> None:
    samples: Samples = np.concatenate((channel.astype(np.float32) / 32_768, np.zeros(SAMPLE_RATE, dtype=np.float32)))
    texts: dict[Tail, list[str]] = {tail: [] for tail in by_tail}
    for found in find_utterances(samples):
        start = max(found.start, found.end - WINDOW_SAMPLES)
        windows = (samples[start : max(found.audio_end(tail), start + FRAME_SAMPLES)].copy() for tail in by_tail)
        decoded = await asyncio.gather(*(_decode(engine, window, str(index)) for index, window in enumerate(windows)))
        for (tail, scores), text in zip(by_tail.items(), decoded, strict=True):
            texts[tail].append(text)
            scores.n_utterances += 1
            scores.n_other_words += words(text) != words(decoded[0])
    for tail, scores in by_tail.items():
        scores.errors += word_errors(reference, " ".join(texts[tail]))


def find_utterances(samples: Samples) -> Iterator[FoundUtterance]:
    """Yield the utterances of a recording, which ends with silence."""
    endpointer = Endpointer(WebRtcDetector(), SILENCE_MS)
    start, last_end = 0, 0
    for at in range(0, len(samples) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        match endpointer.push(samples[at : at + FRAME_SAMPLES]):
            case SpeechBegan(position):
                start = max(position - PADDING_SAMPLES, last_end)
            case SpeechEnded():
                last_end = endpointer.position
                yield FoundUtterance(start, endpointer.loud_until, endpointer.voiced_until, last_end)
            case None:
                pass


async def _decode(engine: api.Transcriber, samples: Samples, session: str) -> str:
    window = api.Window(samples=samples, session=session, options=api.DecodeOptions(language="en"))
    async with engine.submit(window) as engine_events:
        async for event in engine_events:
            if isinstance(event, api.DoneEvent):
                return event.text
    raise AssertionError("the window did not end")


def table(result: dict[str, Any]) -> Table:
    """The table: one row for each group and tail."""
    return Table(
        "Final texts by the silence that is decoded with them",
        ("", "audio after the speech", "utterances", "WER %", "with other words than with all"),
        [
            (
                row["group"],
                row["tail"],
                str(row["utterances"]),
                NO_VALUE if row["wer"] is None else number(100 * row["wer"], 2),
                str(row["utterances_with_other_words"]),
            )
            for row in result["rows"]
        ],
    )


if __name__ == "__main__":
    main()
