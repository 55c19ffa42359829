"""The losses of the training: cross-entropy of the decoder's tokens, and CTC of the encoder's characters."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

TIMESTAMP_SMOOTHING = ((-2, 0.08), (-1, 0.2), (0, 0.44), (1, 0.2), (2, 0.08))
"""Target weights of a timestamp and its neighbours, which are 20 ms apart and therefore nearly correct."""
TEXT_SMOOTHING = 0.05
"""Weight of the uniform distribution in the target of a text token."""


def decoder_loss(hidden: Tensor, embedding: Tensor, targets: Tensor, first_timestamp: int) -> tuple[Tensor, Tensor]:
    """Smoothed cross-entropy of the tokens.

    Returns:
        The loss; and for the log, in one tensor: the NLL of text, the share of correct text tokens, and the mean error
        of timestamps in ms.
    """
    logits = F.linear(hidden, embedding.to(hidden.dtype)).float()
    log_sum = logits.logsumexp(-1)
    counts = targets >= 0
    wanted = targets.clamp_min(0)
    nll = log_sum - logits.gather(-1, wanted[..., None])[..., 0]
    is_timestamp = wanted >= first_timestamp
    last = logits.shape[-1] - 1
    timestamp_loss = torch.zeros_like(nll)
    for offset, weight in TIMESTAMP_SMOOTHING:
        near = (wanted + offset).clamp(first_timestamp, last)
        timestamp_loss = timestamp_loss + weight * (log_sum - logits.gather(-1, near[..., None])[..., 0])
    # Smoothing covers text tokens only. If timestamps got probability inside a doubtful word, Whisper's rule, which
    # compares the sum over all timestamps with the most likely token, would end the sentence there.
    uniform = log_sum - logits[..., :first_timestamp].mean(-1)
    each = torch.where(is_timestamp, timestamp_loss, (1 - TEXT_SMOOTHING) * nll + TEXT_SMOOTHING * uniform)
    is_text, is_timestamp = (counts & ~is_timestamp).float(), (counts & is_timestamp).float()
    n_text, n_timestamps = is_text.sum().clamp_min(1), is_timestamp.sum().clamp_min(1)
    correct = ((logits.argmax(-1) == wanted).float() * is_text).sum() / n_text
    off = (logits[..., first_timestamp:].argmax(-1) - (wanted - first_timestamp)).abs().clamp(max=50).float()
    figures = torch.stack([(nll * is_text).sum() / n_text, correct, (off * is_timestamp).sum() / n_timestamps * 20])
    return (each * counts.float()).sum() / counts.float().sum().clamp_min(1), figures.detach()


def character_loss(classes: Tensor, wanted: Tensor, counts: NDArray[np.int64]) -> Tensor:
    """CTC loss per character of the logits `(rows, states, classes)`.

    Args:
        classes: logits of the CTC head.
        wanted: the characters of all rows, one row after the other.
        counts: the number of characters of each row.
    """
    rows, n_states, _ = classes.shape
    losses = F.ctc_loss(
        classes.float().log_softmax(-1).transpose(0, 1),
        wanted,
        torch.full((rows,), n_states, dtype=torch.long),
        torch.from_numpy(counts),
        reduction="none",
        zero_infinity=True,
    )
    # Windows with little or no speech are divided by their frames. Otherwise they would dominate the gradient.
    return (losses / torch.from_numpy(np.maximum(counts, n_states // 10)).to(classes.device)).mean()
