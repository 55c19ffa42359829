"""Makes the weights of the speaker network from those of Resemblyzer.

    pip download --no-deps resemblyzer==0.1.4 && unzip Resemblyzer-0.1.4-py3-none-any.whl resemblyzer/pretrained.pt
    python -m training.speakers resemblyzer/pretrained.pt AUDIO app/assets/tutti-speakers/speakers.npz

Nothing is trained. The weights are stored as float16, and the mean of people's embeddings and how one person's differ
are learnt from people in AUDIO, a folder with a `manifest.jsonl`: as recorded, on a telephone line and in a room.
Nobody of the recordings that tutti's errors are measured on is among them.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray

from tutti_server.app.media.file_decoder import decode_pieces
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.speaker_network import N_LAYERS, SIZE, NumpyNetwork
from tutti_server.engine.api import SAMPLE_RATE

Array = NDArray[np.float32]

SHA256 = "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"
"""Of `pretrained.pt` in the package."""
JUDGED = {
    *(f"librispeech-{number}" for number in (367, 533, 1998, 3005)), "vctk-p225", "vctk-p227",
}  # fmt: skip
"""The people of the recordings that errors are measured on."""
SEVERAL = {"commonvoice", "gcp-dialogflow", "ps-cards"}
"""Names in the manifest that may stand for several people, or for none."""
DERIVED = {"human-noisy", "human-telephone-8k"}
"""Kinds of recordings that are made of others."""
WINDOW_S, HOP_S, MAX_S = 1.5, 1.25, 40.0
SHORT_S, SHORT_HOP_S = 10.0, 0.75
"""Of a person with less speech, windows overlap more."""
EVENNESS = 2.0
"""How much of the mean variance is added to each: the more, the less directions of much variance are made smaller."""
JOINS, KNOWS = 0.28, 0.4
"""Chosen on calls of prompts and of the people in AUDIO: docs/results/speakers.md."""


@click.command()
@click.argument("pretrained", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("audio", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("output", type=click.Path(path_type=Path))
def main(pretrained: Path, audio: Path, output: Path) -> None:
    """Make the file of weights."""
    found = hashlib.sha256(pretrained.read_bytes()).hexdigest()
    if found != SHA256:
        raise click.UsageError(f"{pretrained}: expected the file with the SHA-256 {SHA256}, got {found}")
    tensors = torch.load(pretrained, map_location="cpu", weights_only=True)["model_state"]
    arrays = converted({name: tensor.numpy() for name, tensor in tensors.items()})
    np.savez(output, **arrays)  # Without the last step, which the embeddings of the others tell.
    weight, bias = cleaning(NumpyNetwork(output), people(audio))
    np.savez(output, **(arrays | {"clean.weight": weight.astype(np.float16), "clean.bias": bias.astype(np.float16)}))
    click.echo(f"{output}: {output.stat().st_size} bytes")


def converted(tensors: Mapping[str, Array]) -> dict[str, Any]:
    """The arrays of `NumpyNetwork`, with a last step that changes nothing."""
    # Sigmoids are computed by the hyperbolic tangent of half their input; the third gate has a tangent itself.
    half = np.repeat(np.array([0.5, 0.5, 1, 0.5], np.float32), SIZE)
    arrays: dict[str, Any] = {}
    for layer in range(N_LAYERS):
        arrays[f"input.{layer}"] = tensors[f"lstm.weight_ih_l{layer}"].T * half
        arrays[f"recurrent.{layer}"] = tensors[f"lstm.weight_hh_l{layer}"].T * half
        arrays[f"bias.{layer}"] = (tensors[f"lstm.bias_ih_l{layer}"] + tensors[f"lstm.bias_hh_l{layer}"]) * half
    arrays |= {"embed.weight": tensors["linear.weight"].T, "embed.bias": tensors["linear.bias"]}
    arrays |= {"clean.weight": np.eye(SIZE), "clean.bias": np.zeros(SIZE)}
    # Contiguous, so that the same numbers are the same bytes and fast to multiply.
    rounded = {name: np.ascontiguousarray(array, np.float16) for name, array in arrays.items()}
    return rounded | {"thresholds": np.array([JOINS, KNOWS], np.float32)}


def people(audio: Path) -> dict[str, Samples]:
    """The speech of each person who may be learnt from, in one piece."""
    clips: dict[str, list[Samples]] = defaultdict(list)
    for line in (audio / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        name, kind = entry.get("speaker") or "", entry["kind"]
        if not kind.startswith("human-") or kind in DERIVED or name in JUDGED | SEVERAL or "+" in name:
            continue
        with (audio / entry["file"]).open("rb") as stream:
            clips[name].append(_trimmed(np.concatenate(list(decode_pieces(stream, 1)))))
    return {name: np.concatenate(each)[: round(MAX_S * SAMPLE_RATE)] for name, each in clips.items()}


def cleaning(network: NumpyNetwork, speech: Mapping[str, Samples]) -> tuple[Array, Array]:
    """The weight and the bias of the last step: the mean of all people goes, and what varies in one counts less."""
    rng, own = np.random.default_rng(5), list[Array]()
    for each in speech.values():
        samples = each * (0.05 / max(1e-4, float(np.sqrt(np.mean(each * each)))))
        kinds = (samples, on_the_telephone(samples), in_a_room(samples, rng))
        own.append(network.embed([window for kind in kinds for window in _windows(kind)]))
    means = [vectors.mean(0) for vectors in own]
    spread = np.mean([np.cov(vectors.T.astype(np.float64), bias=True) for vectors in own], axis=0)
    variance, directions = np.linalg.eigh(spread)
    scale = (variance + EVENNESS * variance.mean()) ** -0.5
    weight = (directions * (scale / scale.max())) @ directions.T
    return weight.astype(np.float32), (-np.mean(means, axis=0) @ weight).astype(np.float32)


def on_the_telephone(samples: Samples) -> Samples:
    """From 300 to 3,400 Hz, in 8 bits of mu-law."""
    hz = np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE)
    with np.errstate(over="ignore"):
        band = 1 / (1 + np.exp((280 - hz) / 20)) / (1 + np.exp((hz - 3450) / 40))
    heard = np.clip(np.fft.irfft(np.fft.rfft(samples) * band, len(samples)), -1, 1)
    coded = np.round(127 * np.sign(heard) * np.log1p(255 * np.abs(heard)) / np.log(256)) / 127
    spectrum = np.fft.rfft(np.sign(coded) * (256 ** np.abs(coded) - 1) / 255)
    spectrum[hz > 3950] = 0
    out: Samples = np.fft.irfft(spectrum, len(samples)).astype(np.float32)
    return out


def in_a_room(samples: Samples, rng: np.random.Generator) -> Samples:
    """Before a far microphone: with 0.4 s of reverberation, and noise 18 dB below."""
    n = round(0.4 * SAMPLE_RATE)
    echo = rng.normal(size=n) * np.exp(-6.9 * np.arange(n) / n)
    echo[0] = 0
    echo *= 0.75 / np.sqrt(np.sum(echo * echo))
    echo[0] = 1
    size = len(samples) + n
    heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(echo, size), size)[: len(samples)]
    heard += rng.normal(size=len(heard)) * np.sqrt(np.mean(heard * heard)) * 10 ** (-18 / 20)
    out: Samples = (0.5 * heard).astype(np.float32)
    return out


def _windows(samples: Samples) -> Sequence[Samples]:
    size = round(WINDOW_S * SAMPLE_RATE)
    hop = round((SHORT_HOP_S if len(samples) < SHORT_S * SAMPLE_RATE else HOP_S) * SAMPLE_RATE)
    return [samples[start : start + size] for start in range(0, max(1, len(samples) - size), hop)][:30]


def _trimmed(samples: Samples) -> Samples:
    """Without the silence around it."""
    size = SAMPLE_RATE // 50
    frames = np.sqrt(np.mean(samples[: len(samples) // size * size].reshape(-1, size) ** 2, axis=1))
    loud = np.flatnonzero(frames > 0.05 * frames.max())
    return samples[loud[0] * size : (loud[-1] + 1) * size]


if __name__ == "__main__":
    main()
