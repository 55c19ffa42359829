"""Finding and reading checkpoints: old and new ones, complete and broken ones."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.engine.checkpoints import SHAPES, Shape, edit_json, make_checkpoint
from tests.small_model import SMALL_MODEL
from tutti_server.engine.checkpoint import checkpoint, openai
from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL
from tutti_server.engine.checkpoint.checkpoint import (
    MOST,
    find_checkpoint,
    is_hub_name,
    read_checkpoint,
)
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.weights import load_model

MULTILINGUAL, _, ENGLISH_ONLY, _ = SHAPES
LARGE_V3 = Shape("large-v3", languages=tuple(openai.LANGUAGES), n_mels=128, decoder_layers=2)
LARGE_V3_HEADS = ((7, 0), (10, 17), (12, 18), (13, 12), (16, 1), (17, 14), (19, 11), (21, 4), (24, 1), (25, 6))
"""Kotoba-Whisper lists the heads of the model that it was distilled from, of which its decoder has none."""
CRISPER_HEADS = ((0, 1), (1, 0), (1, 1))
"""CrisperWhisper lists heads of its own, which were chosen after it was trained for word times."""
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("made") / "checkpoint", MULTILINGUAL)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A small multilingual checkpoint that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "checkpoint"))


def load(folder: Path) -> None:
    load_model(read_checkpoint(str(folder)), CPU, torch.float32)


def test_sizes_and_defaults_are_read(folder: Path) -> None:
    """They come from config.json and generation_config.json."""
    checkpoint = read_checkpoint(str(folder))
    assert (checkpoint.model.d_model, checkpoint.model.n_mels, checkpoint.model.max_target_positions) == (64, 80, 448)
    generation = checkpoint.generation
    assert generation.is_multilingual
    assert list(generation.languages) == ["en", "de", "zh"]
    assert generation.suppress_tokens == (1, 2, 7)
    assert generation.begin_suppress_tokens == (220, checkpoint.tokenizer.eot)
    assert generation.max_initial_timestamp_index == 50
    assert not generation.adaptive_endpointing


def test_listed_alignment_heads_are_kept() -> None:
    """Word times need them."""
    listed = json.loads((Path(SMALL_MODEL) / "generation_config.json").read_text())["alignment_heads"]
    assert read_checkpoint(SMALL_MODEL).generation.alignment_heads == tuple(map(tuple, listed))
    assert 0 < len(listed) < 16


@pytest.mark.parametrize(
    ("shape", "heads"),
    [
        (replace(LARGE_V3, name="distil-whisper", encoder_layers=6), ((1, 0), (1, 1))),
        (
            replace(
                LARGE_V3, name="kotoba-whisper", encoder_layers=4, suppress=(), begin_suppress=(220,),
                alignment_heads=LARGE_V3_HEADS,
            ),
            ((1, 0), (1, 1)),
        ),
        (replace(LARGE_V3, name="crisper-whisper", alignment_heads=CRISPER_HEADS), CRISPER_HEADS),
    ],
    ids=["distil-whisper", "kotoba-whisper", "crisper-whisper"],
)  # fmt: skip
def test_published_shapes_are_loaded(tmp_path: Path, shape: Shape, heads: tuple[tuple[int, int], ...]) -> None:
    """Two decoder layers below many of the encoder, 128 mel bands, and other heads for word times."""
    folder = make_checkpoint(tmp_path / "model", shape)
    load(folder)
    checkpoint = read_checkpoint(str(folder))
    assert (checkpoint.model.encoder_layers, checkpoint.model.decoder_layers) == (shape.encoder_layers, 2)
    assert checkpoint.generation.alignment_heads == heads
    assert len(checkpoint.generation.languages) == 100


def test_what_is_not_listed_is_that_of_the_tokenizer_or_empty(folder: Path) -> None:
    """Old checkpoints have no `lang_to_id`; without lists nothing is suppressed, as in transformers."""
    edit_json(folder / "generation_config.json", lang_to_id=None, suppress_tokens=None, begin_suppress_tokens=None)
    generation = read_checkpoint(str(folder)).generation
    assert list(generation.languages) == ["en", "de", "zh"]
    assert (generation.suppress_tokens, generation.begin_suppress_tokens) == ((), ())


@pytest.mark.parametrize("shape", [MULTILINGUAL, ENGLISH_ONLY], ids=lambda shape: shape.name)
def test_a_checkpoint_without_generation_config_is_understood(tmp_path: Path, shape: Shape) -> None:
    """Forced ids in config.json show whether it is multilingual."""
    folder = make_checkpoint(tmp_path / "checkpoint", shape)
    tokenizer = read_checkpoint(str(folder)).tokenizer
    (folder / "generation_config.json").unlink()
    forced = [[1, None], [2, tokenizer.transcribe]] if shape.is_multilingual else [[1, tokenizer.no_timestamps]]
    edit_json(folder / "config.json", forced_decoder_ids=forced, suppress_tokens=[4, 5])
    generation = read_checkpoint(str(folder)).generation
    assert generation.is_multilingual == shape.is_multilingual
    assert bool(generation.languages) == shape.is_multilingual
    assert generation.suppress_tokens == (4, 5)


POSSIBLE = f"expected {EMBEDDED_MODEL}, a short name like small, a folder"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, POSSIBLE) for name in ("./nowhere", "/nowhere", "whisper", "a/b/c")),
        pytest.param("tubro", r"did you mean turbo\?$", id="a slip"),
        pytest.param("~unknown-user/whisper", "^~unknown-user/whisper: cannot be looked for: ", id="no such home"),
        pytest.param("a" * 300, "^a{300}: ", id="too long"),
        pytest.param(os.devnull, f"^{os.devnull}: cannot be read: ", id="neither a file nor a folder"),
    ],
)
def test_names_that_lead_to_no_checkpoint_are_refused(name: str, message: str) -> None:
    """The error says which names are possible, or why the path cannot be used."""
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(name)


def test_a_path_that_may_not_be_looked_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is fetched from the hub, and while it is looked for there."""

    def exists(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    for look in (find_checkpoint, is_hub_name):
        with pytest.raises(CheckpointError, match=r"^/model: cannot be looked for: .*Permission denied"):
            look("/model")


def test_a_short_name_is_fetched_unless_there_is_such_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As every other name, it is that of a folder first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoint, "fetch", lambda name, check: Path(name.repository))
    assert is_hub_name("base") and find_checkpoint("base") == Path("openai/whisper-base")
    (tmp_path / "base").mkdir()
    assert not is_hub_name("base") and find_checkpoint("base") == Path("base")


