"""The recordings of `tests/audio`: their samples, their encodings, and their texts."""

from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

AUDIO = Path(__file__).parent / "audio"
MEETING = AUDIO / "meeting.flac"
TEXTS = {
    "hello": "Hello everyone, and welcome to the morning meeting.",
    "train": "The next train to the city leaves from platform seven at a quarter past nine.",
}
"""Their texts by the small model, except for the first word of `hello` in some encodings."""
SENTENCES = [
    "Hello, and welcome to the meeting.",
    "You can read every word while it is spoken.",
    "Many people can talk at the same time, and one model listens to all of them.",
    "How long does it take before the text is final?",
    "Less than a second after the end of the sentence.",
    "Thank you for listening, and have a good day.",
]
"""What is spoken in `meeting.flac`, one segment of the small model for each sentence."""


def read(name: str) -> NDArray[np.int16]:
    """A recording as 16 kHz int16 samples."""
    with av.open(AUDIO / f"{name}.flac") as container:
        return np.concatenate([frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)])


def encoded(samples: NDArray[np.int16], encoding: str, sample_rate: int) -> bytes:
    """The same sound in another encoding, by FFmpeg."""
    codec = {"pcm_s16le": "pcm_s16le", "pcm_f32le": "pcm_f32le", "mulaw": "pcm_mulaw", "alaw": "pcm_alaw"}[encoding]
    stream = av.CodecContext.create(codec, "w")
    assert isinstance(stream, av.AudioCodecContext)
    stream.sample_rate, stream.layout = sample_rate, "mono"
    stream.format = "flt" if encoding == "pcm_f32le" else "s16"
    resampler = av.AudioResampler(stream.format, "mono", sample_rate)
    frame = av.AudioFrame.from_ndarray(samples[None], "s16", "mono")
    frame.sample_rate = 16_000
    frames = [*resampler.resample(frame), *resampler.resample(None)]
    return b"".join(bytes(packet) for each in frames for packet in stream.encode(each))


def words(text: str) -> list[str]:
    """The words of a text, without case and punctuation."""
    return text.lower().replace(",", "").replace(".", "").split()
