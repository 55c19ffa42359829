"""Word errors, latency and throughput of any OpenAI-compatible transcription endpoint under load.

    python -m benchmarks.asr --url http://127.0.0.1:8000 --manifest clips.jsonl --concurrency 1,8

No request is repeated. With `--stream` every recording is sent a second time, streamed: the table has the time to the
first text, and the texts must be the same. The command exits with 1 when a request failed or a streamed text differs.
"""

import asyncio
import shlex
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarks import machine, report
from benchmarks.files.audio_files import AudioFile, from_dataset, from_manifest, select_files
from benchmarks.files.endpoint import Answer, Endpoint, open_client, side_by_side
from benchmarks.files.streamed_endpoint import (
    StreamedAnswer,
    streamed_remarks,
    streamed_result,
    streamed_table,
    transcribe_streamed,
)
from benchmarks.options import (
    CONTEXT_SETTINGS,
    json_option,
    markdown_option,
    parse_numbers,
)
from benchmarks.report import NO_VALUE, Table, number
from benchmarks.scoring import WordErrors, count_errors, normaliser, percentile

SCHEMA = 1
AnswerT = TypeVar("AnswerT", Answer, StreamedAnswer)
N_SHOWN_ERRORS = 5
"""Different errors printed for each level, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The parts of a checkpoint that count tokens and normalise spellings."""

    count: Callable[[str], int]
    """Returns the number of tokens of a text, without special tokens."""
    spellings: dict[str, str]
    """American spellings by British spelling; empty if the checkpoint has no such table."""


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--url", required=True, help="Endpoint: http://host:port, with or without /v1.")
@click.option("--model", default="whisper-1", show_default=True, help="Model name sent to the endpoint.")
@click.option(
    "--api-key", envvar="TUTTI_API_KEY", help="Sent as a bearer token, never stored. Default: $TUTTI_API_KEY."
)
@click.option("--manifest", type=click.Path(path_type=Path), help="JSON Lines with file and text.")
@click.option("--kinds", default="", help="Kinds of the manifest to use, separated by commas. Default: all.")
@click.option("--dataset", help="Data set on the Hugging Face hub. Needs the package datasets.")
@click.option("--config", help="Configuration of the data set, if it has several.")
@click.option("--split", default="test", show_default=True)
@click.option("--audio-column", default="audio", show_default=True)
@click.option("--text-column", default="text", show_default=True)
@click.option(
    "--concurrency",
    default="1,8,64",
    show_default=True,
    help="Numbers of concurrent requests. Each number is a run of its own.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Use at most this number of recordings.")
@click.option("--max-seconds", type=float, help="Use only recordings shorter than this.")
@click.option(
    "--language", default="en", show_default=True, help="Sent with every request. Empty: the endpoint detects it."
)
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another form field, such as temperature=0. Repeatable.",
)
@click.option(
    "--tokenizer", "checkpoint", help="Checkpoint whose tokenizer counts tokens and whose spelling table is used."
)
@click.option("--samples", default=3, show_default=True, help="Number of predictions to print.")
@click.option("--timeout", "timeout_s", default=600.0, show_default=True, help="Timeout of one request, in seconds.")
@click.option("--stream", "is_streamed", is_flag=True, help="Send every recording streamed, too.")
@json_option("asr")
@markdown_option
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
    is_streamed: bool,
    path: Path,
    markdown: bool,
) -> None:
    """Send recordings to an endpoint at several levels of concurrency, and measure accuracy and speed."""
    levels = parse_numbers("--concurrency", concurrency)
    if unreadable := [each for each in fields if "=" not in each]:
        raise click.BadParameter(f"expected NAME=VALUE, got {unreadable[0]!r}", param_hint="--field")
    if manifest and not dataset:
        source = from_manifest(manifest, [kind for kind in kinds.split(",") if kind])
    elif dataset and not manifest:
        source = from_dataset(dataset, config, split, audio_column, text_column)
    else:
        raise click.UsageError("expected one of --manifest and --dataset")
    recordings = select_files(source, max_seconds=max_seconds, limit=limit)
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
        load = EndpointLoad(
            url=url,
            model=model,
            api_key=api_key,
            n_at_once=n,
            timeout_s=timeout_s,
            language=language or None,
            fields=result["fields"],
        )
        wall_s, answers = asyncio.run(send_all(load, recordings, Endpoint.transcribe))
        result["levels"].append(level_result(n, wall_s, recordings, answers, language, tokenizer))
        if is_streamed:
            _, streamed = asyncio.run(send_all(load, recordings, transcribe_streamed))
            names = [each.name for each in recordings]
            result["levels"][-1]["streamed"] = streamed_result(answers, streamed, names)
    show(result, n_samples=samples, as_markdown=markdown, path=path)
    streams = [level["streamed"] for level in result["levels"] if is_streamed]
    if any(level["failed"] for level in result["levels"]) or any(
        each["failures"] or each["differences"] for each in streams
    ):
        sys.exit(1)


