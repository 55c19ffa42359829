"""Makes the recordings of `benchmarks.endpointing`: synthetic calls whose pauses are known.

    training/synthesisers.sh build/synthesisers
    python -m benchmarks.paused_speech --synthesisers build/synthesisers --out build/pauses

They are in two kinds, `pauses-fit` and `pauses-test`, which share neither a sentence nor a voice.
"""

import json
from pathlib import Path

import click

from benchmarks.options import CONTEXT_SETTINGS
from benchmarks.pauses.speech import SETS, UTTERANCES, make
from training.speech.speak import has_synthesisers


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option(
    "--synthesisers",
    "root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder that training/synthesisers.sh has made.",
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write to.")
@click.option(
    "--recordings",
    "n_recordings",
    default=27,
    show_default=True,
    help=f"Recordings of {UTTERANCES} utterances, each kind.",
)
@click.option("--seed", default=1, show_default=True, help="Equal seeds give equal recordings.")
def main(root: Path, out: Path, n_recordings: int, seed: int) -> None:
    """Write recordings and their manifest."""
    if not has_synthesisers(root):
        raise click.ClickException(
            f"--synthesisers: expected a folder that training/synthesisers.sh has made, got {root}"
        )
    lines = [line for name in SETS for line in make(name, root, out, n_recordings, seed)]
    (out / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"Written: {len(lines)} recordings, {sum(line['seconds'] for line in lines) / 60:.1f} minutes, to {out}")


if __name__ == "__main__":
    main()
