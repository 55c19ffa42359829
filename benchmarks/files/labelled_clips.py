"""Clips with a transcript for each channel, grouped by kind: from a manifest, or the bundled ones."""

import io
import json
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import click
import numpy as np
import soxr
from numpy.typing import NDArray

from benchmarks.recordings import REPOSITORY, load_bundled
from tutti_server.app.media.pcm import Samples, decode_samples
from tutti_server.engine.api import SAMPLE_RATE

Pcm = NDArray[np.int16]
DEFAULT_MANIFEST = REPOSITORY.parent / "shared" / "audio" / "manifest.jsonl"
"""The manifest that is used if none is named, where it exists."""
BUNDLED_KIND = "synth-bundled"
BUNDLED_ROW_S = 30.0
N_BUNDLED = 4
"""Number of such rows. Each begins with a different clip."""
DETECTED_KIND = "human-multilingual"
"""The kind whose language is never named, so that it is detected."""
NOT_SUMMED = ("human-nonnative",)
"""Human kinds that are not part of the sum: their transcripts leave hesitations out."""
LEAD_S = 0.09
"""Each further version of a clip begins this much later: the words lie elsewhere in the model's frames."""
GAINS = (0.7, 1.0, 0.5)
NOISE_DB = -35.0
"""Noise, beside the level of the clip, in the versions that are not quieter."""
TELEPHONE_RATE = 8000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Clip:
    """Audio at 16 kHz with its transcript. It has 16 bits so that every engine receives identical samples."""

    name: str
    kind: str
    channels: tuple[Pcm, ...]
    texts: tuple[str, ...]
    """The transcript of each channel; empty for a channel without speech."""
    language: str = "en"
    is_detected: bool = False
    original: str = ""
    """The name of the clip that this is another version of; empty if it is none."""

    @property
    def audio_s(self) -> float:
        return len(self.channels[0]) / SAMPLE_RATE

    @property
    def named_language(self) -> str | None:
        """The language that systems receive with the clip; `None` where they detect it."""
        return None if self.is_detected or self.kind == DETECTED_KIND else self.language

    @property
    def has_speech(self) -> bool:
        return any(self.texts)


