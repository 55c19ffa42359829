"""Measures a checkpoint, prints a table with its targets, and writes the table into the model card.

Inputs are checked before anything runs. A part without its clips is shown as "not measured", never left out.
"""

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from engine.checkpoint.checkpoint import EMBEDDED_FOLDER
from training.evaluation import accuracy, agreement, non_speech, timestamps
from training.evaluation.bench import SEED, Bench
from training.evaluation.card import CardError, Row, as_json, make_row, markdown, read_around, replace_table
from training.evaluation.clips import read_manifest
from training.evaluation.held_out import Voices
from training.evaluation.subjects import Subject
from training.speech.speak import has_synthesisers

logger = logging.getLogger(__name__)

MAX_MB = 24.0
"""Target for the size of the weights, in MB."""


async def size(bench: Bench) -> list[Row]:
    """Measure the size of the weights on disk."""
    n_bytes = (bench.model / "model.safetensors").stat().st_size
    return [make_row("Size", "model.safetensors", n_bytes / 1e6, "MB", MAX_MB)]


PARTS: dict[str, Callable[[Bench], Awaitable[list[Row]]]] = {
    "sentences": accuracy.sentences,
    "voices": accuracy.voices,
    "dialogues": accuracy.dialogues,
    "telephone": accuracy.telephones,
    "noise": accuracy.noise,
    "nonspeech": non_speech.nonspeech,
    "segments": timestamps.segments,
    "words": timestamps.word_times,
    "context": agreement.context,
    "prompts": agreement.prompts,
    "parity": agreement.parity,
    "size": size,
    "people": accuracy.people,
}


async def evaluate(args: argparse.Namespace) -> list[Row]:
    """Run the chosen parts, and write the texts of listed clips beside the JSON."""
    voices = Voices(args.root, SEED) if has_synthesisers(args.root) else None
    rows: list[Row] = []
    async with Subject.start(str(args.model)) as subject:
        bench = Bench(
            subject=subject,
            model=args.model,
            audio=args.audio,
            lines=read_manifest(args.audio),
            voices=voices,
        )
        for name in args.only:
            part_started_at = time.monotonic()
            rows += await PARTS[name](bench)
            logger.info("%s: %.0f s", name, time.monotonic() - part_started_at)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"file": name, "hyp": text}, ensure_ascii=False) for name, text in bench.hypotheses.items()]
    args.json.with_suffix(".hypotheses.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return rows


def notes(args: argparse.Namespace) -> list[str]:
    """Notes below the table: what is missing, and how errors are counted."""
    found = []
    if not read_manifest(args.audio):
        found.append(f"Without the shared audio ({args.audio} holds no manifest): only own sentences were measured.")
    if not has_synthesisers(args.root):
        found.append(f"Without the synthesisers ({args.root}): no own sentences were measured.")
    if left_out := [name for name in PARTS if name not in args.only]:
        found.append("Parts left out: " + ", ".join(left_out) + ".")
    return [
        *found,
        "Word error rates by `word_normaliser.py` (the Whisper paper's normaliser, spelled-out codes joined); "
        "greedy, with timestamps, one decoding attempt, as in the service.",
        "Noise: power of the speech in its 20 ms frames within 35 dB of the loudest, against the noise's mean power.",
    ]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m training.evaluate", description=__doc__)
    parser.add_argument("--model", type=Path, default=EMBEDDED_FOLDER, help="checkpoint folder")
    parser.add_argument("--audio", type=Path, default=Path("../shared/audio"), help="folder with a manifest.jsonl")
    parser.add_argument(
        "--root", type=Path, default=Path("build/training/synthesisers"), help="folder made by synthesisers.sh, or /"
    )
    parser.add_argument("--json", type=Path, default=Path("build/training/evaluation.json"), help="file for the result")
    parser.add_argument("--card", type=Path, help="model card whose table is replaced")
    parser.add_argument(
        "--only", type=_parts, default=list(PARTS), metavar="PART,...", help="parts to run: " + ", ".join(PARTS)
    )
    return parser.parse_args(arguments)


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    return [name for name in PARTS if name in names]


def main() -> None:
    """Run the evaluation."""
    args = parse_arguments(sys.argv[1:])
    if args.card:
        try:
            read_around(args.card)
        except CardError as error:
            sys.exit(f"--card: {error}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logger.setLevel(logging.INFO)
    rows = asyncio.run(evaluate(args))
    table = markdown(rows, notes(args))
    args.json.write_text(json.dumps(as_json(rows), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(table + "\n")
    if args.card:
        replace_table(args.card, table)


if __name__ == "__main__":
    main()
