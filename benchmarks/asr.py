"""Any OpenAI-compatible transcription endpoint under load: word errors, latency and throughput.

    python -m benchmarks.asr --url http://127.0.0.1:8000 --manifest clips.jsonl --concurrency 1,8

Nothing is asked twice. Exits with 1 when a request failed.
"""

import asyncio
import shlex
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.files.endpoint import Answer, Endpoint, open_client, side_by_side
from benchmarks.files.samples import Sample, from_dataset, from_manifest, take
from benchmarks.live.streams import parse_numbers
from benchmarks.report import NOTHING, Table, number
from benchmarks.scoring import WordErrors, count_errors, normaliser, percentile

SCHEMA = 1
N_SHOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """What is taken from a checkpoint to count and to compare as it would."""

    count: Callable[[str], int]
    """Tokens of a text, special ones left out."""
    spellings: dict[str, str]
    """British and American ones; empty if the checkpoint has no such table."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--url", required=True, help="The endpoint, http://host:port; /v1 may follow.")
@click.option("--model", default="whisper-1", show_default=True, help="The name that it serves.")
@click.option("--api-key", envvar="TUTTI_API_KEY", help="Sent as a bearer token; not kept. Default: $TUTTI_API_KEY.")
@click.option("--manifest", type=click.Path(path_type=Path), help="JSON Lines with file and text.")
@click.option("--kinds", default="", help="Kinds of the manifest to use, separated by commas. Default: all.")
@click.option("--dataset", help="Data set on the Hugging Face hub; needs the package datasets.")
@click.option("--config", help="Its configuration, if it has several.")
@click.option("--split", default="test", show_default=True)
@click.option("--audio-column", default="audio", show_default=True)
@click.option("--text-column", default="text", show_default=True)
@click.option("--concurrency", default="1,8,64", show_default=True, help="Requests at a time, one run for each.")
@click.option("--limit", type=click.IntRange(min=1), help="Use only so many recordings.")
@click.option("--max-seconds", type=float, help="Use only recordings shorter than this.")
@click.option("--language", default="en", show_default=True, help="Sent with every request; empty: detected.")
@click.option("--field", "fields", multiple=True, metavar="NAME=VALUE", help="Sent, too: temperature=0. Repeatable.")
@click.option("--tokenizer", "checkpoint", help="Checkpoint to count tokens with, and whose spellings to compare by.")
@click.option("--samples", default=3, show_default=True, help="Predictions to show.")
@click.option("--timeout", "timeout_s", default=600.0, show_default=True, help="Seconds for one request.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), default=Path("build/bench/asr.json"), show_default=True
)
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
def main(
    url: str,
    model: str,
    api_key: str | None,
    manifest: Path | None,
    kinds: str,
    dataset: str | None,
    config: str | None,
    split: str,
    audio_column: str,
    text_column: str,
    concurrency: str,
    limit: int | None,
    max_seconds: float | None,
    language: str,
    fields: tuple[str, ...],
    checkpoint: str | None,
    samples: int,
    timeout_s: float,
    path: Path,
    markdown: bool,
) -> None:
    """Have recordings transcribed, so many at a time, and measure what comes back and when."""
    levels = parse_numbers("--concurrency", concurrency)
    if unreadable := [each for each in fields if "=" not in each]:
        raise click.BadParameter(f"expected NAME=VALUE, got {unreadable[0]!r}", param_hint="--field")
    if manifest and not dataset:
        source = from_manifest(manifest, [kind for kind in kinds.split(",") if kind])
    elif dataset and not manifest:
        source = from_dataset(dataset, config, split, audio_column, text_column)
    else:
        raise click.UsageError("expected one of --manifest and --dataset")
    recordings = take(source, max_seconds=max_seconds, limit=limit)
    tokenizer = load_tokenizer(checkpoint) if checkpoint else None
    result: dict[str, Any] = {
        "benchmark": "asr",
        "schema": SCHEMA,
        **describe_without(api_key),
        "url": url,
        "model": model,
        "recordings": str(manifest or dataset),
        "n_recordings": len(recordings),
        "audio_s": sum(each.audio_s for each in recordings),
        "language": language,
        "fields": dict(each.split("=", 1) for each in fields),
        "tokenizer": checkpoint,
        "levels": [],
    }
    for n in levels:
        asked = DecodeRequest(url, model, api_key, n, timeout_s, language or None, result["fields"])
        wall_s, answers = asyncio.run(ask(asked, recordings))
        result["levels"].append(level_result(n, wall_s, recordings, answers, language, tokenizer))
    report.show([table(result)], result, as_markdown=markdown, path=path)
    for line in [*remarks(result), *predictions(result, samples)]:
        print(line, file=sys.stderr)
    if any(level["failed"] for level in result["levels"]):
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """How an endpoint is asked."""

    url: str
    model: str
    api_key: str | None
    n_at_once: int
    timeout_s: float
    language: str | None
    fields: dict[str, str]


def describe_without(secret: str | None) -> dict[str, Any]:
    """Where and how this was run, with the key left out of the command."""
    described = machine.describe()
    for written in {secret, shlex.quote(secret)} if secret else ():
        described["command"] = described["command"].replace(written, "KEY")
    return described


async def ask(asked: DecodeRequest, recordings: Sequence[Sample]) -> tuple[float, list[Answer]]:
    """Seconds from the first request to the last answer, and the answers in the order of the recordings.

    One request goes before, unmeasured: it pays for what happens once.
    """
    answers: dict[int, Answer] = {}
    client = open_client(asked.url, api_key=asked.api_key, n_at_once=asked.n_at_once, timeout_s=asked.timeout_s)
    async with client:
        endpoint = Endpoint(client, asked.model, asked.fields)
        await endpoint.transcribe(recordings[0].audio, recordings[0].name, asked.language)
        label = f"{asked.n_at_once} at a time"
        with click.progressbar(length=len(recordings), label=f"{label:16}", file=sys.stderr) as bar:

            async def transcribe(index: int) -> None:
                sample = recordings[index]
                answers[index] = await endpoint.transcribe(sample.audio, sample.name, asked.language)
                bar.update(1)

            begun = time.perf_counter()
            await side_by_side(range(len(recordings)), asked.n_at_once, transcribe)
            wall_s = time.perf_counter() - begun
    return wall_s, [answers[index] for index in range(len(recordings))]


def level_result(
    n_at_once: int,
    wall_s: float,
    recordings: Sequence[Sample],
    answers: Sequence[Answer],
    language: str,
    tokenizer: Tokenizer | None,
) -> dict[str, Any]:
    """All figures are of the requests that were answered; what failed is counted beside them."""
    # What is not known to be another language is taken for English.
    to_words = normaliser(language or "en", tokenizer.spellings if tokenizer else {})
    answered = [(sample, answer) for sample, answer in zip(recordings, answers, strict=True) if not answer.failure]
    errors = sum(
        (count_errors(to_words(sample.text), to_words(answer.text)) for sample, answer in answered), WordErrors()
    )
    latencies_s = [answer.latency_s for _, answer in answered]
    unit, n_output = count_output([answer for _, answer in answered], tokenizer)
    return {
        "concurrency": n_at_once,
        "wall_s": wall_s,
        "answered": len(answered),
        "failed": len(answers) - len(answered),
        "failures": Counter(answer.failure for answer in answers if answer.failure),
        "wer": errors.rate,
        "words": asdict(errors),
        "latency_s": {
            "mean": statistics.fmean(latencies_s) if latencies_s else None,
            "median": statistics.median(latencies_s) if latencies_s else None,
            "p95": percentile(latencies_s, 95),
            "max": max(latencies_s, default=None),
        },
        "requests_per_s": len(answered) / wall_s,
        "output_unit": unit,
        "output_per_s": n_output / wall_s,
        "audio_s_per_s": sum(sample.audio_s for sample, _ in answered) / wall_s,
        "texts": [
            {"name": sample.name, "expected": sample.text, **asdict(answer)}
            for sample, answer in zip(recordings, answers, strict=True)
        ],
    }


def count_output(answers: Sequence[Answer], tokenizer: Tokenizer | None) -> tuple[str, int]:
    """What there is to count, and how many: tokens by the tokenizer or the endpoint's own account, else words."""
    if tokenizer:
        return "tokens", sum(tokenizer.count(answer.text) for answer in answers)
    told = [answer.n_tokens for answer in answers if answer.n_tokens is not None]
    if told and len(told) == len(answers):
        return "tokens", sum(told)
    return "words", sum(len(answer.text.split()) for answer in answers)


