"""Debian's speech synthesisers: espeak-ng and flite in this process (ctypes), festival in batches.

`root` is a folder into which the packages were unpacked, or `/` if they are installed. The process must start with the
libraries of this folder in LD_LIBRARY_PATH. Audio is mono int16.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]

LIBRARIES = "usr/lib/x86_64-linux-gnu"
"""Folder of the libraries inside `root`."""

ESPEAK_ACCENTS = (
    ["en-us"] * 6 + ["en"] * 4 + ["en-gb-x-rp"] * 3 + ["en-gb-scotland", "en-gb-x-gbclan", "en-us-nyc", "en-029"]
)
"""Accents of espeak-ng, each as often as it is drawn. "en" is the British voice."""
ESPEAK_HELD_OUT = ["belinda", "iven", "Mike", "m6", "Andrea"]
"""Variants of espeak-ng that are never trained on."""
ESPEAK_VARIANTS = (
    "f1 f2 f3 f4 f5 m1 m2 m3 m4 m5 m7 m8 Alex Alicia Andy Annie Denis Diogo Gene Gene2 Henrique Hugo Jacky Lee "
    "Marco Mario Michael Nguyen RicishayMax Storm Tweaky adam anika announcer antonio aunty benjamin boris caleb "
    "david ed edward edward2 grandma grandpa gustave iven2 john kaukovalta klatt klatt2 klatt3 klatt4 linda "
    "marcelo max michel miguel norbert pablo paul pedro quincy rob robert sandro shelby steph steph2 steph3 "
    "travis victor whisper zac"
).split()
ESPEAK_WEIGHTS = {"": 16.0} | {name: 4.0 if len(name) == 2 and name[0] in "fm" else 1.0 for name in ESPEAK_VARIANTS}
"""Weights of the variants. People use mostly the plain voice and the numbered ones."""

FLITE_PITCH_HZ = {"kal": 95.0, "kal16": 95.0, "slt": 172.0, "rms": 105.0, "awb": 130.0}
"""The voices of flite and their mean pitch in Hz."""
FESTIVAL_VOICES = ["ked_diphone", "cmu_us_slt_arctic_hts"]
FESTIVAL_HELD_OUT = "kal_diphone"
"""A voice that is never trained on. Its speaker is that of flite's kal."""


class Utterance(NamedTuple):
    """The audio of a sentence."""

    samples: Samples
    sample_rate: int
    word_starts: list[int] | None = None
    """First sample of each word of the text. Only espeak-ng reports them."""


