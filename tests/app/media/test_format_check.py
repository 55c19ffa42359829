"""Raw audio that is not what its client declared is noticed; what is as declared never is."""

import base64
from collections.abc import Callable
from typing import Any

import av
import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

from tests.made_files import Track, made_file, tone
from tutti_server.app.media.format_check import UNLIKELY_FORMAT, FormatCheck
from tutti_server.app.media.notices import Notice
from tutti_server.app.media.pcm import AudioFormat, Encoding, Samples

AUDIO = "tests/audio"
CODECS: dict[Encoding, str] = {
    "pcm_s16le": "pcm_s16le",
    "pcm_f32le": "pcm_f32le",
    "mulaw": "pcm_mulaw",
    "alaw": "pcm_alaw",
}


def clip(name: str = "hello") -> Samples:
    with av.open(f"{AUDIO}/{name}.flac") as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    samples: Samples = np.concatenate(frames).astype(np.float32) / np.float32(32_768)
    return samples


def encoded(samples: Samples, encoding: Encoding, rate: int = 16_000) -> bytes:
    """Raw samples at 16 kHz in another encoding and at another rate."""
    resampled = samples if rate == 16_000 else soxr.resample(samples, 16_000, rate)
    context: Any = av.CodecContext.create(CODECS[encoding], "w")
    context.sample_rate, context.layout, context.format = rate, "mono", context.codec.audio_formats[0]
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(resampled, np.float32)[None], "flt", "mono")
    frame.sample_rate = rate
    converted = av.AudioResampler(context.format, "mono", rate).resample(frame)
    return b"".join(bytes(packet) for each in [*converted, None] for packet in context.encode(each))


def look(content: bytes, audio: AudioFormat, n_bytes: int = 640) -> list[Notice]:
    """What is noticed of a stream that comes in pieces."""
    check = FormatCheck(audio)
    found = [check.add(content[at : at + n_bytes]) for at in range(0, len(content), n_bytes)]
    return [each for each in (*found, check.finish()) if each]


def message(content: bytes, encoding: Encoding = "pcm_s16le", rate: int = 16_000, channels: int = 1) -> str:
    (notice,) = look(content, AudioFormat(encoding, rate, channels))
    assert notice.code == UNLIKELY_FORMAT
    return notice.message


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("encoding", list(CODECS))
def test_what_is_as_declared_is_not_noticed(encoding: Encoding, rate: int) -> None:
    """Speech, silence, a tone and noise, in any encoding and at any rate."""
    noise = np.random.default_rng(1).normal(0, 0.1, 20_000).astype(np.float32)
    for samples in (clip(), clip("train"), np.zeros(20_000, np.float32), tone(1.5), tone(1.5, 50.0), noise):
        assert look(encoded(samples, encoding, rate), AudioFormat(encoding, rate)) == []


@pytest.mark.parametrize("hz", [400.0, 1000.0, 2000.0])
@pytest.mark.parametrize("encoding", ["pcm_s16le", "mulaw", "alaw"])
def test_tones_of_a_telephone_network_are_not_noticed(encoding: Encoding, hz: float) -> None:
    """Where the rate is a multiple of the pitch, the same samples come at the same places."""
    sine = tone(2.0, hz)
    assert look(encoded(sine, encoding, 8_000), AudioFormat(encoding, 8_000)) == []
    square = np.where(sine >= 0, 16_383, -16_383).astype("<i2")
    assert look(square.tobytes(), AudioFormat()) == []


@pytest.mark.parametrize("n_bytes", [333, 1001, 1 << 20])
def test_messages_may_be_cut_anywhere(n_bytes: int) -> None:
    """The look is at the same samples, also after silence."""
    content = bytes(120_000) + encoded(clip(), "pcm_s16le") * 2
    assert look(content, AudioFormat(), n_bytes) == []
    other = bytes(120_000) + encoded(clip(), "pcm_f32le") * 2
    assert look(other, AudioFormat(), n_bytes) == look(other, AudioFormat())
    slow = bytes(120_000) + encoded(clip(), "pcm_s16le", 48_000)
    assert look(slow, AudioFormat(), n_bytes) == look(slow, AudioFormat()) != []