def load_tokenizer(checkpoint: str) -> Tokenizer:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    return Tokenizer(
        lambda text: len(tokenizer(text, add_special_tokens=False).input_ids),
        getattr(tokenizer, "english_spelling_normalizer", None) or {},
    )


def table(result: dict[str, Any]) -> Table:
    """A row for each number of requests at a time."""
    units = {level["output_unit"] for level in result["levels"]}
    rows = [
        (
            str(level["concurrency"]),
            number(None if level["wer"] is None else 100 * level["wer"]),
            *(number(level["latency_s"][name], 3) for name in ("mean", "median", "p95")),
            number(level["requests_per_s"]),
            number(level["output_per_s"], 1),
            number(level["audio_s_per_s"], 1),
            str(level["failed"]) if level["answered"] else f"all {level['failed']}",
        )
        for level in result["levels"]
    ]
    return Table(
        f"{result['n_recordings']} recordings, {result['audio_s']:.0f} s, model {result['model']} (latencies in s)",
        (
            "requests\nat a time",
            "WER\n%",
            "mean\nlatency",
            "median\nlatency",
            "p95\nlatency",
            "requests\nper s",
            f"{' or '.join(sorted(units))}\nper s",
            "audio s\nper s",
            "failed",
        ),
        rows,
    )


def remarks(result: dict[str, Any]) -> list[str]:
    """What failed, the most frequent errors first."""
    return [
        f"{level['concurrency']} at a time: {n} failed: {failure}"
        for level in result["levels"]
        for failure, n in level["failures"].most_common(N_SHOWN_ERRORS)
    ]


def predictions(result: dict[str, Any], n: int) -> list[str]:
    """The first recordings as they were answered at the first concurrency."""
    return [
        f"{each['name']}\n  expected: {each['expected']}\n  heard:    {each['text'] or each['failure'] or NOTHING}"
        for each in result["levels"][0]["texts"][:n]
    ]


if __name__ == "__main__":
    main()
