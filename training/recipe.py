"""Makes the embedded model: adapts a checkpoint to cut windows, then trains it in 4 bits.

    python -m training.recipe --original FOLDER --audio FOLDER --output FOLDER

The original is a folder of transformers, and the audio has no transcripts. Work of a run that was interrupted lies in
the output, and the same command goes on with it.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch

from training.four_bits import FourBitStudent
from training.ggml import write_model
from tutti_server.app.cli.adapt import read_folder
from tutti_server.engine.adaptation.clips import Clips, Samples
from tutti_server.engine.adaptation.reader import Reader, load_whisper
from tutti_server.engine.adaptation.trainer import EncoderStudent, Progress, Student, Trainer, Training
from tutti_server.engine.checkpoint.checkpoint import ADAPTED_AUDIO_CONTEXT, read_checkpoint
from tutti_server.engine.checkpoint.layout import GGML_WEIGHTS, read_json

LEARNING_RATE = 4e-5
REPORT_EVERY = 20
OPENAI_SIZES = (51_864, 51_865, 51_866)
"""The sizes of OpenAI's vocabularies."""
_COPIED = ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "config.json")


@click.command()
@click.option("--original", required=True, help="A folder of transformers.")
@click.option("--audio", required=True, help="A folder of recordings; each of its folders counts as one group.")
@click.option("--weights", default="", help="How often a group is drawn, as human=5,synthetic=3; others count once.")
@click.option("--output", required=True, type=click.Path(path_type=Path))
@click.option("--encoder-minutes", default=2.0, show_default=True, help="Minutes for the encoder alone, not rounded.")
@click.option("--minutes", default=12.0, show_default=True, help="Minutes for the whole model, in 4 bits.")
@click.option("--steps", type=int, help="Steps of each of the two, in place of minutes.")
@click.option("--batch", default=64, show_default=True, help="Clips of a step.")
def main(
    original: str, audio: str, weights: str, output: Path, encoder_minutes: float, minutes: float, **options: int
) -> None:
    """Make a model of 4 bits that hears cut windows, on a GPU if there is one."""
    folder = Path(original)
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = read_checkpoint(original)
    reader = Reader(load_whisper(folder, place), checkpoint, ())
    clips = Clips(_groups(Path(audio), weights), place, 0, checkpoint.model.max_source_positions)
    texts = output / "work" / "texts"
    texts.mkdir(parents=True, exist_ok=True)

    def train(student: Student, name: str, for_minutes: float) -> None:
        work = output / "work" / name
        work.mkdir(exist_ok=True)
        if not (work / "texts").exists():
            (work / "texts").symlink_to(texts.resolve())
        training = Training(minutes=for_minutes, learning_rate=LEARNING_RATE, **options)
        Trainer(reader, student, clips, training, work).train(lambda progress: _report(name, progress))

    encoder = EncoderStudent(reader)
    train(encoder, "encoder", encoder_minutes)
    adapted = load_whisper(folder, place)
    adapted.model.encoder.load_state_dict(encoder.encoder.state_dict())
    student = FourBitStudent(adapted)
    train(student, "four-bits", minutes)
    write_folder(student, folder, output)
    click.echo(f"{output}: written; {output / 'work'} can be deleted")


def write_folder(student: FourBitStudent, original: Path, output: Path) -> None:
    """Write a student, and what its file has no place for: a tokenizer and defaults that are not OpenAI's."""
    output.mkdir(parents=True, exist_ok=True)
    config = read_json(original / "config.json")
    write_model(student, config, output / GGML_WEIGHTS)
    is_openais = config["vocab_size"] in OPENAI_SIZES
    defaults: dict[str, Any] = {} if is_openais else read_json(original / "generation_config.json")
    defaults["tutti_audio_context"] = asdict(ADAPTED_AUDIO_CONTEXT)
    # docs/results/accuracy.md
    defaults["tutti_adaptive_endpointing"] = True
    (output / "generation_config.json").write_text(json.dumps(defaults, indent=1) + "\n", encoding="utf-8")
    for name in () if is_openais else (each for each in _COPIED if (original / each).exists()):
        (output / name).write_bytes((original / name).read_bytes())


def _groups(audio: Path, weights: str) -> list[Samples]:
    """All recordings; those of a group as often as it is drawn."""
    counts = {name: int(count) for name, _, count in (each.partition("=") for each in weights.split(",") if each)}
    folders = sorted(each for each in audio.iterdir() if each.is_dir())
    if unknown := counts.keys() - {each.name for each in folders}:
        raise click.UsageError(f"--weights: expected folders of {audio}, got {', '.join(sorted(unknown))}")
    return [
        recorded.samples
        for folder in folders
        for recorded in read_folder(str(folder), {})
        for _ in range(counts.get(folder.name, 1))
    ]


def _report(name: str, progress: Progress) -> None:
    if progress.step % REPORT_EVERY == 0:
        click.echo(f"{name}: step {progress.step}, loss {progress.loss:.4f}, {progress.seconds_left:.0f} s left")


if __name__ == "__main__":
    main()
