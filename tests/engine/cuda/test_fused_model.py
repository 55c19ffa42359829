"""The fused forward passes against the eager ones, and the fused sampler against the rules.

On a machine without a GPU the kernels run in Triton's interpreter, in float32.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from tutti_server.engine.checkpoint.checkpoint import Checkpoint, ModelConfig
from tutti_server.engine.cuda.fused_model import FusedDecoder, FusedEncoder, HalfProducts
from tutti_server.engine.cuda.fused_sampling import FusedSampler
from tutti_server.engine.cuda.packed_windows import places_of
from tutti_server.engine.decoding.logit_rules import RuleState, make_rules
from tutti_server.engine.model.forward import EagerForward
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.random_weights import fill, random_checkpoint
from tutti_server.engine.model.whisper import Whisper, build

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = ModelConfig(
    d_model=128,
    n_mels=16,
    encoder_layers=2,
    encoder_attention_heads=2,
    encoder_ffn_dim=256,
    decoder_layers=2,
    decoder_attention_heads=2,
    decoder_ffn_dim=256,
    vocab_size=300,
    max_source_positions=200,
    max_target_positions=64,
)
N_SLOTS = 4


@pytest.fixture(scope="module")
def model() -> Whisper:
    model = build(SMALL, DEVICE, torch.float32)
    fill(model)
    for name, parameter in model.encoder.named_parameters():
        if name.endswith("bias"):
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return model


@pytest.fixture
def caches() -> tuple[KVCache, KVCache]:
    first = KVCache(SMALL, N_SLOTS, DEVICE, torch.float32)
    return first, KVCache(SMALL, N_SLOTS, DEVICE, torch.float32)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare in float32, with room for the fused encoder's GELU, which is the approximation with tanh."""
    torch.testing.assert_close(found, expected, atol=5e-3, rtol=5e-3)


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, device=DEVICE)


def encode(model: Whisper, cache: KVCache, lengths: list[int], slots: list[int], *, fused: bool) -> torch.Tensor:
    samples = torch.randn(len(lengths), max(lengths) * STATE_SAMPLES, generator=torch.Generator().manual_seed(1))
    samples, runs = (0.1 * samples).to(DEVICE), find_runs(lengths)
    if not fused:
        states: torch.Tensor = model.encoder(model.log_mel(samples), runs)
        EagerForward(model, cache, numbers(), numbers()).encode(samples, slots, runs)
        cache.update()
        return states
    states = FusedEncoder(model.encoder, HalfProducts(model.encoder))(model.log_mel(samples), runs)
    decoder = FusedDecoder(model.decoder, cache)
    for run in runs:
        own = slots[run.windows]
        part, places = run.unpack(states).flatten(0, 1), places_of(numbers(*own), run.n_states)
        decoder.write_cross_attention(part, places, HalfProducts(model.encoder))
        for slot in own:
            cache.set_length(slot, run.n_states)
    cache.update()
    return states


@torch.inference_mode()
@pytest.mark.nightly
def test_windows_are_encoded_as_by_the_eager_model(model: Whisper, caches: tuple[KVCache, KVCache]) -> None:
    lengths, slots = [24, 24, 16], [2, 0, 3]
    eager = encode(model, caches[0], lengths, slots, fused=False)
    fused = encode(model, caches[1], lengths, slots, fused=True)
    assert_close(fused, eager)
    assert_close(caches[1].cross_attention, caches[0].cross_attention)
    assert caches[1].lengths.tolist() == caches[0].encoder_lengths


@pytest.mark.usefixtures("plain_products")
@torch.inference_mode()
def test_prompts_and_steps_are_decoded_as_by_the_eager_model(model: Whisper, caches: tuple[KVCache, KVCache]) -> None:
    """Prompts of different lengths, then two steps of rows at different positions, one of them in no use."""
    slots, prompts = [2, 0], [[5, 6, 7], [8, 9, 10, 11, 12]]
    for cache in caches:
        encode(model, cache, [200, 150], slots, fused=False)
    tokens, positions = numbers(*(20 + slot for slot in range(N_SLOTS))), numbers(5, 0, 3, 0)
    eager, fused = EagerForward(model, caches[0], tokens, positions), FusedDecoder(model.decoder, caches[1])
    padded = numbers(*prompts[0], 0, 0, *prompts[1]).view(2, 5)
    expected, found = eager.prefill(prompts, slots), fused(padded, numbers(0, 0), numbers(*slots))
    assert_close(found[0, :3], expected[0, :3])
    assert_close(found[1], expected[1])
    for _ in range(2):
        expected = eager.step({slot: int(positions[slot]) for slot in slots})
        logits = fused.logits(fused(tokens[:3, None], positions[:3], torch.arange(3, device=DEVICE))[:, 0])
        assert_close(logits[slots], expected[slots])
        positions += 1
        tokens += 7


@torch.inference_mode()
@pytest.mark.nightly
def test_a_row_decodes_to_the_same_bits_alone_and_in_a_batch(model: Whisper, caches: tuple[KVCache, KVCache]) -> None:
    cache = caches[0]
    encode(model, cache, [200, 150, 200, 180], [0, 1, 2, 3], fused=False)
    decoder = FusedDecoder(model.decoder, cache)
    tokens, starts, slots = numbers(1, 2, 3, 4)[:, None], numbers(3, 9, 0, 7), numbers(0, 1, 2, 3)
    together = decoder.logits(decoder(tokens, starts, slots)[:, 0])
    for row in range(4):
        alone = decoder(tokens[row : row + 1], starts[row : row + 1], slots[row : row + 1])
        assert torch.equal(decoder.logits(alone[:, 0])[0], together[row])


