"""Files of OpenAI's package and of whisper.cpp give the model that the same checkpoint gives in transformers' form."""

import hashlib
import lzma
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.checkpoint_writers import GGML_TYPES, GIT_POINTER, pack_blocks, patch, write_ggml, write_openai
from tests.engine.checkpoints import Shape, assert_same_weights, make_checkpoint, weights_of
from tutti_server.engine.checkpoint import ggml_file, openai
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.checkpoint.tokenizer import Tokenizer
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.weights import load_model

TOLERANCES = {"f32": 0.0, "f16": 6e-4, "q8_0": 4e-3, "q5_0": 0.04, "q5_1": 0.04, "q4_0": 0.08, "q4_1": 0.08}
"""How far a number may be from the original, as a part of the largest one: half of a step, and a little."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint of transformers with three languages, which OpenAI's code takes for English-only."""
    shape = Shape("files", languages=tuple(openai.LANGUAGES[:3]), is_multilingual=False)
    return make_checkpoint(tmp_path_factory.mktemp("base") / "base", shape)


@pytest.fixture(scope="module")
def tokens(base: Path) -> list[bytes]:
    tokenizer = read_checkpoint(str(base)).tokenizer
    return [tokenizer.token_bytes(token) for token in range(tokenizer.eot)]


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint of transformers with OpenAI's vocabulary."""
    backend = vocabulary(openai.MULTILINGUAL_VOCAB_SIZE)._backend
    shape = Shape("openai", languages=tuple(openai.LANGUAGES[:99]), d_model=32, encoder_layers=1, decoder_layers=1)
    return make_checkpoint(tmp_path_factory.mktemp("openai") / "base", shape, tokenizer=backend)


def test_a_file_of_openai_is_read(multilingual: Path, tmp_path: Path) -> None:
    """Its tokens are those of OpenAI's vocabulary, and what it does not hold is as in OpenAI's program."""
    file = write_openai(multilingual, tmp_path / "small.pt")
    assert_same_weights(file, multilingual, 0.0)
    checkpoint, expected = read_checkpoint(str(file)), read_checkpoint(str(multilingual))
    assert checkpoint.model == expected.model
    assert checkpoint.generation.is_multilingual
    assert checkpoint.generation.languages == expected.generation.languages
    assert checkpoint.generation.begin_suppress_tokens == (220, 50_257)
    assert checkpoint.tokenizer.encode(" Hello world") == [2425, 1002]


def test_the_weights_of_openai_are_not_kept_beside_the_model(multilingual: Path, tmp_path: Path) -> None:
    """The checkpoint lives as long as the engine."""
    checkpoint = read_checkpoint(str(write_openai(multilingual, tmp_path / "small.pt")))
    load_model(checkpoint, torch.device("cpu"), torch.float32)
    assert "small.pt" not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("kind", GGML_TYPES)
def test_every_type_of_ggml_is_read(base: Path, tokens: list[bytes], tmp_path: Path, kind: str) -> None:
    """Blocks of 32 numbers have one scale, and of some types a least number."""
    assert_same_weights(write_ggml(base, tmp_path / "ggml-small.bin", kind, tokens), base, TOLERANCES[kind])


@pytest.mark.parametrize("after", [[], [b"<|endoftext|>"]])
def test_the_tokens_of_ggml_encode_and_decode(
    base: Path, tokens: list[bytes], tmp_path: Path, after: list[bytes]
) -> None:
    """The file has their bytes, of some also the name of the end. What is merged follows from their order."""
    tokenizer = read_checkpoint(str(write_ggml(base, tmp_path / "ggml-small.bin", "f16", tokens + after))).tokenizer
    expected = read_checkpoint(str(base)).tokenizer
    text = " the other, then Ünïcode 東京"
    assert tokenizer.encode(text) == expected.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.languages == expected.languages
    assert (tokenizer.eot, tokenizer.first_timestamp) == (expected.eot, expected.first_timestamp)


@pytest.mark.parametrize("name", ["multilingual", "gpt2"])
def test_the_vocabularies_are_those_of_openai(name: str) -> None:
    """Unchanged, as the page beside them says."""
    content = lzma.decompress((openai.VOCABULARIES / f"{name}.tiktoken.xz").read_bytes())
    assert hashlib.sha256(content).hexdigest() in (openai.VOCABULARIES / "README.md").read_text()
    numbers = [int(line.split()[1]) for line in content.splitlines()]
    assert numbers == list(range(len(numbers)))


