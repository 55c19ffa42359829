"""Compares the tokens that the engine decodes with those that transformers would, on the same checkpoint and audio.

transformers runs once over the whole text of the engine. Each token of the engine must then be the likeliest one after
those before it, under the rules of the checkpoint: so must be the text that greedy decoding gives. It is faster than
decoding again, and after a near tie, where rounding decides, the rest is still compared.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE, DecodeOptions, DoneEvent, Transcriber, Window
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding.prompt import build_prompt

OPTIONS = DecodeOptions(language="en", timestamps=False)
"""Options of a window: greedy, without timestamps. Their rules are not those of transformers' `generate` alone."""
NEAR_TIE = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
"""By how much the logit of the likeliest token may exceed that of the engine's token, by the engine's dtype."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the engine decoded of a clip."""

    name: str
    samples: Samples
    tokens: tuple[int, ...]
    """Text tokens, and the end token where the model ended the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How the tokens of a clip compare."""

    name: str
    n_tokens: int
    n_likeliest: int
    """Tokens that are the likeliest to transformers, too."""
    worst_gap: float
    """The largest difference of logits between transformers' likeliest token and the engine's."""


async def decode_all(engine: Transcriber, clips: Sequence[tuple[str, Samples]], eot: int) -> list[Decoded]:
    """Decode all clips at the same time.

    Raises:
        EngineError: a window failed.
    """

    async def decode(name: str, samples: Samples) -> Decoded:
        async with engine.submit(Window(samples=samples, session=name, options=OPTIONS)) as events:
            (done,) = [event async for event in events if isinstance(event, DoneEvent)]
        tokens = tuple(token for piece in done.pieces for token in piece.tokens)
        is_ended = not (done.is_truncated or done.is_repetitive)
        return Decoded(name, samples, (*tokens, eot) if is_ended else tokens)

    return list(await asyncio.gather(*(decode(*clip) for clip in clips)))


class TransformersModel:
    """The checkpoint as transformers loads it, in float32."""

    def __init__(self, folder: Path, device: str) -> None:
        """Load the checkpoint from its folder onto `cpu` or `cuda`."""
        import torch
        from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

        # Of any type: its configuration has fields that transformers does not declare.
        model = cast(Any, WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32))
        self._model = model.to(device).train(False)
        self._device = device
        n_mels = self._model.config.num_mel_bins
        self._extractor = WhisperFeatureExtractor(feature_size=n_mels)

    def compare(self, decoded: Decoded, control: Sequence[int]) -> Compared:
        """Compare the tokens of one clip.

        Args:
            decoded: what the engine decoded.
            control: the control tokens before the text.
        """
        import torch

        with torch.inference_mode():
            features = self._extractor(decoded.samples, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
            tokens = torch.tensor([[*control, *decoded.tokens]], device=self._device)
            output = self._model(features.to(self._device), decoder_input_ids=tokens[:, :-1])
            logits = output.logits[0, len(control) - 1 :]
            rules = self._model.generation_config
            logits[:, rules.suppress_tokens or []] = -torch.inf
            logits[:1, rules.begin_suppress_tokens or []] = -torch.inf
            gaps = logits.amax(-1) - logits.gather(1, tokens[0, len(control) :, None])[:, 0]
        return Compared(
            name=decoded.name,
            n_tokens=len(decoded.tokens),
            n_likeliest=int((gaps == 0).sum()),
            worst_gap=float(gaps.max()) if len(gaps) else 0.0,
        )


def compare_tokens(
    config: EngineConfig, checkpoint: Checkpoint, clips: Sequence[tuple[str, Samples]]
) -> dict[str, Any]:
    """Decode the clips with the engine, then compare with transformers on the same device.

    Args:
        config: the engine's settings.
        checkpoint: the checkpoint that they name. It has a folder.
        clips: names and samples, each of at most 30 s.
    """
    from tutti_server.engine.engine import Engine

    async def decode() -> tuple[list[Decoded], str, str]:
        async with Engine.start(config) as engine:
            decoded = await decode_all(engine, clips, checkpoint.tokenizer.eot)
            return decoded, engine.info.dtype, engine.info.device

    decoded, dtype, device = asyncio.run(decode())
    assert checkpoint.path is not None
    reference = TransformersModel(checkpoint.path, device)
    control = build_prompt(checkpoint, OPTIONS, "en" if checkpoint.generation.is_multilingual else None).tokens
    rows = [reference.compare(each, control) for each in decoded if each.tokens]
    return {
        "dtype": dtype,
        "device": device,
        "near_tie": NEAR_TIE[dtype],
        "n_clips": len(rows),
        "n_empty": len(decoded) - len(rows),
        "n_tokens": sum(row.n_tokens for row in rows),
        "n_likeliest": sum(row.n_likeliest for row in rows),
        "worst_gap": max((row.worst_gap for row in rows), default=0.0),
        "other_tokens": [row.name for row in rows if row.worst_gap > NEAR_TIE[dtype]],
    }
