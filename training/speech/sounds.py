"""Makes random sounds that are not speech: music, tones, hum, clatter, clicks, calls and noise.

They lie under speech, and alone in windows without speech.
"""

import math
from random import Random as Python

import torch
from torch import Tensor

SAMPLE_RATE = 16_000
KINDS = ("music", "melody", "tones", "hum", "clatter", "clicks", "calls", "noise")


class Random:
    """Random tensors on a device, and random plain numbers, because drawing single numbers on a device is slow."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.python = Python(seed)


def make(kind: str, n_samples: int, random: Random) -> Tensor:
    """`(n_samples,)` float32 with a peak of 0.9, on the generator's device."""
    maker = {
        "music": _music,
        "melody": _melody,
        "tones": _tones,
        "hum": _hum,
        "clatter": _clatter,
        "clicks": _clicks,
        "calls": _calls,
        "noise": _noise,
    }[kind]
    sound = maker(n_samples, random)
    return sound * (0.9 / sound.abs().amax().clamp_min(1e-6))


def make_all(count: int, n_samples: int, device: torch.device, seed: int = 0) -> Tensor:
    """`(count, n_samples)` int16, every kind in turn."""
    random = Random(device, seed)
    sounds = torch.empty(count, n_samples, dtype=torch.int16, device=device)
    for index in range(count):
        sounds[index] = (make(KINDS[index % len(KINDS)], n_samples, random) * 32767).to(torch.int16)
    return sounds


def _uniform(random: Random, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=random.generator, device=random.device)


def _between(random: Random, low: float, high: float) -> float:
    return random.python.uniform(low, high)


def _time(n_samples: int, random: Random) -> Tensor:
    return torch.arange(n_samples, device=random.device) / SAMPLE_RATE


def _note(
    n_samples: int, pitch_hz: float, random: Random, brightness: float, decay_s: float, vibrato: float = 0.0
) -> Tensor:
    """A tone of harmonics with an attack and a decay."""
    t = _time(n_samples, random)
    phase = 2 * math.pi * pitch_hz * t + vibrato * torch.sin(2 * math.pi * 5.5 * t)
    n_harmonics = max(1, min(12, int(7500 / pitch_hz)))
    wave = torch.zeros_like(t)
    for harmonic in range(1, n_harmonics + 1):
        wave += torch.sin(harmonic * phase) * brightness ** (harmonic - 1)
    return wave * (1 - torch.exp(-t / 0.01)) * torch.exp(-t / decay_s)


