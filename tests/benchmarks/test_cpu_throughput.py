"""The comparison on CPUs: its turns and ratios, and the weights that both engines get."""

import torch

from benchmarks.cpu_throughput import PEER, Load, table, take_turns
from benchmarks.peers.random_checkpoint import published_weights
from engine.checkpoint.checkpoint import ModelConfig
from engine.model.random_weights import fill
from engine.model.weights import _published_names
from engine.model.whisper import build

SIZES = ModelConfig(
    d_model=64,
    n_mels=80,
    encoder_layers=1,
    encoder_attention_heads=2,
    encoder_ffn_dim=128,
    decoder_layers=1,
    decoder_attention_heads=2,
    decoder_ffn_dim=128,
    vocab_size=200,
    max_source_positions=1500,
    max_target_positions=448,
)


def test_engines_take_turns_and_ratios_are_to_the_fastest_peer() -> None:
    """The median of the turns counts. A warm-up comes before them."""
    order: list[str] = []

    def engine(name: str, speeds: list[float]) -> Load:
        answers = iter([0.0, *speeds])

        def load(n_requests: int, concurrency: int) -> float:
            order.append(f"{name} {n_requests}/{concurrency}")
            return next(answers)

        return load

    loads = {
        "tutti int8": engine("t", [4.0, 2.0, 3.0]),
        f"{PEER} int8": engine("p", [2.0, 1.0, 2.0]),
        f"{PEER} float32": engine("q", [1.0, 1.0, 1.0]),
    }
    rows = take_turns("random:base", loads, [8], n_requests=3, repeats=3)
    assert order == ["t 8/8", "p 8/8", "q 8/8"] * 4
    assert [(row["requests_per_s"], row["ratio"]) for row in rows] == [(3.0, 1.5), (2.0, 1.0), (1.0, 0.5)]
    shown = table({"threads": 2, "loads": rows})
    assert shown.rows[0][:-1] == ("random:base, tutti int8", "8", "3.00", "2.00 to 4.00", "1.50")


def test_published_weights_are_ours_by_other_names() -> None:
    """Joined again in the order in which a checkpoint is loaded, they are the same."""
    model = build(SIZES, torch.device("cpu"), torch.float32)
    fill(model)
    ours = model.state_dict()
    published = published_weights(ours)
    for name, weight in ours.items():
        parts = [f"model.{part}" for part in _published_names(name)]
        joined = torch.cat([published.pop(part) for part in parts if part in published])
        if name.endswith("bias"):
            assert (joined.eq(0).all() and weight.eq(0).all()) or torch.equal(joined, weight)
        else:
            assert torch.equal(joined, weight)
    assert not published
