"""Tells whether raw audio looks like what its client declared: one look at the first second of sound, one at four.

The first look finds other formats, the second one voices at another speed, as of another rate.

A stream in another format than the declared one gives no text, or nonsense, and no error: any bytes are samples. The
looks never change how the audio is decoded.
"""

import re

import numpy as np
from numpy.typing import NDArray

from tutti_server.app.media.notices import Notice
from tutti_server.app.media.pcm import BYTES_PER_SAMPLE, AudioFormat, Encoding, Samples, decode_samples
from tutti_server.app.media.voice_speed import are_tones, speed

UNLIKELY_FORMAT = "unlikely_format"
"""The code of the notice."""
MAGIC = {
    b"\x1aE\xdf\xa3": "WebM or Matroska",
    b"OggS": "Ogg",
    b"fLaC": "FLAC",
    b"ID3": "MP3",
    b"caff": "CAF",
    b"FORM": "AIFF",
    b"#!AMR": "AMR",
    b".snd": "AU",
    b"FLV\x01": "FLV",
    b"RF64": "RF64",
}
"""How files begin, and what they are."""
MP4_MARK = slice(4, 8), b"ftyp"
"""Where MP4 and its relatives name themselves, and how."""
WAV_FORMAT = re.compile(rb"RIFF....WAVE.{0,64}?fmt ....(..)(..)(....)......(..)", re.DOTALL)
"""The beginning of a WAV: its format tag, channels, sample rate and bits of a sample."""
WAV_TAGS: dict[Encoding, tuple[int, int]] = {
    "pcm_s16le": (1, 16),
    "pcm_f32le": (3, 32),
    "alaw": (6, 8),
    "mulaw": (7, 8),
}
"""The format tag and the bits of a sample by which a WAV names each encoding."""
HEAD_BYTES = 128
"""How much of a stream is compared with the beginnings of files."""
JSON = re.compile(rb'\s*\{\s*"[ -~\s]*')
"""The beginning of a JSON object."""
BASE64 = re.compile(rb"[A-Za-z0-9+/=\r\n]{64,}")
"""The beginning of text in base64."""
MOST_HUM_LEVELS = 16
"""Samples of 8 bits of a hum may look like base64. They have no more different values than this."""
LOOK_S, VOICE_LOOK_S = 1.0, 4.0
"""How much audio is looked at, in seconds, from the first sound on: for its format, and for the speed of its voice."""
LEAST_S = 0.2
"""The shortest stream that is looked at, in seconds."""
FRAME_S = 0.02
"""The audio whose level is compared to find the first sound, in seconds."""
QUIETEST, QUIETEST_VOICE = 1e-3, 1e-2
"""The lowest levels of sound (-60 dB), and of a voice whose speed is judged (-40 dB): many streams begin with noise."""
SOUND_SHARE = 0.1
"""Sound begins with the first frame of this share of the loudest one."""

LOUDEST_FLOAT = 16.0
"""Floats above this are not scaled to [-1, 1]. Clipped recordings exceed 1 by little."""
LOUDEST_UNSCALED = 32768.0
"""Floats that are taken for integers are no larger than this, which is the scale of 16 bits."""
MOST_LEVELS = 16
"""Integers of so few different values are no floats: square waves at half of the full scale look like them."""
NOISE_CORRELATION = 0.3
"""Neighbours of loud noise are less alike than this; those of speech and music are more so."""
MOST_NOISE_CORRELATION = 0.75
"""Neighbours in loud samples of 8 bits that are taken for 16 are less alike than this: their signs still are."""
MORE_ALIKE = 0.2
"""How much more alike they are in the right format, at least."""
MUCH_MORE_ALIKE = 0.4
"""And with the bytes of each sample swapped: the lower ones alone, as of quiet speech, are somewhat alike."""
SOUND_CORRELATION = 0.7
"""Samples in the right format are more alike than this, where those in the declared one are noise."""
NOISE_LEVEL = 0.2
"""The least level of bytes that are taken for samples in another format."""
UNIFORM_LEVEL, UNIFORM_SLACK = 3**-0.5, 0.03
"""The level of compressed data, whose values are all equally likely, and by how much it may vary."""
LEAST_UNSIGNED_LEVEL = 0.8
"""The least level of unsigned bytes that are taken for 16 bits: their zero is 128. No recording is so loud."""
UNLIKE = 0.1
"""Neighbours among pieces of samples of 24 and 32 bits are less alike than this."""
BYTES_APART = 0.3
"""How different the bytes of samples of 16 or 32 bits are by their places, 0 to 1. Samples of 8 bits are alike."""
UNIFORM_BYTES = 0.15
"""How far the bytes of compressed data are from equal shares, at most."""
LEAST_STEPS = 0.3
"""The share of samples that differ from the one before in sound, at least; in signals of levels few do."""
INTERLEAVED_SHARE = 0.02
"""Where two equal channels are taken for one, every other step is this share of the others, or less."""

