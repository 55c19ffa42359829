"""The command that makes the embedded model, and the comparison with its original."""

import shutil
from pathlib import Path

from click.testing import CliRunner

from tests.engine.checkpoints import Shape, make_checkpoint
from training.original import different_weights
from training.recipe import main
from tutti_server.engine.checkpoint.checkpoint import AudioContext, read_checkpoint

SHAPE = Shape("four-bits", languages=("en", "de"), d_model=256, encoder_layers=1, decoder_layers=1)
CLIP = Path(__file__).parents[1] / "audio" / "hello.flac"


def test_the_recipe_writes_a_folder_that_is_read(tmp_path: Path) -> None:
    """It has cut windows, and other weights than the original; the tokenizer is not OpenAI's and is kept."""
    folder = make_checkpoint(tmp_path / "original", SHAPE)
    (tmp_path / "audio" / "people").mkdir(parents=True)
    shutil.copy(CLIP, tmp_path / "audio" / "people")
    arguments = ["--original", str(folder), "--audio", str(tmp_path / "audio"), "--output", str(tmp_path / "new")]
    ran = CliRunner().invoke(main, [*arguments, "--weights", "people=2", "--steps", "1", "--batch", "1"])
    assert ran.exit_code == 0, ran.output
    generation = read_checkpoint(str(tmp_path / "new")).generation
    assert generation.audio_context == AudioContext(min_frames=300, margin_frames=50)
    assert not different_weights(str(folder), str(folder))
    assert "model.decoder.embed_tokens.weight" in different_weights(str(folder), str(tmp_path / "new"))
    ran = CliRunner().invoke(main, [*arguments, "--weights", "voices=2"])
    assert ran.exit_code != 0 and "expected folders of" in ran.output
