"""Checks windows before they are queued, so that one that cannot be decoded does not harm the others."""

import math

import numpy as np

from tutti_server.engine.api import (
    MAX_BEAM_SIZE,
    MAX_BEST_OF,
    MAX_HOTWORD_BYTES,
    MAX_HOTWORDS,
    MAX_LENGTH_PENALTY,
    MAX_PATIENCE,
    MAX_TEMPERATURE,
    MAX_TEMPERATURES,
    SAMPLE_RATE,
    WINDOW_S,
    WINDOW_SAMPLES,
    DecodeOptions,
    Priority,
    Sampling,
    Task,
    Window,
)
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.prompt import max_output_tokens
from tutti_server.engine.errors import InvalidWindow

MAX_AMPLITUDE = 1024.0
"""The largest magnitude of a sample. Full scale is 1, and overshoot is harmless; unscaled integers are a mistake."""


def check_options(options: DecodeOptions, checkpoint: Checkpoint) -> int:
    """Check that the model can decode a window with these options.

    Returns:
        The most tokens that it may decode to, forced prefix included.

    Raises:
        InvalidWindow: names the field, what was expected and what came.
    """
    _check_values(options, checkpoint)
    return _check_prefix(options, checkpoint)


def tasks(checkpoint: Checkpoint) -> tuple[Task, ...]:
    """Return the tasks that a checkpoint's vocabulary has."""
    return ("transcribe", "translate") if checkpoint.generation.is_multilingual else ("transcribe",)


def check_samples(window: Window) -> None:
    """Check the parts of a window that need no model. Raises the errors of `check_options`."""
    samples = window.samples
    if not isinstance(samples, np.ndarray) or samples.dtype != np.float32 or samples.ndim != 1:
        got = f"{samples.dtype} of shape {samples.shape}" if isinstance(samples, np.ndarray) else type(samples).__name__
        raise InvalidWindow("samples", "a one-dimensional float32 array", got)
    if not 1 <= len(samples) <= WINDOW_SAMPLES:
        expected = f"1 to {WINDOW_SAMPLES} samples ({WINDOW_S} s at {SAMPLE_RATE} Hz)"
        raise InvalidWindow("samples", expected, len(samples))
    peak = max(-float(samples.min()), float(samples.max()))
    if not peak <= MAX_AMPLITUDE:  # true for NaN as well
        raise InvalidWindow("samples", "finite values in [-1, 1]", peak)
    if window.priority not in tuple(Priority):
        raise InvalidWindow("priority", "a Priority", window.priority)


def _check_values(options: DecodeOptions, checkpoint: Checkpoint) -> None:
    languages = checkpoint.generation.languages
    if checkpoint.generation.is_multilingual:
        if options.language is not None and options.language not in languages:
            raise InvalidWindow("language", f"one of {', '.join(languages)}, or None", options.language)
    elif options.language not in (None, "en"):
        raise InvalidWindow("language", "en or None: the model is English-only", options.language)
    _check_candidates(options, tuple(languages) if checkpoint.generation.is_multilingual else ("en",))
    if options.task not in tasks(checkpoint):
        raise InvalidWindow("task", " or ".join(tasks(checkpoint)), options.task)
    if options.translates and "translate" not in tasks(checkpoint):
        raise InvalidWindow("translates", "false: the model cannot translate", options.translates)
    if len(options.hotwords) > MAX_HOTWORDS:
        raise InvalidWindow("hotwords", f"at most {MAX_HOTWORDS}", len(options.hotwords))
    for hotword in options.hotwords:
        if not hotword.strip() or len(hotword.strip().encode()) > MAX_HOTWORD_BYTES:
            raise InvalidWindow("hotwords", f"words of 1 to {MAX_HOTWORD_BYTES} bytes", hotword)
    if options.max_tokens is not None and options.max_tokens < 1:
        raise InvalidWindow("max_tokens", "at least 1", options.max_tokens)
    _check_sampling(options.sampling)


def _check_candidates(options: DecodeOptions, known: tuple[str, ...]) -> None:
    """Check what the detection of the language is to choose among."""
    for language in options.languages:
        if language not in known:
            raise InvalidWindow("languages", f"some of {', '.join(known)}, or none for all", language)
    if options.language_bias and options.language is not None:
        raise InvalidWindow("language_bias", "none, as the language is given", options.language_bias)
    for language, bias in options.language_bias:
        if language not in (options.languages or known) or not math.isfinite(bias):
            raise InvalidWindow("language_bias", "finite numbers for candidates", {language: bias})


def _check_sampling(sampling: Sampling) -> None:
    temperatures = sampling.temperatures
    if not 1 <= len(temperatures) <= MAX_TEMPERATURES or not all(0 <= each <= MAX_TEMPERATURE for each in temperatures):
        expected = f"1 to {MAX_TEMPERATURES} numbers from 0 to {MAX_TEMPERATURE:g}"
        raise InvalidWindow("temperatures", expected, temperatures)
    if not 1 <= sampling.best_of <= MAX_BEST_OF:
        raise InvalidWindow("best_of", f"1 to {MAX_BEST_OF}", sampling.best_of)
    if not 1 <= sampling.beam_size <= MAX_BEAM_SIZE:
        raise InvalidWindow("beam_size", f"1 to {MAX_BEAM_SIZE}", sampling.beam_size)
    if sampling.beam_size == 1:
        for name, without in (("patience", 1.0), ("length_penalty", None), ("sure_logprob", None)):
            if getattr(sampling, name) != without:
                raise InvalidWindow(name, "none without beams: beam_size is 1", getattr(sampling, name))
    if sampling.sure_logprob is not None and not -math.inf < sampling.sure_logprob < 0:
        raise InvalidWindow("sure_logprob", "a finite number below 0, or None", sampling.sure_logprob)
    if not 0 < sampling.patience <= MAX_PATIENCE or round(sampling.beam_size * sampling.patience) < 1:
        expected = f"above 0 and at most {MAX_PATIENCE:g}, and at least 1 when multiplied by beam_size and rounded"
        raise InvalidWindow("patience", expected, sampling.patience)
    penalty = sampling.length_penalty
    if penalty is not None and not -MAX_LENGTH_PENALTY <= penalty <= MAX_LENGTH_PENALTY:
        raise InvalidWindow("length_penalty", f"-{MAX_LENGTH_PENALTY:g} to {MAX_LENGTH_PENALTY:g}, or None", penalty)


def _check_prefix(options: DecodeOptions, checkpoint: Checkpoint) -> int:
    tokenizer, vocab_size = checkpoint.tokenizer, checkpoint.model.vocab_size
    for name, tokens in (("prefix", options.prefix), ("draft", options.draft)):
        for token in tokens:
            if not 0 <= token < vocab_size or token == tokenizer.eot:
                raise InvalidWindow(name, f"token ids below {vocab_size}, without the end token", token)
    limit = max_output_tokens(checkpoint, options)
    if len(options.prefix) >= limit:
        expected = f"fewer than {limit} tokens, the most that may be decoded"
        raise InvalidWindow("prefix", expected, f"{len(options.prefix)} tokens")
    return limit