LEAST_FALL = 0.002
"""By how much less alike two samples of a channel are than two with half of the distance, at least."""
MOST_UNEVEN = 0.1
"""Where one channel is taken for two, what is less alike on one side of a sample than on the other: a share of it."""
MOST_LOUDER = 0.05
"""And both channels are equally loud, but for this share of the power."""


class FormatCheck:
    """Receives the bytes of a stream from its beginning on until the check is made."""

    def __init__(self, audio: AudioFormat) -> None:
        self.audio = audio
        self.is_done = False
        """Whether the stream was judged, so that no more bytes are needed."""
        self._group_bytes = BYTES_PER_SAMPLE[audio.encoding] * audio.channels
        self._second = audio.sample_rate * self._group_bytes
        self._held = bytearray()
        self._is_at_start = True
        self._is_format_likely = False
        """Whether the first look has found nothing. What is held since then are seconds as loud as a voice."""
        self._needed = HEAD_BYTES
        """The number of held bytes at which the next look is made."""

    def add(self, data: bytes) -> Notice | None:
        """Take the next bytes. Returns a notice, once, if the stream does not look like its format.

        The looks are made at the same bytes however the stream is cut into messages.
        """
        at = 0
        while at < len(data) and not self.is_done:
            until = at + self._needed - len(self._held)
            self._held += data[at:until]
            at = until
            if len(self._held) == self._needed and (notice := self._look()):
                return notice
        return None

    def _look(self) -> Notice | None:
        look_bytes = round(LOOK_S * self._second)
        if self._is_at_start:
            self._is_at_start, self._needed = False, look_bytes
            appearance = _container(bytes(self._held), self.audio)
            return self._judged(appearance) if appearance else None
        if self._is_format_likely:
            return self._look_at_voice()
        start = self._sound_start()
        if start is None:
            # It is silent. The last frame may hold the beginning of a sound.
            self._held, self._needed = bytearray(), look_bytes
            return None
        end = start + look_bytes
        if end > len(self._held):
            self._needed = end
            return None
        if appearance := _appearance(bytes(self._held[start:end]), self.audio):
            return self._judged(appearance)
        self._is_format_likely = True
        del self._held[:start]
        return self._look_at_voice()

    def _look_at_voice(self) -> Notice | None:
        """Look at the newest second, and at all that are held once they are enough."""
        if self._levels(bytes(self._held[-self._second :])).max() < QUIETEST_VOICE:
            del self._held[-self._second :]
        if len(self._held) >= VOICE_LOOK_S * self._second:
            return self._judged(_speed(bytes(self._held), self.audio))
        self._needed = len(self._held) + self._second
        return None

    def finish(self) -> Notice | None:
        """The stream ends. Returns what `add` does for a stream that is shorter."""
        if self.is_done:
            return None
        if self._is_format_likely:
            return self._judged(_speed(bytes(self._held), self.audio))
        if appearance := _container(bytes(self._held[:HEAD_BYTES]), self.audio):
            return self._judged(appearance)
        start = self._sound_start() if len(self._held) >= LEAST_S * self._second else None
        if start is None or len(self._held) - start < LEAST_S * self._second:
            return self._judged(None)
        content = bytes(self._held[start:])
        return self._judged(_appearance(content, self.audio) or _speed(content, self.audio))

    def _judged(self, appearance: str | None) -> Notice | None:
        self.is_done, self._held = True, bytearray()
        if appearance is None:
            return None
        audio = self.audio
        declared = f"{audio.encoding} at {audio.sample_rate} Hz, {audio.channels} channel{'s' * (audio.channels > 1)}"
        return Notice(UNLIKELY_FORMAT, f"audio: expected {declared}, as declared, got what {appearance}")

    def _sound_start(self) -> int | None:
        levels = self._levels(bytes(self._held))
        loudest = float(levels.max(initial=0.0))
        if loudest < QUIETEST:
            return None
        first = int(np.argmax(levels >= max(SOUND_SHARE * loudest, QUIETEST)))
        return first * round(FRAME_S * self.audio.sample_rate) * self._group_bytes

    def _levels(self, content: bytes) -> NDArray[np.float32]:
        samples = _channel(content, self.audio)
        n_frame = round(FRAME_S * self.audio.sample_rate)
        n_frames = len(samples) // n_frame
        levels: NDArray[np.float32] = np.sqrt(
            np.square(samples[: n_frames * n_frame].reshape(n_frames, n_frame)).mean(axis=1)
        )
        return levels


