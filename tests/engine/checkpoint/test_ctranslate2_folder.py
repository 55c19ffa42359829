"""Checkpoints of CTranslate2 give the model that the same checkpoint gives in transformers' form."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.checkpoint_writers import CTRANSLATE2_TYPES, GIT_POINTER, patch, write_ctranslate2
from tests.engine.checkpoints import SHAPES, assert_same_weights, make_checkpoint, weights_of
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.errors import CheckpointError

TOLERANCES = {"float32": 0.0, "float16": 6e-4, "bfloat16": 5e-3, "int16": 6e-4}
"""How far a number may be from the original, as a part of the largest one; in 8 bits 1/254 and a little."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint of transformers. Its words and languages are not those of OpenAI."""
    return make_checkpoint(tmp_path_factory.mktemp("base") / "base", SHAPES[2])


@pytest.mark.parametrize("quantization", CTRANSLATE2_TYPES)
def test_every_type_of_numbers_is_read(base: Path, tmp_path: Path, quantization: str) -> None:
    """Whole numbers are divided by the scale of their row. What occurs twice is stored once, with an alias."""
    folder = write_ctranslate2(base, tmp_path / "ct2", quantization)
    assert_same_weights(folder, base, TOLERANCES.get(quantization, 8e-3))


def test_sizes_and_defaults_are_those_of_transformers(base: Path, tmp_path: Path) -> None:
    """Sizes come from the shapes of the weights, defaults from config.json."""
    read, expected = read_checkpoint(str(write_ctranslate2(base, tmp_path / "ct2"))), read_checkpoint(str(base))
    assert read.model == expected.model
    for name in ("suppress_tokens", "begin_suppress_tokens", "max_initial_timestamp_index", "alignment_heads"):
        assert getattr(read.generation, name) == getattr(expected.generation, name), name


@pytest.mark.parametrize("vocabulary", ["json", "txt"])
def test_a_missing_tokenizer_is_built_from_the_vocabulary(base: Path, tmp_path: Path, vocabulary: str) -> None:
    """Old conversions have none. Merges follow from the order of the tokens."""
    folder = write_ctranslate2(base, tmp_path / "ct2", vocabulary=vocabulary)
    (folder / "tokenizer.json").unlink()
    tokenizer, expected = read_checkpoint(str(folder)).tokenizer, read_checkpoint(str(base)).tokenizer
    text = " the other, then Ünïcode 東京"
    assert tokenizer.encode(text) == expected.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.languages, tokenizer.first_timestamp) == (expected.languages, expected.first_timestamp)


def test_without_config_json_the_defaults_are_those_of_openai(base: Path, tmp_path: Path) -> None:
    """No bracket begins a text, and no control token is sampled."""
    folder = write_ctranslate2(base, tmp_path / "ct2")
    (folder / "config.json").unlink()
    checkpoint = read_checkpoint(str(folder))
    tokenizer, generation = checkpoint.tokenizer, checkpoint.generation
    assert {*tokenizer.encode("[("), tokenizer.sot, tokenizer.no_speech} <= {*generation.suppress_tokens}
    assert generation.begin_suppress_tokens == (*tokenizer.encode(" "), tokenizer.eot)


FIRST = 4 + 14 + 4 + 4
"""Where the first variable begins: decoder/embeddings/weight."""
SHAPE = FIRST + 2 + len("decoder/embeddings/weight") + 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:100_000], r"expected \d+ bytes of .* at byte \d+, got \d+; the file is incomplete"),
        (lambda content: content[:30], r"bytes of a name at byte 28, got 2; the file is incomplete"),
        (lambda _: b"", r"expected 4 bytes of a version at byte 0, got 0"),
        (lambda _: GIT_POINTER, r"model\.bin: expected weights, got a pointer of Git LFS; run `git lfs pull`"),
        (lambda content: content[:-1], "expected .* bytes of .*; the file is incomplete"),
        (patch(0, "<I", 5), r"expected a WhisperSpec of CTranslate2 in version 6, got a file in version 5"),
        (lambda content: content.replace(b"WhisperSpec", b"WhisperSp\0c", 1), r"expected a WhisperSpec"),
        (patch(FIRST, "<H", 65_535), r"expected a name of 1 to 256 bytes, got one of 65535"),
        (patch(FIRST, "<H", 0), r"expected a name of 1 to 256 bytes, got one of 0"),
        (patch(SHAPE, "<B", 200), "expected up to 4 dimensions, got 200"),
        (patch(SHAPE + 1, "<I", 2**32 - 1), r"expected \d+ bytes for the shape \(4294967295, "),
        (patch(SHAPE + 9, "<B", 77), "expected a type of numbers below 6, got 77"),
        (lambda content: content.replace(b"ffn/linear_1", b"ffn/linear_7"), r"weights missing: .*fc2"),
        (lambda content: content.replace(b"num_heads", b"num_hoods"), "expected the number .*/num_heads, got none"),
        (lambda content: content.replace(b"conv1", b"conv7"), "expected the weights of .*, got none named"),
    ],
)  # fmt: skip
def test_broken_files_are_refused(base: Path, tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    """The error says what was expected. No size in the file makes it take memory that the file does not have."""
    file = write_ctranslate2(base, tmp_path / "ct2") / "model.bin"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointError, match=message):
        weights_of(file.parent)


def test_whole_numbers_without_a_scale_are_refused(base: Path, tmp_path: Path) -> None:
    """They would be off by a factor."""
    file = write_ctranslate2(base, tmp_path / "ct2", "int8") / "model.bin"
    file.write_bytes(file.read_bytes().replace(b"conv1/weight_scale", b"conv1/weight_spale"))
    with pytest.raises(CheckpointError, match=r"encoder/conv1/weight: expected one scale, or one .* rows, got none"):
        weights_of(file.parent)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b'{"lang_ids": 3}', r"config\.json: lang_ids: expected a list of token ids, got 3"),
        ("vocabulary.txt", b"\xff", r"vocabulary\.txt: expected text in UTF-8, got: .*"),
        ("vocabulary.json", b'["a", "b"]', "expected the tokens of Whisper"),
        ("vocabulary.json", '["東", "<|endoftext|>"]'.encode(), "expected the tokens of Whisper"),
        ("vocabulary.txt", None, r"expected tokenizer\.json, vocabulary\.json or vocabulary"),
    ],
)
def test_broken_files_beside_the_weights_are_refused(
    base: Path, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    """And missing ones: a tokenizer, or the names of all tokens."""
    folder = write_ctranslate2(base, tmp_path / "ct2", vocabulary="txt")
    (folder / "tokenizer.json").unlink()
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(str(folder))


@pytest.mark.parametrize("quantization", CTRANSLATE2_TYPES)
def test_files_of_its_own_converter_are_read(base: Path, tmp_path: Path, quantization: str) -> None:
    """As with the files of our writer, which tests have in its place where it is not installed."""
    converters = pytest.importorskip("ctranslate2.converters", reason="ctranslate2 is not installed")
    converter = converters.TransformersConverter(str(base), copy_files=["tokenizer.json"])
    converter.convert(str(tmp_path / "ct2"), quantization=quantization)
    assert_same_weights(tmp_path / "ct2", base, TOLERANCES.get(quantization, 8e-3))