def read_manifest(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON Lines file that have a transcript, which may be empty."""
    lines = []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
            if line.strip():
                lines.append(json.loads(line))
                if not (isinstance(lines[-1], dict) and {"file", "text"} <= lines[-1].keys()):
                    raise click.ClickException(f"{path}:{number}: expected an object with file and text")
    except OSError as error:
        raise click.ClickException(f"expected a manifest at {path}: {error.strerror}") from error
    except ValueError as error:
        raise click.ClickException(f"{path}:{number}: expected JSON: {error}") from error
    # Audio without a transcript has the text null.
    return [line for line in lines if line["text"] is not None]


def headline_kinds(path: Path) -> list[str]:
    """The kinds of a manifest that a headline may use: without synthetic voices and `NOT_SUMMED`, or else all."""
    lines = read_manifest(path if path.is_file() else path / "manifest.jsonl")
    kinds = list(dict.fromkeys(line.get("kind", "") for line in lines))
    return [kind for kind in kinds if "synth" not in kind and kind not in NOT_SUMMED] or kinds


def select_kinds(lines: list[dict[str, Any]], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of these kinds, or all lines if no kind is named."""
    present = {line.get("kind", "") for line in lines}
    if unknown := [kind for kind in kinds if kind not in present]:
        expected = ", ".join(sorted(present)) or "none, it lists no transcript"
        raise click.ClickException(f"kinds in the manifest: {expected}; got {', '.join(unknown)}")
    return [line for line in lines if not kinds or line.get("kind", "") in kinds]


def load_clips(path: Path, kinds: Sequence[str] = ()) -> list[Clip]:
    """The clips in a manifest, or in `manifest.jsonl` of a folder. Channels without transcripts are mixed."""
    manifest = path if path.is_file() else path / "manifest.jsonl"
    clips = []
    for line in select_kinds(read_manifest(manifest), kinds):
        kind = line.get("kind", "")
        texts = tuple(line.get("channel_text") or (line["text"],))
        channels = read_pcm(manifest.parent / line["file"], is_mixed=len(texts) == 1)
        if len(channels) != len(texts):
            raise click.ClickException(f"{line['file']}: {len(texts)} texts for {len(channels)} channels")
        language = line.get("lang", "en")
        clips.append(Clip(name=line["file"], kind=kind, channels=channels, texts=texts, language=language))
    return clips


def choose_clips(manifest: Path | None, kinds: str) -> list[Clip]:
    """The clips of a manifest or its folder, of `DEFAULT_MANIFEST`, or the bundled ones where there is none."""
    manifest = manifest or (DEFAULT_MANIFEST if DEFAULT_MANIFEST.exists() else None)
    if manifest is None:
        if kinds:
            raise click.UsageError("--kinds makes no sense without --manifest: all bundled clips have the same kind")
        return bundled_clips()
    named = [kind for kind in kinds.split(",") if kind]
    return load_clips(manifest, named or headline_kinds(manifest))


def in_versions(clip: Clip, n: int) -> Iterator[Clip]:
    """The clip, and versions of it that people hear as the same: later, quieter, or in a little noise.

    A model's errors on a few words change by chance with each of them, so that more versions show what is not chance.
    """
    yield clip
    for version in range(1, n):
        gain = GAINS[(version - 1) % len(GAINS)]
        lead = np.zeros(round(version * LEAD_S * SAMPLE_RATE))
        random = np.random.default_rng(version)
        channels = []
        for channel in clip.channels:
            noise_level = np.sqrt(np.mean(np.square(channel, dtype=np.float64))) * 10 ** (NOISE_DB / 20) * (gain == 1)
            changed = np.concatenate([lead, gain * channel + noise_level * random.standard_normal(len(channel))])
            channels.append(np.rint(changed).clip(-32_768, 32_767).astype(np.int16))
        yield replace(clip, name=f"{clip.name}, version {version + 1}", channels=tuple(channels), original=clip.name)


def by_telephone(clip: Clip) -> Clip:
    """The clip as a telephone has it: 8,000 samples a second, each one of the 256 values of G.711 mu-law."""
    values = np.sort(decode_samples(bytes(range(256)), "mulaw"))
    limits = (values[1:] + values[:-1]) / 2

    def changed(channel: Pcm) -> Pcm:
        narrow = soxr.resample(channel.astype(np.float32) / 32768, SAMPLE_RATE, TELEPHONE_RATE)
        return _to_pcm(soxr.resample(values[np.searchsorted(limits, narrow)], TELEPHONE_RATE, SAMPLE_RATE))

    return replace(clip, channels=tuple(map(changed, clip.channels)))


def bundled_clips() -> list[Clip]:
    """Rows of bundled clips, each as one clip."""
    rows = load_bundled(BUNDLED_ROW_S, N_BUNDLED)
    return [Clip(name=row.name, kind=BUNDLED_KIND, channels=(_to_pcm(row.samples),), texts=(row.text,)) for row in rows]


def read_pcm(file: Path, *, is_mixed: bool) -> tuple[Pcm, ...]:
    """The channels of a file at 16 kHz, or only their mix."""
    try:
        with av.open(str(file)) as container:
            stream = container.streams.audio[0]
            layout = "mono" if is_mixed else stream.layout
            resampler = av.AudioResampler(format="fltp", layout=layout, rate=SAMPLE_RATE)
            frames = [out for frame in container.decode(stream) for out in resampler.resample(frame)]
            frames += resampler.resample(None)
    except (av.FFmpegError, OSError) as error:
        raise click.ClickException(f"{file}: expected audio: {error}") from error
    # (channels, samples)
    return tuple(_to_pcm(np.concatenate([frame.to_ndarray() for frame in frames], axis=1)))


def to_wav(channel: Pcm) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(channel.astype("<i2").tobytes())
    return buffer.getvalue()


def samples_to_wav(samples: Samples) -> bytes:
    """The same of samples from -1 to 1."""
    return to_wav(_to_pcm(samples))


def interleaved(channels: Sequence[Pcm]) -> bytes:
    """The bytes of a multi-channel stream, one sample of each channel after the other."""
    return np.stack(channels, axis=1).astype("<i2").tobytes()


def _to_pcm(samples: NDArray[np.float32]) -> Pcm:
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