def _container(content: bytes, audio: AudioFormat) -> str | None:
    """What a stream begins with if that is a file or text; `None` for samples, and for a WAV of the declared format."""
    for magic, name in MAGIC.items():
        if content.startswith(magic):
            return f"begins as a file: {name}"
    if content[MP4_MARK[0]] == MP4_MARK[1]:
        return "begins as a file: MP4"
    if JSON.fullmatch(content):
        return "begins as text: JSON"
    if BASE64.fullmatch(content) and len(set(content)) > MOST_HUM_LEVELS:
        return "begins as text: base64"
    if found := WAV_FORMAT.match(content):
        tag, channels, rate, bits = (int.from_bytes(each, "little") for each in found.groups())
        if ((tag, bits), channels, rate) != (WAV_TAGS[audio.encoding], audio.channels, audio.sample_rate):
            return f"begins as a WAV file of {channels} channel(s), {bits} bits and {rate} Hz"
    return None


def _appearance(content: bytes, audio: AudioFormat) -> str | None:
    """What a stretch of sound looks like; `None` for what was declared."""
    samples = _channel(content, audio).astype(np.float64)
    if are_tones(samples, audio.sample_rate):
        return None
    match audio.encoding:
        case "pcm_s16le":
            size = _other_size(content) if audio.channels == 1 else None
            other = f"looks like integers of {size} bits" if size else _as_integers(content, audio)
            appearance = "looks like pcm_f32le" if _are_floats(content) else other
        case "pcm_f32le":
            appearance = _as_floats(content)
        case _:
            appearance = _as_bytes(content, audio)
    if appearance:
        return appearance
    if audio.channels == 1 and _is_interleaved(samples):
        return "has each sample twice: does it have two channels?"
    if audio.channels == 2 and _is_one_channel(samples, _channel(content, audio, 1).astype(np.float64)):
        return "looks like one channel, of which each second sample is on the other side"
    return None