def show(result: dict[str, Any], *, n_samples: int, as_markdown: bool, path: Path) -> None:
    """Print the tables, what went wrong, and some predictions, and write the result."""
    streamed = [level for level in result["levels"] if "streamed" in level]
    tables = [table(result), *([streamed_table(streamed)] if streamed else [])]
    report.show(tables, result, as_markdown=as_markdown, path=path)
    lines = [*remarks(result), *streamed_remarks(streamed, N_SHOWN_ERRORS), *predictions(result, n_samples)]
    for line in lines:
        print(line, file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLoad:
    """One level of load: where requests go, how many are under way at once, and what each of them contains."""

    url: str
    model: str
    api_key: str | None
    n_at_once: int
    timeout_s: float
    language: str | None
    fields: dict[str, str]


def describe_without(secret: str | None) -> dict[str, Any]:
    """The machine and the command line of this run, with the API key removed from the command line."""
    described = machine.describe()
    for written in {secret, shlex.quote(secret)} if secret else ():
        described["command"] = described["command"].replace(written, "KEY")
    return described


async def send_all(
    load: EndpointLoad,
    recordings: Sequence[AudioFile],
    send: Callable[[Endpoint, bytes, str, str | None], Awaitable[AnswerT]],
) -> tuple[float, list[AnswerT]]:
    """Send all recordings with `send`.

    Returns the seconds from the first request to the last answer, and the answers in order.

    One unmeasured request goes first, because the first request pays for one-time costs.
    """
    answers: dict[int, AnswerT] = {}
    client = open_client(load.url, api_key=load.api_key, n_at_once=load.n_at_once, timeout_s=load.timeout_s)
    async with client:
        endpoint = Endpoint(client, load.model, load.fields)
        await send(endpoint, recordings[0].audio, recordings[0].name, load.language)
        label = f"{load.n_at_once} at a time"
        with click.progressbar(length=len(recordings), label=f"{label:16}", file=sys.stderr) as bar:

            async def transcribe(index: int) -> None:
                sample = recordings[index]
                answers[index] = await send(endpoint, sample.audio, sample.name, load.language)
                bar.update(1)

            begun = time.perf_counter()
            await side_by_side(range(len(recordings)), load.n_at_once, transcribe)
            wall_s = time.perf_counter() - begun
    return wall_s, [answers[index] for index in range(len(recordings))]


def level_result(
    n_at_once: int,
    wall_s: float,
    recordings: Sequence[AudioFile],
    answers: Sequence[Answer],
    language: str,
    tokenizer: Tokenizer | None,
) -> dict[str, Any]:
    """The figures of one level. They cover answered requests only; failed requests are counted separately."""
    # A language that is not given is taken to be English.
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
    """The unit of output and its amount: tokens if a tokenizer or every answer gives them, words otherwise."""
    if tokenizer:
        return "tokens", sum(tokenizer.count(answer.text) for answer in answers)
    reported = [answer.n_tokens for answer in answers if answer.n_tokens is not None]
    if reported and len(reported) == len(answers):
        return "tokens", sum(reported)
    return "words", sum(len(answer.text.split()) for answer in answers)


def load_tokenizer(checkpoint: str) -> Tokenizer:
    """Load the tokenizer of a checkpoint folder or of a model on the Hugging Face hub."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    return Tokenizer(
        lambda text: len(tokenizer(text, add_special_tokens=False).input_ids),
        getattr(tokenizer, "english_spelling_normalizer", None) or {},
    )


def table(result: dict[str, Any]) -> Table:
    """The table: one row for each number of concurrent requests."""
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
    """The errors of each level, the most frequent first."""
    return [
        f"{level['concurrency']} at a time: {n} failed: {failure}"
        for level in result["levels"]
        for failure, n in level["failures"].most_common(N_SHOWN_ERRORS)
    ]


def predictions(result: dict[str, Any], n: int) -> list[str]:
    """The first recordings with their reference and their answer at the first level."""
    return [
        f"{each['name']}\n  expected: {each['expected']}\n  heard:    {each['text'] or each['failure'] or NO_VALUE}"
        for each in result["levels"][0]["texts"][:n]
    ]


if __name__ == "__main__":
    main()
