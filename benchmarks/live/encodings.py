"""Encodes recordings as different kinds of clients send them: telephones, browsers, phones."""

from typing import get_args

import click
import numpy as np
import soxr

import tutti
from tutti_server.app.media.pcm import Samples, decode_samples
from tutti_server.engine.api import SAMPLE_RATE

USUAL_RATES: dict[tutti.Encoding, int] = {"pcm_s16le": SAMPLE_RATE, "pcm_f32le": 48_000, "mulaw": 8_000, "alaw": 8_000}
"""The sample rate of an encoding that is given without one, in Hz."""
PCM_16K = tutti.AudioFormat("pcm_s16le", SAMPLE_RATE, 1)
"""16-bit mono PCM at 16 kHz."""


def parse_formats(text: str) -> list[tutti.AudioFormat]:
    """Parse a list of formats such as "pcm_s16le,mulaw,pcm_f32le@44100". Without a rate, `USUAL_RATES` applies.

    Raises:
        BadParameter: the text is not such a list.
    """
    return [_parse_format(each) for each in text.split(",")]


def format_name(format: tutti.AudioFormat) -> str:
    """The name of a format, such as "mulaw@8000"."""
    return f"{format.encoding}@{format.sample_rate}"


def encode(samples: Samples, format: tutti.AudioFormat) -> bytes:
    """Resample mono audio from 16 kHz and encode it."""
    if format.sample_rate != SAMPLE_RATE:
        samples = soxr.resample(samples, SAMPLE_RATE, format.sample_rate)
    samples = np.clip(samples, -1, 1)
    match format.encoding:
        case "pcm_s16le":
            return (samples * 32767).astype("<i2").tobytes()
        case "pcm_f32le":
            return samples.astype("<f4").tobytes()
        case "mulaw" | "alaw":
            return _nearest_codes(samples, decode_samples(bytes(range(256)), format.encoding))


def _parse_format(text: str) -> tutti.AudioFormat:
    name, has_rate, rate = text.strip().partition("@")
    for encoding in get_args(tutti.Encoding):
        if name == encoding and (rate.isdecimal() or not has_rate):
            return tutti.AudioFormat(encoding, int(rate) if has_rate else USUAL_RATES[encoding], 1)
    known = ", ".join(get_args(tutti.Encoding))
    raise click.BadParameter(f"expected some of {known}, each with @RATE or without, got {text!r}")


def _nearest_codes(samples: Samples, values: Samples) -> bytes:
    """For each sample, the byte whose value is nearest."""
    order = np.argsort(values, kind="stable")
    edges = (values[order][1:] + values[order][:-1]) / 2
    return order[np.searchsorted(edges, samples)].astype(np.uint8).tobytes()