def config(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "config.json", **changes)


def generation(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "generation_config.json", **changes)


def write(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


Weights = dict[str, torch.Tensor]
EMBEDDING = "model.decoder.embed_tokens.weight"


def rewrite(change: Callable[[Weights], object]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return rewrite


def lose_part(folder: Path) -> None:
    """Let the index name a file that is not there."""
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = {"weight_map": {"a": "part.safetensors", "b": "gone.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_unreadable(file: Path) -> None:
    """Put a folder in its place: whoever runs the tests may read every file."""
    file.unlink(missing_ok=True)
    file.mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"config\.json: missing"),
        (write("config.json", "{"), r"config\.json: expected JSON, got: "),
        (write("config.json", "[" * 10**5), "config.json: expected JSON, got: "),
        (write("config.json", "9" * 5000), "config.json: expected JSON, got: "),
        (config(d_model=None), r"config\.json: .* got d_model None"),
        (config(d_model=True), "whole numbers, got d_model True"),
        (config(d_model=10**400), r"d_model of at most 8192, got 10{59}…$"),
        (config(encoder_layers=10**6), "encoder_layers of at most 256, got"),
        (config(max_source_positions=500), "max_source_positions of at least 1500, for windows of 30 s, got 500"),
        (config(max_target_positions=2**40), "max_target_positions of at mo"),
        (config(encoder_attention_heads=5), "d_model that encoder_attention"),
        (config(vocab_size=100), r"disagree: .* above \d+, .* got 100"),
        (config(activation_function="relu"), "expected .* gelu"),
        (config(encoder_ffn_dim=100), r"weights wrong: .*fc1\.weight"),
        (config(decoder_layers=3), r"missing: decoder\.layers\.2\."),
        (config(encoder_layers=1), r"left over: encoder\.layers\.1\..* more"),
        *(
            (generation(alignment_heads=wrong), "heads: expected pair")
            for wrong in ([7], {"0": 0}, [[0, 0.5]], [[0] * 3])
        ),
        (generation(suppress_tokens=[10**9]), "suppress_tokens: expected a list of token ids below"),
        (generation(suppress_tokens=[-1]), "suppress_tokens: expected a list of token ids below"),
        (generation(lang_to_id=["en"]), r"lang_to_id: expected token ids below \d+ by language, got \['en'\]"),
        (generation(lang_to_id={"<|en|>": "x", "<|de|>": 5}), "lang_to_id: expected token ids"),
        (generation(lang_to_id={"<|en|>": 10**9}), "lang_to_id: expected token ids"),
        (generation(is_multilingual="false"), "is_multilingual: expected true or false, got 'false'"),
        (
            generation(max_initial_timestamp_index="50"),
            "max_initial_timestamp_index: expected a whole number of at least 0, or null, got '50'",
        ),
        (
            generation(is_multilingual=None, lang_to_id=None, forced_decoder_ids=[3]),
            r"forced_decoder_ids: expected pairs of a position and a token id, got \[3\]",
        ),
        (
            generation(tutti_audio_context={"min_frames": -1}),
            r"tutti_audio_context: expected min_frames and margin_frames, 0 to 3000, got \{'min_frames': -1\}",
        ),
        (generation(tutti_adaptive_endpointing="yes"), r"adaptive_endpointing: expected true or false, got 'yes'"),
        (write("preprocessor_config.json", '{"hop_length": 80}'), "hop_length"),
        (lambda folder: (folder / "model.safetensors").unlink(), "got no weights"),
        (write("model.safetensors", "12345678"), "expected readable weights"),
        (lose_part, r"gone\.safetensors: missing"),
        (rewrite(lambda weights: weights.pop(EMBEDDING)), r"weights missing: decoder\.embed_tokens\.weight$"),
        (rewrite(lambda w: w.update({"model.extra.weight": torch.ones(1)})), r"weights left over: extra\.weight$"),
        (rewrite(lambda w: w.update({"proj_out.weight": w[EMBEDDING] + 1})), r"differs from decoder\.embed_tokens\."),
        (write("tokenizer.json", "{"), "tokenizer: expected readable files"),
        (lambda folder: make_unreadable(folder / "model.safetensors"), r"cannot be read: .*model\.safetensors"),
        (lambda folder: make_unreadable(folder / "preprocessor_config.json"), r"cannot be read: .*preprocessor_config"),
    ],
)
def test_broken_checkpoints_are_refused(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    """The error names the file, or the weights."""
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_sizes_that_the_weights_do_not_have_take_no_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest that `config.json` may name would be terabytes. No weight is allocated before all shapes agree."""
    largest = {("num_mel_bins" if name == "n_mels" else name): size for name, size in asdict(MOST).items()}
    edit_json(folder / "config.json", **largest)
    (folder / "preprocessor_config.json").unlink(missing_ok=True)
    monkeypatch.setattr("tutti_server.engine.model.weights.allocate", lambda *_: pytest.fail("memory was allocated"))
    with pytest.raises(CheckpointError, match="weights missing: "):
        load(folder)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [([[0, 0], [99, 0], [1, -1]], ((0, 0),)), ([[7, 0], [10, 17]], ((1, 0), (1, 1))), ([], ((1, 0), (1, 1)))],
)
def test_heads_outside_the_decoder_are_left_out(
    folder: Path, listed: list[list[int]], expected: tuple[tuple[int, int], ...]
) -> None:
    """If none are left, those of the upper half of the decoder are taken."""
    edit_json(folder / "generation_config.json", alignment_heads=listed)
    assert read_checkpoint(str(folder)).generation.alignment_heads == expected


def test_tokens_after_the_times_are_left_alone(folder: Path) -> None:
    """Some fine-tuned models have a larger vocabulary, whose last tokens were never trained."""
    before = read_checkpoint(str(folder))
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens(["<|filled_pause|>", "<|laughter|>"])
    backend.save(str(folder / "tokenizer.json"))
    rewrite(lambda w: w.update({EMBEDDING: torch.cat([w[EMBEDDING], torch.zeros(2, MULTILINGUAL.d_model)])}))(folder)
    edit_json(folder / "config.json", vocab_size=before.model.vocab_size + 2)
    load(folder)
    assert read_checkpoint(str(folder)).tokenizer.first_timestamp == before.tokenizer.first_timestamp


def test_tied_projection_may_be_in_the_file(folder: Path) -> None:
    """As it equals the token embedding."""
    rewrite(lambda w: w.update({"proj_out.weight": w[EMBEDDING].clone()}))(folder)
    load(folder)