def test_text_in_place_of_samples_is_named() -> None:
    """Some clients send the JSON of another protocol as bytes, or only its base64."""
    text = base64.b64encode(encoded(clip()[4000:], "pcm_s16le"))
    assert message(text).endswith("got what begins as text: base64")
    assert message(b'{"type": "audio", "audio": "' + text, "mulaw", 8_000).endswith("got what begins as text: JSON")


@pytest.mark.parametrize(
    ("declared", "sent", "expected"),
    [
        ("pcm_s16le", "pcm_f32le", "looks like pcm_f32le"),
        ("pcm_s16le", "mulaw", "looks like mulaw or alaw"),
        ("pcm_s16le", "alaw", "looks like mulaw or alaw"),
        ("pcm_f32le", "pcm_s16le", "looks like pcm_s16le"),
        ("mulaw", "pcm_s16le", "looks like samples of 16 or 32 bits"),
        ("alaw", "pcm_f32le", "looks like samples of 16 or 32 bits"),
    ],
)
def test_another_encoding_is_named(declared: Encoding, sent: Encoding, expected: str) -> None:
    said = message(encoded(clip(), sent), declared)
    assert said == f"audio: expected {declared} at 16000 Hz, 1 channel, as declared, got what {expected}"


@pytest.mark.parametrize(
    ("container", "codec", "name"),
    [
        ("webm", "libopus", "WebM or Matroska"),
        ("ogg", "libopus", "Ogg"),
        ("mp4", "aac", "MP4"),
        ("flac", "flac", "FLAC"),
        ("mp3", "libmp3lame", "MP3"),
    ],
)
def test_a_file_in_place_of_samples_is_named(container: str, codec: str, name: str) -> None:
    """However little of it comes."""
    content = made_file(container, codec, 48_000, [Track(samples=clip())])
    assert f"begins as a file: {name}" in message(content)
    assert f"begins as a file: {name}" in message(content[:100], "mulaw", 8_000)


def test_a_wav_is_noticed_only_where_its_header_says_something_else() -> None:
    """Many clients send the header with the samples, which does no harm."""
    content = made_file("wav", "pcm_s16le", 16_000, [Track(samples=clip())])
    assert look(content, AudioFormat()) == []
    assert "begins as a WAV file of 1 channel(s), 16 bits and 16000 Hz" in message(content, rate=48_000)
    assert "begins as a WAV file" in message(content, "mulaw", 8_000)


