"""Makes the audio of planned windows on the training device: mixes, augments, and computes log-mel spectrograms.

All random values are drawn for the whole batch at once, without waiting for the device.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from training.speech.bank import Bank
from training.speech.bank_index import SAMPLE_RATE

REVERB_SAMPLES = 9600
"""Length of a room's response: 0.6 s."""
TELEPHONE_SHARE = 0.2
"""Share of rows that pass through a telephone line."""
NOISE_SHARE = 0.6
"""Share of rows with speech that get noise."""
SOUND_SHARE = 0.2
"""Share of rows that get a sound under their speech."""
MIN_SNR_DB = 2.0
"""Least distance of speech from noise, in decibels."""
MU = 255.0
"""The parameter of mu-law."""

Uniform = Callable[..., Tensor]
On = Callable[[float], Tensor]


class Frontend:
    """Makes the input of the encoder."""

    def __init__(self, device: torch.device, filters: Tensor, sounds: Tensor) -> None:
        """`filters`: `(n_mels, 201)`; `sounds`: `(count, samples)` int16, longer than a window."""
        self.device = device
        self.filters = filters.to(device=device, dtype=torch.float32)
        self.sounds = sounds
        self.window = torch.hann_window(400, device=device)

    def mix(self, bank: Bank, rows: int, n_samples: int, total: int, places: Tensor, speeds: Tensor) -> Tensor:
        """Copy sentences of the bank to their places: `(rows, n_samples)`. `total` is the number of samples placed."""
        audio = torch.zeros(rows * n_samples + 1, device=self.device)
        if len(places):
            row, at, source, n = places.unbind(1)
            speed, gain = speeds.unbind(1)
            numbers = torch.arange(len(places), device=self.device)
            which = torch.repeat_interleave(numbers, n, output_size=total)
            t = torch.arange(total, device=self.device) - (torch.cumsum(n, 0) - n)[which]
            position = t.float() * speed[which]
            whole = position.floor()
            part = position - whole
            index = source[which] + whole.long()
            source_audio = bank.audio[index].float() * (1 - part) + bank.audio[index + 1].float() * part
            audio.index_add_(0, (row * n_samples + at)[which] + t, source_audio * gain[which] / 32768.0)
        return audio[:-1].view(rows, n_samples)

    def augment(self, x: Tensor, has_speech: Tensor, ends: Tensor, strength: float = 1.0) -> Tensor:
        """Add room, microphone, noise, telephone and level at random. Rows without speech get sounds.

        `strength` scales how often.
        """
        rows, n_samples = x.shape
        speech = has_speech.float()[:, None]

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, device=self.device)

        def on(share: float) -> Tensor:
            return (uniform(rows, 1) < share * strength).float()

        def decibels(low: float, high: float) -> Tensor:
            return 10 ** ((low + (high - low) * uniform(rows, 1)) / 20)

        x = self._room(x, uniform, on)
        level = x.square().mean(1, keepdim=True).sqrt()
        active = (x.abs() > 1e-4).float().mean(1, keepdim=True).clamp_min(0.05)
        level = torch.where(speech > 0, level / active.sqrt(), 0.1).clamp_min(3e-3)

        slope = torch.where(uniform(rows, 1) < 0.35, 0.0, uniform(rows, 1) * 1.2)
        spectrum = torch.fft.rfft(torch.randn(rows, n_samples, device=self.device))
        frequency = torch.linspace(1e-3, 1, spectrum.shape[1], device=self.device)[None].clamp_min(0.01)
        noise = torch.fft.irfft(spectrum * frequency**-slope, n_samples)
        noise = noise / (noise.square().mean(1, keepdim=True).sqrt() + 1e-9)
        swell = F.interpolate(uniform(rows, 1, max(4, n_samples // SAMPLE_RATE)), size=n_samples, mode="linear")[:, 0]
        noise = torch.where(on(0.3) > 0, noise * swell, noise)
        noise_on = torch.where(speech > 0, on(NOISE_SHARE), (uniform(rows, 1) < 0.4).float())
        babble = sum((x.roll(shift, 0) for shift in range(1, 5)), torch.zeros_like(x))
        babble = babble * speech * on(0.07) * decibels(-26, -10)
        x = x + noise * level * decibels(-40, -MIN_SNR_DB) * noise_on + babble
        x = self._add_sounds(x, level, speech, strength)
        x = self._channel(x, uniform, strength)

        clipped = on(0.04)
        x = torch.where(clipped > 0, x.clamp(-2 * level, 2 * level), x)
        gain = torch.where(speech > 0, decibels(-26, 0), decibels(-66, 0))
        x = x / (x.abs().amax(1, keepdim=True) + 1e-6) * gain
        inside = torch.arange(n_samples, device=self.device)[None] < ends[:, None]
        return (x * 32768).round() / 32768 * inside

    def _room(self, x: Tensor, uniform: Uniform, on: On) -> Tensor:
        """Add a smooth equaliser, and reverberation: noise that fades after the direct sound."""
        rows, n_samples = x.shape
        n_fft = n_samples + SAMPLE_RATE
        spectrum = torch.fft.rfft(x, n_fft)
        curve = F.interpolate(
            (uniform(rows, 1, 8) - 0.5) * 16, size=spectrum.shape[1], mode="linear", align_corners=True
        )
        equaliser = 10 ** (curve[:, 0] * on(0.6) / 20)
        t = torch.arange(REVERB_SAMPLES, device=self.device)[None] / SAMPLE_RATE
        decay_s = 0.08 + 0.45 * uniform(rows, 1) ** 1.5
        room = torch.randn(rows, REVERB_SAMPLES, device=self.device) * torch.exp(-6.9 * t / decay_s) * (t > 0.002)
        room = room / (room.square().sum(1, keepdim=True).sqrt() + 1e-6)
        room = room * 10 ** (-(uniform(rows, 1) * 18 - 1) / 20) * on(0.35)
        room[:, 0] = 1
        out: Tensor = torch.fft.irfft(spectrum * equaliser * torch.fft.rfft(room, n_fft), n_fft)
        return out[:, :n_samples]

    def _add_sounds(self, x: Tensor, level: Tensor, speech: Tensor, strength: float) -> Tensor:
        """Add music, tones and clatter under some rows with speech, and to most rows without speech."""
        rows, n_samples = x.shape
        # Rows without speech come first, so that a fixed number of rows holds all that need a sound.
        order = torch.argsort(speech[:, 0] + 0.5 * torch.rand(rows, device=self.device))
        chosen = order[: max(1, int(rows * (SOUND_SHARE * strength + 0.08)))]
        which = torch.randint(len(self.sounds), (len(chosen), 1), device=self.device)
        start = torch.randint(self.sounds.shape[1] - n_samples + 1, (len(chosen), 1), device=self.device)
        sound = self.sounds[which, start + torch.arange(n_samples, device=self.device)[None]].float()
        sound = sound / (sound.square().mean(1, keepdim=True).sqrt() + 1e-3)
        is_speech = speech[chosen]
        snr_db = MIN_SNR_DB + 28 * torch.rand(len(chosen), 1, device=self.device)
        kept = (torch.rand(len(chosen), 1, device=self.device) < 0.75).float()
        gain = level[chosen] * torch.where(is_speech > 0, 10 ** (-snr_db / 20), kept)
        return x.index_add(0, chosen, sound * gain)

    def _channel(self, x: Tensor, uniform: Uniform, strength: float) -> Tensor:
        """Pass some rows through telephone lines (300 to 3400 Hz, 8 kHz, mu-law) or microphones without treble."""
        rows, n_samples = x.shape
        count = max(1, int(rows * TELEPHONE_SHARE * strength))
        chosen = torch.randperm(rows, device=self.device)[: 2 * count]
        spectrum = torch.fft.rfft(x[chosen])
        hz = torch.linspace(0, SAMPLE_RATE / 2, spectrum.shape[1], device=self.device)[None]
        low, high = 200 + 160 * uniform(len(chosen), 1), 3250 + 400 * uniform(len(chosen), 1)
        is_telephone = torch.arange(len(chosen), device=self.device)[:, None] < count
        low = torch.where(is_telephone, low, -1000.0)
        high = torch.where(is_telephone, high, 2800 + 4800 * uniform(len(chosen), 1))
        band = torch.sigmoid((hz - low) / 20) * torch.sigmoid((high - hz) / 40)
        filtered = torch.fft.irfft(spectrum * band, n_samples)
        return x.index_copy(0, chosen, torch.where(is_telephone, mu_law_8k(filtered), filtered))

    def log_mel(self, x: Tensor) -> Tensor:
        """Log-mel spectrograms `(rows, n_mels, frames)`, equal to those of transformers at the same length."""
        spectrum = torch.stft(x, 400, 160, window=self.window, return_complex=True)[..., :-1]
        power = self.filters @ spectrum.abs().square()
        log_spec = power.clamp_min(1e-10).log10()
        return (torch.maximum(log_spec, log_spec.amax(dim=(1, 2), keepdim=True) - 8.0) + 4.0) / 4.0

    def mask(self, mel: Tensor, share: float) -> Tensor:
        """SpecAugment: hide two bands of mels and two stretches of time in some rows."""
        rows = len(mel)
        for width, dim in ((12, 1), (12, 1), (20, 2), (20, 2)):
            size = mel.shape[dim]
            start = torch.rand(rows, 1, device=self.device) * size
            length = torch.rand(rows, 1, device=self.device) * width * (torch.rand(rows, 1, device=self.device) < share)
            index = torch.arange(size, device=self.device)[None]
            hidden = (index >= start) & (index < start + length)
            mel = mel.masked_fill(hidden[:, :, None] if dim == 1 else hidden[:, None, :], 0.0)
        return mel


def mu_law_8k(x: Tensor) -> Tensor:
    """Pass audio through mu-law at 8 kHz and back to 16 kHz. It must hold nothing above 4 kHz."""
    n_samples = x.shape[-1]
    peak = x.abs().amax(-1, keepdim=True).clamp_min(1e-6)
    narrow = x[..., ::2] / peak * 0.7
    compressed = narrow.sign() * torch.log1p(MU * narrow.abs()) / math.log1p(MU)
    compressed = (compressed * 127).round() / 127
    narrow = compressed.sign() * ((1 + MU) ** compressed.abs() - 1) / MU * peak / 0.7
    spectrum = torch.fft.rfft(narrow)
    wide: Tensor = torch.fft.irfft(F.pad(spectrum, (0, n_samples // 2 + 1 - spectrum.shape[-1])), n_samples)
    return wide * 2
