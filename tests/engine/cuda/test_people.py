"""Recordings of people through the embedded model in the formats of a GPU.

`pytest -m gpu --log-cli-level INFO tests/engine/cuda/test_people.py` shows the errors of each.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.files.clip_scores import clip_errors
from benchmarks.files.labelled_clips import DEFAULT_MANIFEST, Clip, in_versions, load_clips
from benchmarks.files.systems import ChannelResult, ClipResult
from benchmarks.live.text_runs import run_file
from benchmarks.scoring import WordErrors
from tutti_server.app.service.settings import Settings
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

PLAIN = EngineConfig(device="cuda", dtype="bfloat16", n_slots=64, max_encode_batch=16)
FORMATS: dict[str, dict[str, Any]] = {
    "float16": {"dtype": "float16"},
    "keys and values in 8 bits": {"cross_cache": "int8"},
    "encoder states": {"cross_cache": "states"},
    "an encoder in 8 bits": {"encoder_dtype": "fp8"},
    "both in 8 bits": {"encoder_dtype": "fp8", "cross_cache": "int8"},
}
KINDS = ("read", "short", "spontaneous", "digits-8k", "multilingual", "long", "telephone-8k", "noisy")
N_VERSIONS = 2
MOST_POINTS = 0.3
"""By how many percent of the words a format may be worse than bfloat16."""


async def errors_of(config: EngineConfig, clips: Sequence[Clip]) -> WordErrors:
    """The wrong words of all clips, as files."""
    async with Engine.start(config) as engine:
        some = asyncio.Semaphore(32)

        async def transcribed(clip: Clip) -> WordErrors:
            samples = [channel.astype(np.float32) / np.float32(32768) for channel in clip.channels]
            async with some:
                texts = [
                    await run_file(engine, channel, clip.named_language, Settings().session_config)
                    for channel in samples
                ]
            return clip_errors(ClipResult(clip, tuple(map(ChannelResult, texts))))

        return sum(await asyncio.gather(*map(transcribed, clips)), WordErrors())


def percent(errors: WordErrors) -> float:
    return 100 * (errors.rate or 0.0)


async def test_no_format_costs_words() -> None:
    if not DEFAULT_MANIFEST.exists():
        pytest.skip("the recordings of people are not beside this repository")
    originals = load_clips(DEFAULT_MANIFEST, [f"human-{kind}" for kind in KINDS])
    clips = [version for clip in originals for version in in_versions(clip, N_VERSIONS)]
    plain = percent(await errors_of(PLAIN, clips))
    found = {name: percent(await errors_of(replace(PLAIN, **changes), clips)) for name, changes in FORMATS.items()}
    logger.info("percent of words: bfloat16 %.2f, %s", plain, found)
    assert all(errors <= plain + MOST_POINTS for errors in found.values()), (plain, found)
