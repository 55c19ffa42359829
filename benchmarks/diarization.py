"""Measures the diarization error of the speaker network, on recordings with known turns.

    python -m benchmarks.diarization --audio AUDIO
    python -m benchmarks.diarization --audio AUDIO --live
    python -m benchmarks.diarization --audio AUDIO --weights voices.onnx --joins 0.5

Speech is found by the service's detector, and the speakers as for an uploaded file. Words do not take part. Where a
recording has a channel for each side, the same recording is also measured with a speaker for each channel. With
`--live` the speakers are found as in a live session: the last column is the error of the labels that text goes out
with, and the others are those after all revisions. The line under the table says what the network costs.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.diarization_error import DiarizationError, Turn, diarization_error
from benchmarks.live_diarization import live_speakers
from benchmarks.options import benchmark_command
from tutti_server.app.media.file_decoder import decode_pieces
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES, WebRtcDetector
from tutti_server.app.voices.file_speakers import MAX_SPEAKERS, Diarizer, Embed, Span
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.app.voices.speaker_model import SpeakerModel, load, load_onnx
from tutti_server.app.voices.speaker_network import DEFAULT_WEIGHTS
from tutti_server.engine.api import SAMPLE_RATE

PIECE_S = 0.3
"""Detected speech is cut into pieces of this length, and each gets a speaker."""
JOINED_S = 0.3
"""Shorter pauses in detected speech are filled."""
KINDS = ("human-long", "call-stereo-human", "synth-dialogue", "synth-call-stereo", "meeting-vad")
"""The kinds of recordings in a manifest that have speakers' turns."""


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    channels: list[Samples]
    """One for each side, at 16 kHz; one for all where there are no sides."""
    turns: list[Turn]

    @property
    def mono(self) -> Samples:
        mixed: Samples = np.sum(self.channels, axis=0, dtype=np.float32)
        return mixed


