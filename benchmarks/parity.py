"""Compares tutti with transformers on a real checkpoint, and measures word errors at rising concurrency.

    TUTTI_CHECKPOINT=openai/whisper-large-v3 python -m benchmarks.parity
    python -m benchmarks.parity --checkpoint ./whisper-small --manifest FILE.jsonl --concurrency 1,16

First, tokens: clips are decoded together by the engine, and each token must be the likeliest one to transformers. Then
`tutti serve` transcribes all recordings at each concurrency: texts must not depend on it. Without `--manifest` they are
the 511 clips of Earnings-22 with which others publish their figures. Without a checkpoint the command says that it is
skipped, and exits with 0; with one it exits with 1 when a token or a text differs, or a request failed.
"""

import asyncio
import io
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click
import numpy as np

from app.media.file_decoder import decode_file
from app.media.pcm import Samples
from benchmarks import asr, machine, report
from benchmarks.checkpoint_parity.tokens import compare_tokens, tokens_table
from benchmarks.files.audio_files import AudioFile, from_dataset, from_manifest, select_files
from benchmarks.files.endpoint import Endpoint
from benchmarks.options import (
    CONTEXT_SETTINGS,
    json_option,
    markdown_option,
    parse_numbers,
    serve_arguments_argument,
)
from benchmarks.server import running_server
from engine.api import WINDOW_S
from engine.checkpoint.checkpoint import read_checkpoint
from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.process_environment import prepare_environment

SCHEMA = 1
VARIABLE = "TUTTI_CHECKPOINT"
"""The environment variable that names a checkpoint."""
EARNINGS_22 = ("D4nt3/esb-datasets-earnings22-validation-tiny-filtered", None, "validation", "audio", "text")
"""The data set that others measure: its name, configuration, split, and the columns of audio and text."""
FIELDS = {"temperature": "0", "temperature_fallback": "false"}
"""Form fields of a request: greedy decoding, so that texts can be compared."""
TIMEOUT_S = 600.0
"""Timeout of a request, in seconds."""


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--checkpoint", envvar=VARIABLE, help=f"A folder or a model of the hub. Default: ${VARIABLE}.")
@click.option("--manifest", type=click.Path(path_type=Path), help="JSON Lines with file and text.")
@click.option("--concurrency", default="1,4,16,64,128", show_default=True, help="Numbers of concurrent requests.")
@click.option("--limit", type=click.IntRange(min=1), help="Use at most this number of recordings.")
@click.option("--clips", "n_clips", default=64, show_default=True, help="Recordings whose tokens are compared.")
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", default="float32", show_default=True, help="Of the engine whose tokens are compared.")
@json_option("parity")
@markdown_option
@serve_arguments_argument
def main(
    checkpoint: str | None,
    manifest: Path | None,
    concurrency: str,
    limit: int | None,
    n_clips: int,
    device: str,
    dtype: str,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Compare a checkpoint's tokens with transformers, and its texts at several levels of concurrency."""
    if not checkpoint:
        print("skipped: the parity of a real checkpoint needs TUTTI_CHECKPOINT=openai/whisper-large-v3, or another")
        return
    prepare_environment()
    # The server refuses variables that start like its settings and are none.
    os.environ.pop(VARIABLE, None)
    levels = parse_numbers("--concurrency", concurrency)
    try:
        found = read_checkpoint(checkpoint)
    except CheckpointError as error:
        raise click.ClickException(str(error)) from error
    config = EngineConfig(model=checkpoint, device=device, dtype=dtype, audio_context="full")  # type: ignore[arg-type]
    source = from_manifest(manifest) if manifest else from_dataset(*EARNINGS_22)
    recordings = select_files(source, max_seconds=WINDOW_S, limit=limit)
    result: dict[str, Any] = {
        "benchmark": "parity",
        "schema": SCHEMA,
        **machine.describe(),
        "model": checkpoint,
        "recordings": str(manifest or EARNINGS_22[0]),
        "n_recordings": len(recordings),
        "audio_s": sum(each.audio_s for each in recordings),
        "tokens": compare_tokens(config, found, [(each.name, samples_of(each)) for each in recordings[:n_clips]]),
    }
    serve = [f"--model={checkpoint}", f"--device={device}", f"--max-uploads={2 * max(levels)}", *serve_arguments]
    result["levels"] = measure_levels(serve, recordings, levels)
    report.show([tokens_table(result["tokens"]), asr.table(result)], result, as_markdown=markdown, path=path)
    complaints = complain(result)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    sys.exit(1 if complaints else 0)


def samples_of(recording: AudioFile) -> Samples:
    """The samples of a recording, decoded as the service decodes an upload."""

    async def collect() -> Samples:
        async with aclosing(decode_file(io.BytesIO(recording.audio))) as pieces:
            return np.concatenate([piece async for piece in pieces])

    return asyncio.run(collect())


def measure_levels(serve: list[str], recordings: list[AudioFile], levels: list[int]) -> list[dict[str, Any]]:
    """Transcribe all recordings with a server of its own at each level of concurrency."""
    results = []
    with running_server(serve) as server:
        for n in levels:
            load = asr.EndpointLoad(
                url=server.url,
                model="whisper-1",
                api_key=None,
                n_at_once=n,
                timeout_s=TIMEOUT_S,
                language="en",
                fields=FIELDS,
            )
            wall_s, answers = asyncio.run(asr.send_all(load, recordings, Endpoint.transcribe))
            results.append(asr.level_result(n, wall_s, recordings, answers, "en", None))
    return results


def complain(result: dict[str, Any]) -> list[str]:
    """The reasons for which the run fails."""
    tokens, (first, *others) = result["tokens"], result["levels"]
    found = [
        f"{name}: expected the likeliest tokens to transformers, within {tokens['near_tie']:g} of their logits"
        for name in tokens["other_tokens"]
    ]
    if not tokens["n_tokens"]:
        found.append("expected tokens, got none: no clip has text")
    for level in result["levels"]:
        found += [f"{level['concurrency']} at a time: {n} failed: {why}" for why, n in level["failures"].items()]
    for level in others:
        found += [
            f"{one['name']}: {one['text']!r} with {first['concurrency']} at a time, "
            f"{other['text']!r} with {level['concurrency']}"
            for one, other in zip(first["texts"], level["texts"], strict=True)
            if not (one["failure"] or other["failure"]) and one["text"] != other["text"]
        ]
    return found


if __name__ == "__main__":
    main()
