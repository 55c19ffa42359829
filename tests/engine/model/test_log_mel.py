"""Spectrograms equal those of transformers."""

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from tests.engine.engines import noise, read_clip
from tutti_server.engine.api import WINDOW_SAMPLES
from tutti_server.engine.model.log_mel import log_mel, mel_filters


@pytest.mark.parametrize("n_mels", [80, 128])
def test_mel_filters_equal_the_reference(n_mels: int) -> None:
    """They are the Slaney filterbank of transformers."""
    reference = mel_filter_bank(201, n_mels, 0.0, 8000.0, 16_000, norm="slaney", mel_scale="slaney")
    np.testing.assert_allclose(mel_filters(n_mels).numpy().T, reference, atol=1e-8)


@pytest.mark.parametrize("n_mels", [80, 128])
def test_log_mel_equals_the_reference(n_mels: int) -> None:
    """A batch equals the reference for each window: speech, noise, silence and full scale."""
    windows = [read_clip("hello"), noise(0, WINDOW_SAMPLES), np.zeros(10, np.float32), np.ones(16_000, np.float32)]
    padded = np.stack([np.pad(samples, (0, WINDOW_SAMPLES - len(samples))) for samples in windows])
    features = log_mel(torch.from_numpy(padded), mel_filters(n_mels))
    extractor = WhisperFeatureExtractor(feature_size=n_mels)
    for ours, samples in zip(features, windows, strict=True):
        reference = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features[0]
        assert (ours - reference).abs().max() < 1e-4