CHECKPOINT = random_checkpoint("random:tiny")
TOKENIZER = CHECKPOINT.tokenizer
histories = st.lists(
    st.one_of(st.integers(0, 50), st.integers(TOKENIZER.first_timestamp, TOKENIZER.first_timestamp + 1500)), max_size=3
)
loud_logits = st.dictionaries(
    st.one_of(
        st.integers(0, 60),
        st.integers(TOKENIZER.eot - 2, TOKENIZER.first_timestamp + 60),
        st.integers(CHECKPOINT.model.vocab_size - 3, CHECKPOINT.model.vocab_size - 1),
    ),
    st.integers(-3, 12),
    max_size=6,
)


@settings(max_examples=4, phases=[Phase.explicit, Phase.generate])
@given(
    rows=st.lists(st.tuples(histories, st.booleans(), loud_logits), min_size=1, max_size=3), seed=st.integers(0, 100)
)
@torch.inference_mode()
def test_sampler_keeps_the_rules(rows: list[tuple[list[int], bool, dict[int, int]]], seed: int) -> None:
    """It gives the tokens, log-probabilities and states that the rules and an argmax give."""
    written, with_timestamps, changes = zip(*rows, strict=True)
    first, n = TOKENIZER.first_timestamp, len(rows)
    logits = torch.randn(n, CHECKPOINT.model.vocab_size, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    for row, change in enumerate(changes):
        for token, logit in change.items():
            logits[row, token] = logit + token / 1e5
    state = RuleState.begin(written, with_timestamps, first, DEVICE)
    twin = RuleState.begin(written, with_timestamps, first, DEVICE)
    tokens, positions = torch.zeros(n, dtype=torch.long, device=DEVICE), numbers(*(447 for _ in range(n)))
    sampler = FusedSampler(_with_few_bans(CHECKPOINT), state, tokens, positions)
    apart = sampler.sample_apart(logits, RuleState.begin(written, with_timestamps, first, DEVICE))
    assert not tokens.any() and state.last_time.tolist() == twin.last_time.tolist(), "the slots have changed"
    out = sampler(logits)
    assert torch.equal(apart, out)

    for rule in make_rules(_with_few_bans(CHECKPOINT), DEVICE):
        rule.apply(logits, twin)
    expected = logits.argmax(dim=-1)
    after = twin.after(expected, first)
    assert tokens.tolist() == out[0].tolist() == expected.tolist()
    assert_close(out[1], logits.log_softmax(dim=-1).gather(1, expected[:, None])[:, 0])
    assert positions.tolist() == [447] * n
    for name in ("with_timestamps", "is_at_begin", "last_is_time", "second_last_is_time", "last_time"):
        assert getattr(state, name).tolist() == getattr(after, name).tolist(), name


@pytest.mark.parametrize("n_right", [1, *(pytest.param(each, marks=pytest.mark.nightly) for each in (0, 3))])
@torch.inference_mode()
def test_slots_start_after_the_draft_tokens_that_are_right(n_right: int) -> None:
    """The device accepts the same draft tokens as the host, and the rules begin with these tokens."""
    first = TOKENIZER.first_timestamp
    draft, prefix = (17, first + 8, first + 8), (first,)
    prefixes = [(), *(prefix + draft[:n_drafted] for n_drafted in range(4))]
    after = RuleState.begin(prefixes, [False, True, True, True, True], first, DEVICE)
    logits = torch.randn(5, CHECKPOINT.model.vocab_size, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    right = [21, *draft, 22]
    for row, token in enumerate(right if n_right == 3 else [*right[: n_right + 1], 40, *right[n_right + 2 :]]):
        logits[row, token] = 40.0
    n_rows = 8
    state = RuleState.begin([()] * n_rows, [False] * n_rows, first, DEVICE)
    tokens, positions = torch.zeros((2, n_rows), dtype=torch.long, device=DEVICE)
    sampler = FusedSampler(CHECKPOINT, state, tokens, positions)
    sampled = sampler.sample_apart(logits, after)
    # Slot 6 has no draft and 2 tokens before; slot 2 has 3 draft tokens after 5.
    drafted, prompts = numbers(0, *draft, 0), torch.stack([numbers(6, 2), numbers(0, 1), numbers(0, 3), numbers(2, 5)])
    sampler.start(sampled, after, drafted, prompts)

    new = [int(token) for token in sampled[0]]
    assert new[1 : 1 + n_right] == list(draft[:n_right]) and (n_right == 3 or new[1 + n_right] != draft[n_right])
    written = [(new[0],), prefix + draft[:n_right] + (new[1 + n_right],)]
    assert tokens[[6, 2]].tolist() == [row[-1] for row in written]
    assert positions[[6, 2]].tolist() == [2, 5 + n_right]
    expected = RuleState.begin(written, [False, True], first, DEVICE)
    for name in ("with_timestamps", "is_at_begin", "last_is_time", "second_last_is_time", "last_time"):
        assert getattr(state, name)[[6, 2]].tolist() == getattr(expected, name).tolist(), name
    assert tokens[[0, 1, 3, 4, 5, 7]].eq(0).all()


def _with_few_bans(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint, with a few banned text tokens, and two that may not come first."""
    generation = replace(checkpoint.generation, suppress_tokens=(1, 7, 50), begin_suppress_tokens=(3, TOKENIZER.eot))
    return replace(checkpoint, generation=generation)
