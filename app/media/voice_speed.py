"""Tells whether a voice is played too slowly or too fast, by its pitch and by where its spectrum ends."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pitches = NDArray[np.float64]
"""Pitches of frames, in Hz."""

PITCH_FRAME_S = 0.08
"""The length of a frame, which has one pitch, in seconds: two periods at 28 Hz. Frames begin half as far apart."""
PITCH_RATE = 8_000
"""Audio with a higher rate is reduced to about this rate before its pitch is searched, in Hz."""
PITCHES_HZ = (28.0, 1000.0)
"""The range in which a pitch is searched, in Hz: voices played at a third to three times their speed."""
PITCH_BANDS_HZ = ((120.0, 2000.0), (200.0, 3000.0))
"""Pitches are found by the harmonics in these bands, so that hum and rumble have none. The second leaves out more."""
LEAST_ALIKE = 0.6
"""How alike the periods of a frame with a pitch are, at least, 0 to 1."""
N_VOICED, N_LOW = 10, 15
"""The least number of frames with a pitch by which a speed is judged: with the spectrum, and by the second band alone.

They are 0.4 s and 0.6 s of voice.
"""
VOICED_SHARE = 0.3
"""The speed is judged only if at least this share of the loud frames has a pitch."""
LEAST_SPREAD, MOST_SPREAD = 0.02, 0.5
"""How much pitches of a voice differ, as a deviation of their logarithms: not at all in a hum, a lot in noise."""
N_LINES, LINES_SHARE = 8, 0.95
"""Sound is tones if this number of lines of its spectrum has this share of the energy: a busy signal."""
FFT_SIZES = (512, 1024, 2048, 4096, 8192)
"""The lengths of the transforms by which pitches are found; the first that is long enough is taken."""
LOWEST_PITCH_HZ = 75.0
"""A voice with a lower pitch is slowed down. The lowest one of 750 stretches of speech has 84 Hz."""
LOW_SHARE, MOST_LOW_HZ = 2 / 3, 110.0
"""This share of a slow voice's pitches is below the second number. Knocks and hum beside voices repeat slowly, too."""
LOW_PITCH_WEIGHT = 0.4
"""How much the pitch counts for a voice that is slowed down. The rest is the edge of its spectrum."""
LEAST_EDGE_HZ = 300.0
"""Rumble ends below this."""
SLOWEST = {8_000: 1.5, 16_000: 1.22}
"""The least that pitch and edge of a voice make, by the highest rate for which that holds: see `_is_slow`.

At higher rates most of the spectrum may be empty, so that its edge says nothing. Voices of telephones end at 3.4 kHz
also where they are sent with 16 kHz.
"""
USUAL_PITCH_HZ, USUAL_EDGE_HZ = 173.0, 1974.0
"""The pitch of people and the frequency below which 95 % of their energy lie: the means of 84 minutes of speech."""
PITCH_WEIGHT = 0.75
"""How much the pitch counts for a voice that is sped up; the rest is the edge."""
FAST = 0.7
"""The largest natural logarithm of the speed of a voice with highs, where 1.1 is three times as fast."""
HIGHS_DB = -30.0
"""A voice has highs if it has more energy above a third of the rate, in decibels of all."""
LEAST_FAST_RATE = 32_000
"""The lowest rate at which highs say something: at lower ones people have them as well."""
MOST_MEDIAN_HZ, MOST_PITCH_HZ = 3000.0, 750.0
"""No voice has half of its energy above the first. Whistles have pitches above the second."""