def _sequence(n_samples: int, random: Random, is_melody: bool) -> Tensor:
    sound = torch.zeros(n_samples, device=random.device)
    beat_s, root = _between(random, 0.12, 0.8), _between(random, 40, 64)
    scale = [0, 2, 4, 5, 7, 9, 11] if _between(random, 0, 1) < 0.6 else [0, 2, 3, 5, 7, 8, 10]
    brightness, decay_s = _between(random, 0.1, 0.9), _between(random, 0.1, 2.0)
    vibrato = _between(random, 0.0, 3.0) if is_melody else 0.0
    at_s, step = _between(random, 0, 0.5), 7
    while at_s < n_samples / SAMPLE_RATE:
        length_s = beat_s * (1 + int(_between(random, 0, 3)))
        step = max(0, min(24, step + int(_between(random, -3, 4))))
        steps = [step] if is_melody else [step, step + 2, step + 4]
        start = int(at_s * SAMPLE_RATE)
        n = min(n_samples - start, int(SAMPLE_RATE * max(length_s, min(decay_s, 1.0))))
        for each in steps:
            pitch_hz = 440 * 2 ** ((root + 12 * (each // 7) + scale[each % 7] - 69) / 12)
            if n > 0 and pitch_hz < 4000:
                sound[start : start + n] += _note(n, pitch_hz, random, brightness, decay_s, vibrato)
        at_s += length_s if _between(random, 0, 1) < 0.85 else 2 * length_s
    return sound


def _music(n_samples: int, random: Random) -> Tensor:
    """Chords under a melody, sometimes with a drum."""
    sound = _sequence(n_samples, random, is_melody=False)
    sound = sound / sound.std().clamp_min(1e-6) + _between(random, 0.3, 1.2) * _melody(n_samples, random)
    if _between(random, 0, 1) < 0.5:
        drum = _clicks(n_samples, random)
        sound += drum / drum.std().clamp_min(1e-6) * _between(random, 0.1, 0.7)
    return sound


def _melody(n_samples: int, random: Random) -> Tensor:
    sound = _sequence(n_samples, random, is_melody=True)
    return sound / sound.std().clamp_min(1e-6)


def _tones(n_samples: int, random: Random) -> Tensor:
    """Dial tones, busy tones, ringing tones, beeps and touch tones."""
    t = _time(n_samples, random)
    pairs = (
        (350, 440),
        (480, 620),
        (440, 480),
        (425, 425),
        (400, 450),
        (1000, 1000),
        (941, 1336),
        (770, 1477),
        (852, 1209),
    )
    index = int(_between(random, 0, len(pairs) + 3))
    low, high = pairs[index] if index < len(pairs) else (_between(random, 200, 3500), _between(random, 200, 3500))
    wave = torch.sin(2 * math.pi * low * t) + torch.sin(2 * math.pi * high * t)
    on_s, off_s = _between(random, 0.05, 2.0), _between(random, 0.05, 4.0)
    if _between(random, 0, 1) < 0.35:
        on_s, off_s = (0.5, 0.5) if _between(random, 0, 1) < 0.6 else (2.0, 4.0)
    return wave if _between(random, 0, 1) < 0.25 else wave * ((t % (on_s + off_s)) < on_s)


def _hum(n_samples: int, random: Random) -> Tensor:
    """Mains hum, engines and fans: low harmonics and some noise."""
    t = _time(n_samples, random)
    u = _between(random, 0, 1)
    base_hz = 50.0 if u < 0.35 else 60.0 if u < 0.6 else _between(random, 30, 220)
    wave = torch.zeros_like(t)
    for harmonic in range(1, 13):
        strength = _between(random, 0, 1) / harmonic ** _between(random, 0.5, 2)
        wave += strength * torch.sin(2 * math.pi * base_hz * harmonic * t + _between(random, 0, 6))
    return wave + _between(random, 0, 0.5) * _coloured(n_samples, random, 1.0)


def _events(n_samples: int, random: Random, per_s: float) -> list[int]:
    count = max(1, int(n_samples / SAMPLE_RATE * per_s))
    return sorted((_uniform(random, count) * n_samples).long().tolist())


def _clatter(n_samples: int, random: Random) -> Tensor:
    """Dishes and tools: struck objects ring at a few frequencies that are not harmonics."""
    sound = 0.02 * _coloured(n_samples, random, _between(random, 0, 0.8))
    for start in _events(n_samples, random, _between(random, 0.5, 6)):
        n = min(n_samples - start, int(SAMPLE_RATE * 0.4))
        t = torch.arange(n, device=random.device) / SAMPLE_RATE
        strike = torch.zeros(n, device=random.device)
        for _ in range(4):
            strike += torch.sin(2 * math.pi * _between(random, 400, 7000) * t) * torch.exp(
                -t / _between(random, 0.004, 0.12)
            )
        noise = torch.randn(n, generator=random.generator, device=random.device) * torch.exp(-t / 0.008)
        sound[start : start + n] += (strike + noise) * _between(random, 0.05, 1) ** 2
    return sound


def _clicks(n_samples: int, random: Random) -> Tensor:
    """Keyboards, castanets, knocking: short bursts at even or random times."""
    sound = torch.zeros(n_samples, device=random.device)
    if _between(random, 0, 1) < 0.5:
        starts = list(
            range(int(_between(random, 0, 8000)), n_samples, max(800, int(SAMPLE_RATE * _between(random, 0.08, 1.0))))
        )
    else:
        starts = _events(n_samples, random, _between(random, 0.5, 10))
    decay_s, pitch_hz = _between(random, 0.002, 0.05), _between(random, 60, 4000)
    for start in starts:
        n = min(n_samples - start, int(SAMPLE_RATE * 0.2))
        t = torch.arange(n, device=random.device) / SAMPLE_RATE
        burst = torch.randn(n, generator=random.generator, device=random.device) + 2 * torch.sin(
            2 * math.pi * pitch_hz * t
        )
        sound[start : start + n] += burst * torch.exp(-t / decay_s) * _between(random, 0.3, 1)
    return sound


def _calls(n_samples: int, random: Random) -> Tensor:
    """Birds, sheep, dogs and sirens: gliding and trembling tones."""
    sound = 0.01 * _coloured(n_samples, random, 0.5)
    low = math.log(_between(random, 150, 2500))
    tremble_hz, tremble = _between(random, 4, 30), _between(random, 0, 0.9)
    brightness, length_s = _between(random, 0.1, 0.85), _between(random, 0.05, 1.2)
    for start in _events(n_samples, random, _between(random, 0.2, 2.5)):
        n = min(n_samples - start, int(SAMPLE_RATE * length_s * _between(random, 0.6, 1.4)))
        if n < 200:
            continue
        t = torch.linspace(0, 1, n, device=random.device)
        glide = low + _between(random, -0.5, 0.5) * t + _between(random, -0.5, 0.5) * torch.sin(math.pi * t)
        phase = torch.cumsum(glide.exp(), 0) * (2 * math.pi / SAMPLE_RATE)
        wave = torch.zeros_like(t)
        for harmonic in range(1, max(2, min(10, int(7000 / math.exp(low + 0.7))))):
            wave += torch.sin(harmonic * phase) * brightness ** (harmonic - 1)
        trembling = 1 - tremble * (0.5 + 0.5 * torch.sin(2 * math.pi * tremble_hz * t * n / SAMPLE_RATE))
        sound[start : start + n] += (
            wave * torch.sin(math.pi * t).clamp_min(0) ** 0.5 * trembling * _between(random, 0.3, 1)
        )
    return sound


def _coloured(n_samples: int, random: Random, slope: float) -> Tensor:
    """Noise whose amplitude falls with frequency to the power of `slope`: 0 is white, 0.5 pink, 1 brown."""
    spectrum = torch.fft.rfft(torch.randn(n_samples, generator=random.generator, device=random.device))
    frequency = torch.linspace(1e-3, 1, len(spectrum), device=random.device).clamp_min(0.005)
    noise: Tensor = torch.fft.irfft(spectrum * frequency**-slope, n_samples)
    return noise / noise.std()


def _noise(n_samples: int, random: Random) -> Tensor:
    """Steady or swelling noise: wind, rain, traffic, breath."""
    noise = _coloured(n_samples, random, _between(random, 0, 1.2))
    if _between(random, 0, 1) < 0.5:
        points = _uniform(random, 1, 1, max(4, n_samples // int(SAMPLE_RATE * _between(random, 0.15, 2))))
        swell = torch.nn.functional.interpolate(points, size=n_samples, mode="linear")[0, 0]
        noise = noise * swell ** _between(random, 0.5, 3)
    return noise