def of_32_bits(samples: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The bytes of samples as integers of 32 bits, as a converter with noise in its last bits gives them."""
    noise = np.random.default_rng(1).uniform(-1, 1, len(samples)) / 65_536
    return np.frombuffer(((samples * 0.99 + noise) * 2**31).astype("<i4").tobytes(), np.uint8)


@pytest.mark.parametrize(
    ("change", "encoding", "expected"),
    [
        (lambda samples: (samples * 32_768).astype("<f4").tobytes(), "pcm_f32le", "has samples up to"),
        (lambda samples: (samples * 32_767).astype(">i2").tobytes(), "pcm_s16le", "samples whose bytes are swapped"),
        (lambda samples: (samples * 1_000).astype(">i2").tobytes(), "pcm_s16le", "samples whose bytes are swapped"),
        (lambda samples: (samples * 0.9).astype("<f4").tobytes(), "pcm_s16le", "looks like pcm_f32le"),
        (lambda samples: (samples * 30_000).astype("<f4").tobytes(), "pcm_s16le", "looks like pcm_f32le"),
        (lambda samples: np.repeat(samples * 32_767, 2).astype("<i2").tobytes(), "pcm_s16le", "each sample twice"),
        (lambda samples: (samples * 127 + 128).astype(np.uint8).tobytes(), "pcm_s16le", "integers of 8 bits"),
        (lambda samples: of_32_bits(samples).reshape(-1, 4)[:, 1:].tobytes(), "pcm_s16le", "integers of 24 bits"),
        (lambda samples: b"\0" + of_32_bits(samples).reshape(-1, 4)[:, 1:].tobytes(), "pcm_s16le", "integers of 24"),
        (lambda samples: of_32_bits(samples).tobytes(), "pcm_s16le", "integers of 32 bits"),
        (lambda samples: ((samples * 32_767).astype("<i4") << 16).tobytes(), "pcm_s16le", "integers of 32 bits"),
        (lambda samples: np.random.default_rng(1).bytes(40_000), "pcm_s16le", "compressed data"),
        (lambda samples: np.random.default_rng(1).bytes(40_000), "mulaw", "compressed data"),
        (lambda samples: np.random.default_rng(1).bytes(80_000), "pcm_f32le", "no floats"),
    ],
)
def test_samples_of_another_kind_are_named(
    change: Callable[[NDArray[np.float32]], bytes], encoding: Encoding, expected: str
) -> None:
    loud = clip() / np.abs(clip()).max()
    assert expected in message(change(loud), encoding)


@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le", "mulaw"])
@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_one_channel_that_is_taken_for_two_is_noticed(rate: int, encoding: Encoding) -> None:
    content = encoded(clip("train"), encoding, rate)
    assert "each second sample is on the other side" in message(content, encoding, rate, channels=2)


def test_two_channels_that_are_alike_are_likely() -> None:
    """Equal ones, two speakers, and microphones one of which hears the voice a quarter of a sample or more later."""
    voice, other = clip("train"), clip("hello")
    fine = soxr.resample(voice, 1, 8)
    pairs = [
        (voice, voice),
        (voice, 0.5 * voice),
        (voice, other),
        *((fine[8::8], fine[8 + n :: 8]) for n in (2, 8, 12)),
    ]
    for left, right in pairs:
        n = min(len(left), len(right))
        content = (np.stack((left[:n], right[:n]), axis=1) * 30_000).astype("<i2").tobytes()
        assert look(content, AudioFormat("pcm_s16le", 16_000, 2)) == []


@pytest.mark.parametrize("name", ["hello", "call", "names", "train", "meeting"])
@pytest.mark.parametrize(("sent", "declared"), [(48_000, 16_000), (24_000, 8_000)])
def test_a_voice_three_times_as_slow_is_noticed(name: str, sent: int, declared: int) -> None:
    """It is low, and without the highs that people have. So it is after 5 s of a quiet room, too."""
    expected = "sounds far too slow and low: is its rate higher?"
    room = np.random.default_rng(1).normal(0, 0.002, 5 * declared).astype(np.float32)
    content = encoded(clip(name), "pcm_s16le", sent)
    assert message(content, rate=declared).endswith(expected)
    before = (room * 32_768).astype("<i2").tobytes()
    assert message(before + content, rate=declared).endswith(expected)


def test_a_voice_three_times_as_fast_is_noticed() -> None:
    assert "sounds far too fast and high" in message(encoded(clip("call"), "pcm_s16le"), rate=48_000)


@pytest.mark.parametrize("name", ["hello", "call", "names", "train", "meeting"])
def test_a_voice_of_a_telephone_is_not_noticed_at_a_higher_rate(name: str) -> None:
    """It has no highs either."""
    narrow = soxr.resample(soxr.resample(clip(name), 16_000, 8_000), 8_000, 16_000)
    assert look(encoded(narrow, "pcm_s16le"), AudioFormat()) == []


def test_hum_beside_a_voice_does_not_make_it_low() -> None:
    hummed = clip("call") + tone(len(clip("call")) / 16_000, 50.0)[: len(clip("call"))] * 0.3
    assert look(encoded(hummed, "pcm_s16le"), AudioFormat()) == []


def test_silence_before_the_first_sound_is_waited_for() -> None:
    """The look is at the first second of sound, and there is one."""
    content = bytes(640_000) + encoded(clip(), "pcm_f32le")
    assert "looks like pcm_f32le" in message(content + content)


def test_very_short_streams_are_not_judged() -> None:
    assert look(encoded(clip()[4000:5000], "mulaw"), AudioFormat()) == []