class _EspeakEvent(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_ESPEAK_WORD = 1


class Espeak:
    """espeak-ng as a library."""

    def __init__(self, root: Path) -> None:
        folder = root / LIBRARIES
        self.lib = ctypes.CDLL(str(folder / "libespeak-ng.so.1"))
        self.parts: list[Samples] = []
        self.words: list[tuple[int, int]] = []
        callback = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_EspeakEvent)
        )

        def receive(
            samples: "ctypes._Pointer[ctypes.c_short]", n_samples: int, events: "ctypes._Pointer[_EspeakEvent]"
        ) -> int:
            if n_samples > 0 and samples:
                self.parts.append(np.ctypeslib.as_array(samples, shape=(n_samples,)).copy())
            index = 0
            while events and events[index].type != 0:
                event = events[index]
                if event.type == _ESPEAK_WORD:
                    self.words.append((event.text_position - 1, event.audio_position * self.sample_rate // 1000))
                index += 1
            return 0

        self._receive = callback(receive)  # kept here because espeak-ng holds only a pointer to it
        synchronous = 2
        self.sample_rate = self.lib.espeak_Initialize(synchronous, 2000, str(folder).encode(), 0)
        if self.sample_rate <= 0:
            raise OSError(f"espeak-ng does not start from {folder}")
        self.lib.espeak_SetSynthCallback(self._receive)
        pointer, unsigned, integer = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
        self.lib.espeak_Synth.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            unsigned,
            integer,
            unsigned,
            unsigned,
            pointer,
            pointer,
        ]
        self.voice: str | None = None

    def __call__(
        self, text: str, voice: str = "en-us", rate: int = 175, pitch: int = 50, spread: int = 50
    ) -> Utterance:
        if voice != self.voice:
            if self.lib.espeak_SetVoiceByName(voice.encode()) != 0:
                raise ValueError(f"espeak-ng has no voice {voice}")
            self.voice = voice
        for parameter, value in ((1, rate), (3, pitch), (4, spread), (2, 100)):
            self.lib.espeak_SetParameter(parameter, int(value), 0)
        self.parts, self.words = [], []
        encoded = text.encode("ascii", "ignore") + b"\0"
        utf8 = 1
        self.lib.espeak_Synth(encoded, len(encoded), 0, 1, 0, utf8, None, None)
        self.lib.espeak_Synchronize()
        samples = np.concatenate(self.parts) if self.parts else np.zeros(0, np.int16)
        return Utterance(samples, self.sample_rate, self._word_starts(text))

    def _word_starts(self, text: str) -> list[int] | None:
        """The first sample of each word; `None` unless espeak-ng reported every word, as it may join or split words."""
        at = dict(reversed(self.words))
        starts: list[int] = []
        position = 0
        for word in text.split():
            position = text.index(word, position)
            start = at.get(position, at.get(position + 1))
            if start is None or (starts and start < starts[-1]):
                return None
            starts.append(start)
            position += len(word)
        return starts


class _Wave(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    )


class _Voice(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("features", ctypes.c_void_p))


class Flite:
    """flite as a library."""

    def __init__(self, root: Path) -> None:
        folder = root / LIBRARIES
        for name in ("libflite.so.1", "libflite_usenglish.so.1", "libflite_cmulex.so.1"):
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(folder / "libflite.so.1"), mode=ctypes.RTLD_GLOBAL)
        self.lib.flite_init()
        self.lib.flite_text_to_wave.restype = ctypes.POINTER(_Wave)
        self.lib.flite_text_to_wave.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        self.lib.delete_wave.argtypes = [ctypes.c_void_p]
        self.lib.flite_feat_set_float.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float]
        self.voices: dict[str, int] = {}
        for name in FLITE_PITCH_HZ:
            library = ctypes.CDLL(str(folder / f"libflite_cmu_us_{name}.so.1"), mode=ctypes.RTLD_GLOBAL)
            register = getattr(library, f"register_cmu_us_{name}")
            register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
            self.voices[name] = register(None)

    def __call__(self, text: str, voice: str = "slt", stretch: float = 1.0, pitch_hz: float | None = None) -> Utterance:
        pointer = self.voices[voice]
        features = ctypes.cast(pointer, ctypes.POINTER(_Voice)).contents.features
        self.lib.flite_feat_set_float(features, b"duration_stretch", stretch)
        self.lib.flite_feat_set_float(features, b"int_f0_target_mean", pitch_hz or FLITE_PITCH_HZ[voice])
        wave = self.lib.flite_text_to_wave(text.encode("ascii", "ignore"), pointer)
        contents = wave.contents
        samples = np.ctypeslib.as_array(contents.samples, shape=(contents.num_samples,)).copy()
        sample_rate = contents.sample_rate
        self.lib.delete_wave(wave)
        return Utterance(samples, sample_rate)


def festival(root: Path, texts: list[str], voice: str, stretch: float = 1.0) -> list[Utterance | None]:
    """Speak sentences in one festival process. A sentence that failed is `None`."""
    share = Path("/usr/share/festival")  # this path is compiled into festival
    if not share.exists():
        share.symlink_to((root / "usr/share/festival").resolve())
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"(voice_{voice})", f"(Parameter.set 'Duration_Stretch {stretch:.3f})"]
        for index, text in enumerate(texts):
            quoted = text.replace("\\", " ").replace('"', " ")
            save = f'(utt.save.wave (utt.synth (Utterance Text "{quoted}")) "{folder}/{index}.wav" \'riff)'
            lines.append(f"(unwind-protect {save} nil)")
        script = Path(folder) / "say.scm"
        script.write_text("\n".join(lines) + "\n")
        command = [str(root / "usr/bin/festival"), "-b", str(script)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, check=False)
        return [_read_wave(Path(folder) / f"{index}.wav") for index in range(len(texts))]


def _read_wave(file: Path) -> Utterance | None:
    if not file.exists() or file.stat().st_size < 200:
        return None
    raw = file.read_bytes()
    start = raw.find(b"data") + 8
    samples = np.frombuffer(raw[start : start + (len(raw) - start) // 2 * 2], dtype="<i2").astype(np.int16)
    return Utterance(samples, int.from_bytes(raw[24:28], "little"))


def trimmed(utterance: Utterance, threshold: float = 0.01, keep_s: float = 0.02) -> Utterance:
    """The utterance without the silence before and after its speech."""
    samples, sample_rate, word_starts = utterance
    loudness = np.abs(samples.astype(np.int32))
    loud = np.flatnonzero(loudness > max(30, int(threshold * loudness.max()))) if len(samples) else samples
    if len(loud) == 0:
        return utterance._replace(samples=samples[:0])
    margin = int(keep_s * sample_rate)
    first, last = max(0, int(loud[0]) - margin), int(loud[-1]) + margin
    if word_starts is not None:
        word_starts = [max(0, start - first) for start in word_starts]
    return Utterance(samples[first:last], sample_rate, word_starts)