def are_tones(samples: NDArray[np.float64], rate: int) -> bool:
    """Whether sound is a few tones. Those of a telephone network have the marks of nearly every other format."""
    n_frame = round(PITCH_FRAME_S * rate)
    frames = samples[: len(samples) // n_frame * n_frame].reshape(-1, n_frame)
    spectra = np.fft.rfft((frames - frames.mean(axis=1, keepdims=True)) * np.hanning(n_frame))
    spectrum = (spectra.real**2 + spectra.imag**2).sum(axis=0)
    return bool(np.partition(spectrum, -N_LINES)[-N_LINES:].sum() > LINES_SHARE * spectrum.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Voice:
    voiced_share: float
    pitches_hz: Pitches
    """The pitches of the frames that have one, by the first band."""
    high_pitches_hz: Pitches
    """The pitches of the frames that have one, by the second band."""
    median_hz: float
    edge_hz: float
    """95 % of the energy is below this."""
    top_hz: float
    """99 % of the energy is below this, where each octave is raised by 12 dB over the one below it."""
    above_third_db: float


def speed(samples: NDArray[np.float64], rate: int) -> str | None:
    """Whether a voice is far slower or faster than people speak, as its rate is another one."""
    voice = None if are_tones(samples, rate) else _voice(samples, rate)
    if voice is None or voice.voiced_share < VOICED_SHARE:
        return None
    if _is_slow(voice, rate):
        return "sounds far too slow and low: is its rate higher?"
    return "sounds far too fast and high: is its rate lower?" if _is_fast(voice, rate) else None


def _is_slow(voice: _Voice, rate: int) -> bool:
    """A voice is slowed down if its pitch is too low for people, or low and without what is heard beside it."""
    if voice.top_hz < LEAST_EDGE_HZ:
        return False
    low = voice.high_pitches_hz
    is_low = len(low) >= N_LOW and np.median(low) < LOWEST_PITCH_HZ and np.quantile(low, LOW_SHARE) < MOST_LOW_HZ
    if is_low and _spread(low) > LEAST_SPREAD:
        return True
    least = next((least for highest, least in SLOWEST.items() if rate <= highest), 0.0)
    pitches = voice.pitches_hz
    if not least or len(pitches) < N_VOICED or _spread(pitches) < LEAST_SPREAD:
        return False
    size = LOW_PITCH_WEIGHT * np.log(np.median(pitches)) + (1 - LOW_PITCH_WEIGHT) * np.log(voice.top_hz / (rate / 2))
    return bool(size < least)


def _is_fast(voice: _Voice, rate: int) -> bool:
    """A voice is sped up if it is too high for people, and has what a microphone does not hear."""
    if rate < LEAST_FAST_RATE or voice.above_third_db < HIGHS_DB:
        return False
    pitches = voice.pitches_hz
    if len(pitches) < N_VOICED or not LEAST_SPREAD < _spread(pitches) < MOST_SPREAD:
        return False
    pitch_hz = float(np.median(pitches))
    speed = PITCH_WEIGHT * np.log(pitch_hz / USUAL_PITCH_HZ)
    speed += (1 - PITCH_WEIGHT) * np.log(voice.edge_hz / USUAL_EDGE_HZ)
    is_voice = pitch_hz < MOST_PITCH_HZ and voice.median_hz < MOST_MEDIAN_HZ
    return bool(is_voice and speed > FAST)


def _spread(pitches: Pitches) -> float:
    return float(np.log(pitches).std())


def _voice(samples: NDArray[np.float64], rate: int) -> _Voice | None:
    n_frame = round(PITCH_FRAME_S * rate)
    if len(samples) < 2 * n_frame:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(samples, n_frame)[:: n_frame // 2]
    frames = frames - frames.mean(axis=1, keepdims=True)
    # Frames that are quiet beside the loudest one say little.
    energies = np.square(frames).sum(axis=1)
    frames = frames[energies > 0.02 * energies.max()]
    if not len(frames):
        return None
    # Pitches need no high rate.
    step = max(round(rate / PITCH_RATE), 1)
    averaged = frames[:, : n_frame // step * step].reshape(len(frames), -1, step).mean(axis=2)
    pitches, high_pitches = (each[each > 0] for each in _pitches(averaged, rate / step))
    spectra = np.fft.rfft(frames[::2] * np.hanning(n_frame))
    spectrum = (spectra.real**2 + spectra.imag**2).sum(axis=0)
    shares = spectrum.cumsum() / spectrum.sum()
    raised = (spectrum * np.arange(len(spectrum)) ** 2).cumsum()
    median_hz, edge_hz = np.searchsorted(shares, (0.5, 0.95)) * (rate / n_frame)
    return _Voice(
        voiced_share=len(pitches) / len(frames),
        pitches_hz=pitches,
        high_pitches_hz=high_pitches,
        median_hz=median_hz,
        edge_hz=max(edge_hz, 1.0),
        top_hz=int(np.searchsorted(raised, 0.99 * raised[-1])) * (rate / n_frame),
        above_third_db=10 * np.log10(max(1 - shares[n_frame // 3], 1e-20)),
    )


def _pitches(frames: NDArray[np.float64], rate: float) -> Iterator[Pitches]:
    """The pitch of each frame in Hz, from its autocorrelation in each of `PITCH_BANDS_HZ`; 0 for none."""
    lowest, highest = PITCHES_HZ
    n_frame, n_lags = frames.shape[1], int(rate / lowest) + 1
    size = next(size for size in FFT_SIZES if size >= n_frame + n_lags)
    window = np.hanning(n_frame)
    spectra = np.fft.rfft(np.vstack((window, frames * window)), size)
    power = spectra.real**2 + spectra.imag**2
    hz = np.fft.rfftfreq(size, 1 / rate)
    of_window = np.fft.irfft(power[0], size)[:n_lags]
    for from_hz, to_hz in PITCH_BANDS_HZ:
        # It rises over the octave below the band, and falls over the one above it.
        share = np.clip(2 * hz / from_hz - 1, 0, 1) ** 2 * np.clip(2 - hz / to_hz, 0, 1)
        alike = np.fft.irfft(power[1:] * share, size)[:, :n_lags]
        alike = alike / np.maximum(alike[:, :1], 1e-20) / (of_window / of_window[0])
        pitches = np.zeros(len(alike))
        for at, row in enumerate(alike):
            # From the end of the first period's own peak on.
            begin = max(int(np.argmax(row < 0.3)), int(rate / highest)) if (row < 0.3).any() else n_lags
            rest = row[begin:]
            if len(rest) < 3:
                continue
            peaks = (rest[1:-1] >= rest[:-2]) & (rest[1:-1] >= rest[2:]) & (rest[1:-1] > 0.85 * rest.max())
            first = int(np.argmax(peaks))
            if peaks.any() and rest[first + 1] > LEAST_ALIKE:
                pitches[at] = rate / (begin + 1 + first)
        yield pitches