@cache
def vocabulary(size: int) -> Tokenizer:
    return openai.tokenizer(Path(), size)


def test_english_models_have_a_vocabulary_of_their_own() -> None:
    """It is GPT-2's, and one token shorter."""
    tokenizer = vocabulary(51_864)
    assert (tokenizer.eot, tokenizer.encode(" Hello world")) == (50_256, [18435, 995])
    assert vocabulary(51_866).languages["yue"] == 50_358


@pytest.mark.parametrize(
    ("n_layers", "n_heads", "n_mels", "vocab_size", "n_expected"),
    [(4, 6, 80, 51_864, 8), (6, 8, 80, 51_865, 8), (4, 20, 128, 51_866, 6), (3, 2, 80, 51_865, 0)],
)
def test_heads_for_word_times_are_known_for_the_published_sizes(
    n_layers: int, n_heads: int, n_mels: int, vocab_size: int, n_expected: int
) -> None:
    """For others there are none, and those of the upper half are taken."""
    config = {"decoder_layers": n_layers, "decoder_attention_heads": n_heads, "num_mel_bins": n_mels}
    heads = openai.defaults(config | {"vocab_size": vocab_size}, vocabulary(vocab_size))["alignment_heads"]
    assert len(heads) == n_expected
    assert all(layer < n_layers and head < n_heads for layer, head in heads)


class Other:
    """What a pickle may hold besides weights."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight": torch.ones(2)}, "expected dims and model_state_dict, as OpenAI's package writes, got weight"),
        ([1], "expected dims and model_state_dict, .* got list"),
        ({"dims": {}, "model_state_dict": {"encoder.conv1.weight": 3}}, "expected a dictionary of weights"),
        ({"dims": {}, "model_state_dict": {3: torch.ones(2)}}, "expected a dictionary of weights"),
        ({"dims": {}, "model_state_dict": {"x": torch.ones(2)}}, "expected the weights of a Whisper model, got none"),
        ({"dims": {}, "model_state_dict": {}, "run": Other()}, "expected weights only, .* may run code"),
    ],
)
def test_other_pickles_are_refused(tmp_path: Path, content: object, message: str) -> None:
    """Nothing in them is run."""
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(str(tmp_path / "other.pt"))


def test_a_vocabulary_that_openai_does_not_have_is_refused(base: Path, tmp_path: Path) -> None:
    """A `.pt` file does not say what its tokens are."""
    with pytest.raises(
        CheckpointError, match=r"small\.pt: expected 51766 to 51865 tokens, 50256 of them text, got 1771"
    ):
        read_checkpoint(str(write_openai(base, tmp_path / "small.pt")))


@pytest.mark.parametrize(("right", "wrong"), [(b"dimsq", b"dimsu"), (b"q\6((", b"q\6h("), (b"tensor_v2", b"tensor_v3")])
def test_a_damaged_pickle_is_refused(tmp_path: Path, right: bytes, wrong: bytes) -> None:
    """It takes from an empty stack, names what it has not kept, or calls with too few arguments."""
    file = tmp_path / "other.pt"
    torch.save({"dims": {}, "model_state_dict": {"x": torch.ones(2)}}, file)
    content = file.read_bytes()
    assert right in content
    file.write_bytes(content.replace(right, wrong))
    with pytest.raises(CheckpointError, match=r"other\.pt: expected readable weights, .*broken"):
        read_checkpoint(str(file))


def patch_first_weight(offset: int, number: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        found = re.search(rb"encoder\.[\w.]+", content)
        assert found
        n_dimensions = next(n for n in range(1, 5) if content[found.start() - 12 - 4 * n] == n)
        return patch(found.start() - 12 - 4 * n_dimensions + offset, "<i", number)(content)

    return change


def without_positions(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Change a file whose encoder has no positions, so that the sizes at its start say how many there are."""
    return lambda content: change(content.replace(b"encoder.positional", b"encoder.unknown.12"))