def speech_spans(samples: Samples) -> list[Span]:
    """Where the service's detector finds speech, in seconds."""
    detector, spans = WebRtcDetector(), list[Span]()
    for start in range(0, len(samples) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        if detector.is_speech(samples[start : start + FRAME_SAMPLES]):
            start_s, end_s = start / SAMPLE_RATE, (start + FRAME_SAMPLES) / SAMPLE_RATE
            if spans and start_s - spans[-1][1] < JOINED_S:
                spans[-1] = spans[-1][0], end_s
            else:
                spans.append((start_s, end_s))
    return [span for span in spans if span[1] - span[0] > 0.1]


async def diarized(samples: Samples, embed: Embed, thresholds: SpeakerThresholds) -> list[Turn]:
    """The turns in a recording of one channel, as the service finds them."""
    diarizer = Diarizer(embed)

    async def seconds() -> AsyncIterator[Samples]:
        for start in range(0, len(samples), SAMPLE_RATE):
            yield samples[start : start + SAMPLE_RATE]

    async for _ in diarizer.listen(seconds()):
        pass
    speech = speech_spans(samples)
    await diarizer.finish()
    speakers = diarizer.speakers(speech, thresholds, MAX_SPEAKERS)
    pieces = _pieces(speech)
    return _turns(pieces, [(speakers.speaking(*each) or (0, 0.0))[0] for each in pieces])


async def diarized_live(samples: Samples, embed: Embed, thresholds: SpeakerThresholds) -> tuple[list[Turn], list[Turn]]:
    """The turns as a live session finds them: as text goes out with them, and after all revisions."""
    pieces = _pieces(speech_spans(samples))
    first, last = await live_speakers(samples, embed, thresholds, MAX_SPEAKERS, pieces)
    return _turns(pieces, first), _turns(pieces, last)


def _pieces(speech: Sequence[Span]) -> list[Span]:
    """Speech in pieces of about `PIECE_S`."""
    return [
        each
        for start_s, end_s in speech
        for each in pairwise(np.linspace(start_s, end_s, max(2, round((end_s - start_s) / PIECE_S) + 1)).tolist())
    ]


def _turns(pieces: Sequence[Span], speakers: Sequence[int]) -> list[Turn]:
    """Pieces that touch and have one speaker are a turn."""
    turns: list[Turn] = []
    for (start_s, end_s), speaker in zip(pieces, map(str, speakers), strict=True):
        if turns and turns[-1].speaker == speaker and turns[-1].end_s == start_s:
            turns[-1] = Turn(turns[-1].start_s, end_s, speaker)
        else:
            turns.append(Turn(start_s, end_s, speaker))
    return turns


def by_channel(call: Call) -> list[Turn]:
    """The turns if each channel is a speaker."""
    spans = [(str(side), span) for side, samples in enumerate(call.channels) for span in speech_spans(samples)]
    return [Turn(start_s, end_s, side) for side, (start_s, end_s) in spans]


def recordings(audio: Path) -> Iterator[tuple[str, Call]]:
    """The recordings of a manifest that have speakers' turns, each with its kind."""
    for line in (audio / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        file = audio / entry["file"]
        if entry["kind"] not in KINDS or "segments" not in entry:
            continue
        listed = json.loads((audio / entry["segments"]).read_text())
        turns = [
            Turn(start, end, each["speaker"])
            for each in listed.get("turns", listed.get("utterances", []))
            for start, end in each.get("speech", [(each["start"], each["end"])])
        ]
        n_channels = entry.get("channels", 1)
        with file.open("rb") as stream:
            whole = np.concatenate(list(decode_pieces(stream, n_channels)))
        channels = list(whole.reshape(-1, n_channels).T)
        if len({turn.speaker for turn in turns}) > 1:
            yield entry["kind"], Call(entry["file"], channels, turns)


def _row(name: str, n_found: int | str, errors: Sequence[DiarizationError], sides: Sequence[DiarizationError]) -> str:
    total = _sum(errors)
    parts = (total.missed, total.false_alarm, total.confused)
    shares = " | ".join(f"{100 * each / max(total.speech, 1):.1f} %" for each in parts)
    channels = f"{100 * _sum(sides).rate:.1f} %" if sides else "-"
    return f"| {name} | {n_found} | {100 * total.rate:.1f} % | {shares} | {channels} |"


def _sum(errors: Sequence[DiarizationError]) -> DiarizationError:
    names = ("missed", "false_alarm", "confused", "speech")
    return DiarizationError(**{name: sum(getattr(each, name) for each in errors) for name in names})


def network(weights: Path, joins: float | None) -> SpeakerModel:
    """The speaker network in a file: that of tutti, or one as `--speaker-model` takes it."""
    if weights.suffix == ".onnx":
        if joins is None:
            raise click.UsageError("--joins: expected a cosine with an ONNX file, got none")
        return load_onnx(weights, SpeakerThresholds(joins=joins, knows=joins))
    model = load(weights)
    if model is None:
        raise click.UsageError(f"{weights}: expected the weights of a speaker network, got no file")
    return model if joins is None else replace(model, thresholds=replace(model.thresholds, joins=joins))


@dataclass(slots=True)
class TimedNetwork:
    """Embeds stretches, and adds up the time of the process while it does so; nothing else runs meanwhile."""

    embed_untimed: Embed
    n: int = 0
    cpu_s: float = 0.0

    async def embed(self, stretches: Sequence[Samples]) -> NDArray[np.float32]:
        begin_s = time.process_time()
        vectors = await self.embed_untimed(stretches)
        self.cpu_s += time.process_time() - begin_s
        self.n += len(stretches)
        return vectors


async def _measure(calls: Sequence[tuple[str, Call]], model: SpeakerModel, is_live: bool) -> Iterator[str]:
    rows, timed, audio_s = [], TimedNetwork(model.embed), 0.0
    for kind, group in groupby(calls, key=lambda each: each[0]):
        errors, sides, n = list[DiarizationError](), list[DiarizationError](), 0
        for _, call in group:
            mono = call.mono / max(1.0, float(np.abs(call.mono).max()))
            given = (mono.astype(np.float32), timed.embed, model.thresholds)
            first, turns = await diarized_live(*given) if is_live else ([], await diarized(*given))
            errors.append(diarization_error(call.turns, turns))
            if is_live:
                own = [diarization_error(call.turns, first)]
            else:
                own = [diarization_error(call.turns, by_channel(call))] if len(call.channels) > 1 else []
            sides += own
            n_found = len({turn.speaker for turn in turns})
            rows.append(_row(f"&nbsp;&nbsp;{call.name}", n_found, errors[-1:], own))
            n += 1
            audio_s += len(mono) / SAMPLE_RATE
        rows.append(_row(f"**{kind}** ({n})", "", errors, sides))
    cost = f"{1000 * timed.cpu_s / max(timed.n, 1):.0f} ms of CPU time a stretch, {1000 * timed.cpu_s / audio_s:.0f} ms"
    return iter([*rows, "", f"The network took {cost} a second of audio."])


@benchmark_command()
@click.option(
    "--audio", type=click.Path(path_type=Path, exists=True), required=True, help="Folder with a manifest.jsonl."
)
@click.option(
    "--weights",
    default=DEFAULT_WEIGHTS,
    type=click.Path(path_type=Path),
    help="Weights of the network, or an ONNX file.",
)
@click.option("--joins", type=click.FloatRange(0, 1), help="Two voices are one speaker from this cosine on.")
@click.option("--live", "is_live", is_flag=True, help="Find speakers as in a live session.")
def main(audio: Path, weights: Path, joins: float | None, is_live: bool) -> None:
    """Print a table in Markdown."""
    measured = sorted(recordings(audio), key=lambda each: KINDS.index(each[0]))
    if not measured:
        raise click.UsageError(f"--audio: expected recordings with the turns of several speakers, got none in {audio}")
    last = "as text goes out" if is_live else "a channel each"
    click.echo(f"| recordings | speakers | error | missed | false alarm | confused | {last} |")
    click.echo("|---|--:|--:|--:|--:|--:|--:|")
    for row in asyncio.run(_measure(measured, network(weights, joins), is_live)):
        click.echo(row)


if __name__ == "__main__":
    main()
