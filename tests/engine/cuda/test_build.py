"""The choice of kernels, and a runner with the fused ones. Without a GPU, Triton's interpreter runs them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.engine.checkpoints import Shape, make_checkpoint
from tests.engine.engines import noise, prefill
from tutti_server.engine.checkpoint.checkpoint import Checkpoint, read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda import build
from tutti_server.engine.decoding.beam_search import SearchOptions
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.runner import LaunchedStep, Runner

CPU = torch.device("cpu")


def test_importing_the_choice_needs_no_triton() -> None:
    """A machine without a GPU has none."""
    code = "import sys; sys.modules['triton'] = None; import tutti_server.engine.cuda.build, tutti_server.engine.runner"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (EngineConfig(encoder_dtype="fp8"), "encoder_dtype fp8: expected 16 bits and our own kernels on a CUDA device"),
        (EngineConfig(cross_cache="int8"), "cross_cache int8: expected 16 bits and our own kernels on a CUDA device"),
        (EngineConfig(cross_cache="states"), "cross_cache states: expected 16 bits and our own kernels on a CUDA"),
        (EngineConfig(kernels="triton"), "kernels triton: expected 16 bits on a CUDA device, got torch.float32 on cpu"),
        (EngineConfig(kernels="flashinfer"), "kernels flashinfer: expected 16 bits on a CUDA device"),
    ],
)
def test_kernels_that_the_device_does_not_have_are_refused(
    small_checkpoint: Checkpoint, config: EngineConfig, expected: str
) -> None:
    with pytest.raises(CheckpointError, match=expected):
        build.uses_fused_kernels(config, small_checkpoint.model, CPU, torch.float32)


def test_a_cpu_runs_the_plain_kernels(small_checkpoint: Checkpoint) -> None:
    assert not build.uses_fused_kernels(EngineConfig(), small_checkpoint.model, CPU, torch.float32)
    assert build.pick_n_slots(EngineConfig(), small_checkpoint.model, CPU, torch.float32) == 32
    assert build.pick_n_slots(EngineConfig(n_slots=3), small_checkpoint.model, CPU, torch.float32) == 3


def decode(runner: Runner, draft: tuple[int, ...] = (300, 301)) -> list[list[int]]:
    """The first tokens of two windows: one with a draft and a draw, in steps with and without attention peaks."""
    sot = runner.checkpoint.tokenizer.sot
    slots = [runner.slots.allocate() for _ in range(2)]
    runner.encode([noise(1), noise(2)], slots, [True, True])
    prompts = [Prompt(tokens=(sot,), sot_index=0), Prompt(tokens=(sot,), sot_index=0, draft=draft)]
    decoded = []
    for draw in (Draw(), Draw(n_attention_samples=16_000)):
        launched = runner.launch_prefill(slots, prompts, [True, False], [Draw(), draw])
        # A device is given the first step before the host knows the tokens of the prompts.
        step = runner.launch()
        tokens = [[each.token for each in result.tokens] for result in runner.collect_prefill(launched)]
        positions = [runner.states.positions[slot].item() for slot in slots]
        assert positions == [runner.states.running[slot] for slot in slots]
        decoded += with_steps(runner, slots, tokens, step)
    # A slot that wants attention peaks runs when another gets a prompt with a draft.
    runner.end_decoding(slots[1])
    prefill(runner, slots[:1], prompts[:1], [True], [Draw(n_attention_samples=16_000)])
    launched = runner.launch_prefill(slots[1:], prompts[1:], [False], [Draw()])
    # Its steps read the host's positions, which have to be right at once.
    assert runner.states.positions[slots[1]].item() == runner.states.running[slots[1]]
    step = runner.launch()
    (result,) = runner.collect_prefill(launched)
    decoded += with_steps(runner, slots, [[], [each.token for each in result.tokens]], step)
    for slot in slots:
        runner.release(slot)
    return decoded


def with_steps(runner: Runner, slots: list[int], tokens: list[list[int]], step: LaunchedStep) -> list[list[int]]:
    """The tokens, and those of this step and the one after it."""
    for launched in (step, runner.launch()):
        for slot, sampled in runner.collect(launched).items():
            tokens[slots.index(slot)].append(sampled.token)
    return tokens


def search(runner: Runner) -> list[list[int]]:
    """What two beams find in a window, beside another one that is decoded greedily."""
    tokenizer = runner.checkpoint.tokenizer
    slots = [runner.slots.allocate() for _ in range(3)]
    runner.encode([noise(1), noise(2)], slots[:2], [True, True])
    prompts = [Prompt(tokens=(tokenizer.sot,), sot_index=0)] * 2
    options = SearchOptions(beam_size=2)
    beams = runner.search_type(options, eot=tokenizer.eot, max_tokens=5, slots=(slots[0], slots[2]))
    results = prefill(runner, slots[:2], prompts, [True, False], [Draw(search=beams), Draw()])
    greedy = [each.token for each in results[1].tokens]
    while not beams.is_over:
        greedy.append(runner.collect(runner.launch())[slots[1]].token)
    for slot in slots:
        runner.release(slot)
    return [[each.token for each in beams.result], greedy]


@pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")
@pytest.mark.nightly
def test_a_runner_decodes_alike_with_fused_and_with_plain_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The fused forward pass works on the runner's slots, and fills rows up with the padding slot."""
    pytest.importorskip("triton")
    from tutti_server.engine.cuda import fused_model

    # Our own products are slow in Triton's interpreter, and have tests of their own.
    monkeypatch.setattr(fused_model, "MAX_TRITON_ROWS", 0)
    # The fused forward pass reads the weights themselves, which a CPU replaces by packed ones.
    monkeypatch.setattr("tutti_server.engine.model.linear.can_pack", lambda *_: False)
    shape = Shape("fused", d_model=128, heads=2, encoder_layers=1, decoder_layers=1)
    checkpoint = read_checkpoint(str(make_checkpoint(tmp_path, shape)))
    config = EngineConfig(device="cpu", n_slots=3, audio_context="interims", cuda_graphs=False, kernels="torch")
    plain = Runner(checkpoint, config)
    expected = decode(plain)
    # Of this draft one token is accepted, and of the other none. `test_fused_model` has more.
    draft = (expected[1][0], 300)
    expected_with_draft = decode(plain, draft)
    assert expected_with_draft[1][: len(expected[1])] == expected[1]
    expected_of_beams = search(plain)
    monkeypatch.setattr("tutti_server.engine.runner.uses_fused_kernels", lambda *_: True)
    fused = Runner(checkpoint, config)
    assert fused.cuda_forward is not None
    assert fused.min_encode_share == 0.5
    assert decode(fused, draft) == expected_with_draft
    assert search(fused) == expected_of_beams
