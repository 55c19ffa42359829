"""Collects the recordings that the embedded model was trained on: `python -m training.recordings OUTPUT`.

People's voices come from packages of Debian 12, which must be installed: asterisk-core-sounds-{en,es,fr,it,ru}-g722,
asterisk-prompt-{es-co,fr-armelle,it-menardi-wav} and tuxpaint-stamps-default. Prompts of one voice are joined into
recordings of up to 28 s.
"""

import re
import sys
import wave
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from tutti_server.engine.api import SAMPLE_RATE

PROMPTS = Path("/usr/share/asterisk/sounds")
STAMPS = Path("/usr/share/tuxpaint/stamps")
MAX_MINUTES = defaultdict(
    lambda: 7, en_US_f_Allison=99, es_MX_f_Allison=10, fr_CA_f_June=10, fr=8, es=5, it_IT_f_Menardi=8,
    ru_RU_f_IvrvoiceRU=8,
)  # fmt: skip
"""Of a voice or a language; all of English."""
LENGTHS_S = (6, 28)
PAUSES_S = (0.15, 0.9)
MIN_S, MIN_PEAK = 0.5, 0.02

Samples = NDArray[np.float32]


def main() -> None:
    """Write a folder of WAV files for English prompts, and one for all other languages."""
    output, rng = Path(sys.argv[1]), np.random.default_rng(1)
    for voice, files in sorted(voices().items()):
        folder = output / ("prompts" if voice.startswith("en_US") else "languages")
        folder.mkdir(parents=True, exist_ok=True)
        clips = [clip for file in files if (clip := decode(file)) is not None]
        left_s = 60.0 * MAX_MINUTES[voice]
        for number, joined in enumerate(join(clips, rng)):
            write(folder / f"{voice}-{number:03}.wav", joined)
            if (left_s := left_s - len(joined) / SAMPLE_RATE) <= 0:
                break


def voices() -> dict[str, list[Path]]:
    """The files of each voice of Asterisk, and of each language of Tux Paint."""
    found: dict[str, dict[Path, Path]] = defaultdict(dict)
    for file in sorted(PROMPTS.rglob("*")):
        voice, *rest = file.relative_to(PROMPTS).parts
        if rest and "silence" not in rest and file.suffix in {".g722", ".wav", ".gsm"} and not file.is_symlink():
            found[voice].setdefault(file.with_suffix(""), file)
    for file in sorted(STAMPS.rglob("*.ogg")):
        if spoken := re.search(r"_desc(?:_([a-z]{2}(?:_[A-Z]{2})?))?$", file.stem):
            found[f"tuxp-{spoken[1] or 'en'}"][file] = file
    return {voice: list(files.values()) for voice, files in found.items()}


def decode(file: Path) -> Samples | None:
    """A recording at 16 kHz; `None` if it is too short, silent or broken."""
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
    try:
        with av.open(file, format="g722" if file.suffix == ".g722" else None, metadata_errors="ignore") as opened:
            frames = [frame for each in opened.decode(audio=0) for frame in resampler.resample(each)]
    except (av.error.FFmpegError, IndexError):
        return None
    samples = np.concatenate([frame.to_ndarray()[0] for frame in frames]) if frames else np.zeros(0, np.float32)
    return samples if len(samples) >= MIN_S * SAMPLE_RATE and np.abs(samples).max() >= MIN_PEAK else None


def join(clips: list[Samples], rng: np.random.Generator) -> Iterator[Samples]:
    """Recordings of a few clips in a mixed order, with pauses; the last one may be short, and is left out."""
    parts: list[Samples] = []
    target = rng.integers(*LENGTHS_S) * SAMPLE_RATE
    for index in rng.permutation(len(clips)):
        clip = clips[index][: LENGTHS_S[1] * SAMPLE_RATE]
        if parts and sum(map(len, parts)) + len(clip) > target:
            yield np.concatenate(parts)
            parts, target = [], rng.integers(*LENGTHS_S) * SAMPLE_RATE
        parts += [clip, np.zeros(int(rng.uniform(*PAUSES_S) * SAMPLE_RATE), np.float32)]


def write(path: Path, samples: Samples) -> None:
    """Write 16-bit WAV."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(np.clip(np.rint(samples * 32767), -32768, 32767).astype("<i2").tobytes())


if __name__ == "__main__":
    main()