def _channel(content: bytes, audio: AudioFormat, number: int = 0) -> Samples:
    size = BYTES_PER_SAMPLE[audio.encoding] * audio.channels
    return decode_samples(content[: len(content) // size * size], audio.encoding)[number :: audio.channels]


def _correlation(samples: NDArray[np.float64], distance: int = 1) -> float:
    """How alike samples are that are so far from each other, -1 to 1; 0 in silence."""
    samples = samples - samples.mean()
    energy = float(np.dot(samples, samples))
    return float(np.dot(samples[distance:], samples[:-distance])) / energy if energy else 0.0


def _are_floats(content: bytes) -> bool:
    """Whether what was declared as integers of 16 bits is floats, scaled to [-1, 1] or to integers."""
    floats = np.frombuffer(content[: len(content) & ~3], "<f4")
    sizes = np.abs(floats[floats != 0])
    if len(sizes) <= len(floats) / 4 or len(np.unique(sizes)) <= MOST_LEVELS:
        return False
    with np.errstate(invalid="ignore"):
        return bool(((sizes > 1e-6) & (sizes < LOUDEST_UNSCALED)).mean() > 0.9)


def _as_integers(content: bytes, audio: AudioFormat) -> str | None:
    whole = np.frombuffer(content[: len(content) & ~1], "<i2")
    samples = whole[:: audio.channels].astype(np.float64) / 32768
    level = float(np.sqrt(np.square(samples).mean()))
    alike = _correlation(samples)
    swapped = _correlation(whole.byteswap()[:: audio.channels].astype(np.float64))
    if swapped > max(SOUND_CORRELATION, alike + MUCH_MORE_ALIKE):
        return "looks like samples whose bytes are swapped"
    if level < NOISE_LEVEL or alike > MOST_NOISE_CORRELATION:
        return None
    encodings: tuple[Encoding, ...] = ("mulaw", "alaw")
    companded = {each: _correlation(decode_samples(content, each).astype(np.float64)) for each in encodings}
    if max(companded.values()) > max(SOUND_CORRELATION, alike + MORE_ALIKE):
        return f"looks like {' or '.join(encodings)}"
    if alike > NOISE_CORRELATION:
        return None
    is_uniform = abs(level - UNIFORM_LEVEL) < UNIFORM_SLACK and abs(alike) < 0.1
    return "looks like compressed data" if is_uniform else None


def _other_size(content: bytes) -> int | None:
    """The bits of integers that are taken for those of 16 bits, if that is what they are."""
    whole = np.frombuffer(content[: len(content) & ~3], "<i2").astype(np.float64) / 32768
    low, high = whole[::2], whole[1::2]
    level = float(np.sqrt(np.square(whole).mean()))
    if not low.any() and (high != 0).mean() > LEAST_STEPS:
        return 32
    octets = np.frombuffer(content, np.uint8).astype(np.float64)
    if level > LEAST_UNSIGNED_LEVEL:
        return 8 if _correlation(octets) > SOUND_CORRELATION else None
    if level < NOISE_LEVEL or abs(_correlation(whole)) > UNLIKE:
        return None
    if abs(float(np.sqrt(np.square(low).mean())) - UNIFORM_LEVEL) < UNIFORM_SLACK:
        return 32 if _correlation(high) > SOUND_CORRELATION else None
    # Sound may begin at any byte of three.
    starts = (octets[start : len(octets) - 2 + start] for start in range(3))
    first, second, third = (each[: len(octets) // 3 * 3 - 3] for each in starts)
    joined = first + 256 * second + 65536 * (third - 256 * (third > 127))
    return 24 if max(_correlation(joined[start::3]) for start in range(3)) > SOUND_CORRELATION else None


def _as_floats(content: bytes) -> str | None:
    floats = np.frombuffer(content[: len(content) & ~3], "<f4")
    with np.errstate(invalid="ignore"):
        sizes = np.abs(floats[floats != 0])
        is_size = (sizes > 1e-10) & (sizes < 1e10)
        if len(sizes) and is_size.mean() < 0.9:
            whole = np.frombuffer(content[: len(content) & ~1], "<i2").astype(np.float64)
            return "looks like pcm_s16le" if _correlation(whole) > SOUND_CORRELATION else "looks like no floats"
        largest = float(sizes[is_size].max(initial=0.0))
    return f"has samples up to {largest:.0f}, and not from -1 to 1" if largest > LOUDEST_FLOAT else None


def _as_bytes(content: bytes, audio: AudioFormat) -> str | None:
    values = np.frombuffer(content, np.uint8)
    n_group = 4 * audio.channels
    values = values[: len(values) // n_group * n_group].reshape(-1, 4, audio.channels)[..., 0]
    places = [np.bincount(values[:, place] >> 4, minlength=16) / len(values) for place in range(4)]
    if max(np.abs(places[0] - each).sum() / 2 for each in places[1:]) > BYTES_APART:
        return "looks like samples of 16 or 32 bits"
    shares = np.bincount(values.reshape(-1), minlength=256) / values.size
    if np.abs(shares - 1 / 256).sum() / 2 < UNIFORM_BYTES:
        return "looks like compressed data"
    return None


def _speed(content: bytes, audio: AudioFormat) -> str | None:
    """Whether a voice in a stretch of sound is far slower or faster than people speak."""
    return speed(_channel(content, audio).astype(np.float64), audio.sample_rate)


def _is_interleaved(samples: NDArray[np.float64]) -> bool:
    steps = np.square(np.diff(samples[: len(samples) & ~1]))
    even, odd = float(steps[::2].mean()), float(steps[1::2].mean())
    return bool((steps > 0).mean() > LEAST_STEPS) and min(even, odd) <= INTERLEAVED_SHARE * max(even, odd)


def _is_one_channel(left: NDArray[np.float64], right: NDArray[np.float64]) -> bool:
    """Whether two channels are one, whose samples are on both sides in turn.

    A sample is then as much like the one before it as like the one after it, which are on the other side, and less like
    the next one of its own side. Of two microphones, only those are so of which one hears a voice half a sample later.
    """
    left, right = left - left.mean(), right - right.mean()
    power = float(np.dot(left, left)), float(np.dot(right, right))
    if not min(power) or max(power) > (1 + MOST_LOUDER) * min(power):
        return False
    before, after = float(np.dot(left, right)), float(np.dot(left[1:], right[:-1]))
    own = float(np.dot(left[1:], left[:-1]) + np.dot(right[1:], right[:-1])) / 2
    fall = min(before, after) - own
    return fall > LEAST_FALL * max(power) and abs(before - after) < MOST_UNEVEN * fall