AUDIO_CONTEXT, AUDIO_STATE = 8, 12
FILTERS, VOCABULARY = 48, 48 + 8 + 24


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:100_000], r"expected \d+ bytes of .* at byte \d+, got \d+; the file is incomplete"),
        (lambda content: content[:20], r"expected 44 bytes of sizes at byte 4, got 16"),
        (lambda content: content[:-1], r"expected \d+ bytes of .*; the file is incomplete"),
        (patch(4 + 40, "<i", 1_002), "expected blocks of version 2, got version 1; quantise the model again"),
        (
            without_positions(patch(AUDIO_CONTEXT, "<i", 2_000_000_000)),
            r"small\.bin: expected max_source_positions of at most 30000, got 2000000000",
        ),
        (
            without_positions(patch(AUDIO_CONTEXT, "<i", -1)),
            r"small\.bin: expected positive whole numbers, got max_source_positions -1",
        ),
        (without_positions(patch(AUDIO_STATE, "<i", 2_000_000_000)), r"expected shape .*, got \(\d+, 2000000000\)"),
        (patch(FILTERS, "<i", 2**31 - 1), r"expected \d+ bytes of filters"),
        (patch(FILTERS, "<i", -1), r"expected -\d+ bytes of filters"),
        (patch(VOCABULARY, "<i", 2**31 - 1), "expected .* bytes of a token at byte"),
        (patch(VOCABULARY + 4, "<i", -5), "expected -5 bytes of a token"),
        (patch_first_weight(0, 9), "expected a weight's number of dimensions and length of name, got 9 and"),
        (patch_first_weight(4, 2**31 - 1), "length of name, got . and 2147483647"),
        (patch_first_weight(8, 12), r"expected numbers as f32, f16, q4_0, .*, got ggml's type 12"),
        (patch_first_weight(12, 2**31 - 1), r"expected \d+ bytes of encoder"),
        (patch_first_weight(12, -1), "expected rows of whole blocks"),
        (lambda content: content.replace(b"mlp.2", b"mlp.7"), r"weights missing: .*fc2"),
        (lambda _: b"GGUF" + bytes(100), r"or a \.bin file of whisper\.cpp, got a file that begins with b'GGUF'"),
        (lambda _: b"", r"got a file that begins with b''"),
        (lambda _: GIT_POINTER, r"small\.bin: expected weights, got a pointer of Git LFS; run `git lfs pull`"),
    ],
)
def test_broken_files_of_ggml_are_refused(
    base: Path, tokens: list[bytes], tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    """The error says what was expected. No size in the file makes it take memory that the file does not have."""
    file = write_ggml(base, tmp_path / "ggml-small.bin", "f16", tokens)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointError, match=message):
        weights_of(file)


@pytest.mark.parametrize("kind", [kind for kind in GGML_TYPES if kind.startswith("q")])
def test_blocks_are_those_of_ggml(kind: str) -> None:
    """Its own package gives the same numbers, bit by bit, for blocks that it makes and for ours."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    numbers = np.random.default_rng(0).normal(size=(8, 128)).astype(np.float32)
    form = ggml_file.TYPES[GGML_TYPES[kind]]
    ggml_type = gguf.GGMLQuantizationType(GGML_TYPES[kind])
    for content in (gguf.quants.quantize(numbers, ggml_type).tobytes(), pack_blocks(numbers, kind)):
        ours = form.to_floats(np.frombuffer(content, form.stored)).reshape(numbers.shape)
        assert np.array_equal(ours, gguf.quants.dequantize(np.frombuffer(content, np.uint8).reshape(8, -1), ggml_type))


def test_blocks_with_levels_are_those_of_ggml() -> None:
    """Any bytes are a block, but for its multiplier, which is a number here."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    form, rng = ggml_file.TYPES[23], np.random.default_rng(0)
    blocks = np.frombuffer(rng.bytes(64 * form.stored.itemsize), form.stored).copy()
    blocks["scale"] = rng.normal(size=64)
    expected = gguf.quants.dequantize(
        np.frombuffer(blocks.tobytes(), np.uint8).reshape(64, -1), gguf.GGMLQuantizationType.IQ4_XS
    )
    assert np.array_equal(form.to_floats(blocks), expected)
