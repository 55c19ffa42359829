"""Attention over slots, against a simple version that gets plain keys and values."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import tutti_server.engine.model.attention
from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.model.attention import (
    DecodeAttention,
    PrefillAttention,
    RecordingAttention,
    attend_in_blocks,
    encoder_attention,
)
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import find_runs

HEADS, HEAD_DIM, N_SLOTS = 2, 8, 6
SIZES = ModelConfig(
    d_model=HEADS * HEAD_DIM,
    n_mels=80,
    encoder_layers=1,
    encoder_attention_heads=HEADS,
    encoder_ffn_dim=8,
    decoder_layers=2,
    decoder_attention_heads=HEADS,
    decoder_ffn_dim=8,
    vocab_size=10,
    max_source_positions=50,
    max_target_positions=20,
)


@pytest.fixture(params=[False, True], ids=["rows", "columns"])
def cache(request: pytest.FixtureRequest) -> KVCache:
    torch.manual_seed(0)
    cache = KVCache(SIZES, N_SLOTS, torch.device("cpu"), torch.float32, has_columns=request.param)
    # What earlier windows left in the buffers must have no effect.
    cache.self_attention.fill_(1e4)
    cache.cross_attention.fill_(1e4)
    return cache


def write(cache: KVCache, layer: int, slot: int, keys_values: Tensor, n_states: int) -> None:
    """Store the keys and values of a window, and make them visible."""
    cache.write_cross_attention(layer, [slot], keys_values, find_runs([n_states]))
    cache.set_length(slot, n_states)


def random_step(n_rows: int, n_tokens: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n_rows, HEADS, n_tokens, HEAD_DIM), torch.randn(2, n_rows, HEADS, n_tokens, HEAD_DIM)


def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query, `(heads, head_dim)`, over `(heads, positions, head_dim)`."""
    scores = torch.einsum("hd,hpd->hp", query, keys) / math.sqrt(HEAD_DIM)
    return torch.einsum("hp,hpd->hd", scores.softmax(dim=-1), values)


@pytest.mark.parametrize("slots", [[0, 1, 2], [4, 1, 3]])
def test_rows_of_different_lengths_attend_as_each_alone(cache: KVCache, slots: list[int]) -> None:
    """Prompts are padded to one length, then steps run at different positions, with free slots between them."""
    lengths = [3, 7, 5]
    query, keys_values = random_step(3, 7)
    out = PrefillAttention(cache, slots, lengths).self_attention(1, query, keys_values)
    history = {
        slot: keys_values[:, row, :, :length] for row, (slot, length) in enumerate(zip(slots, lengths, strict=True))
    }
    for row, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
        expected = attend(query[row, :, length - 1], *history[slot])
        torch.testing.assert_close(out[row, :, length - 1], expected)

    positions = torch.zeros(max(slots) + 1, dtype=torch.long)
    positions[slots] = torch.tensor(lengths)
    for _ in range(3):
        query, keys_values = random_step(len(positions), 1)
        n_positions = int(positions[slots].max()) + 1
        attention = DecodeAttention(cache, len(positions), positions, n_positions, is_ragged=True)
        out = attention.self_attention(1, query, keys_values)
        for slot in slots:
            history[slot] = torch.cat((history[slot], keys_values[:, slot]), dim=2)
            torch.testing.assert_close(out[slot, :, 0], attend(query[slot, :, 0], *history[slot]))
        positions += 1


def test_a_row_has_the_same_bits_beside_longer_ones() -> None:
    """Of the sizes of base, where sums over more positions would be added in another order."""
    heads, size = 8, 64
    sizes = replace(SIZES, d_model=heads * size, decoder_attention_heads=heads, max_target_positions=256)
    cache = KVCache(sizes, N_SLOTS, torch.device("cpu"), torch.float32)
    cache.self_attention[0].normal_(generator=torch.Generator().manual_seed(1))
    positions = torch.tensor([40, 9, 9, 200, 9, 3])
    query = torch.randn(len(positions), heads, 1, size)
    keys_values = torch.randn(2, len(positions), heads, 1, size)
    attention = DecodeAttention(cache, len(positions), positions, 201, is_ragged=True)
    together = attention.self_attention(0, query, keys_values)
    for row, position in enumerate(positions.tolist()):
        n_rows = row + 1
        alone = DecodeAttention(cache, n_rows, positions[row].expand(n_rows), position + 1, is_ragged=False)
        same = alone.self_attention(
            0, query[row].expand(n_rows, -1, -1, -1), keys_values[:, row : row + 1].expand(-1, n_rows, -1, -1, -1)
        )
        assert torch.equal(same[row], together[row])


def test_a_prompt_has_the_same_bits_beside_longer_ones() -> None:
    """Of the sizes of base, too. All are padded to the longest one. So have the weights from which times come."""
    heads, size = 8, 64
    sizes = replace(SIZES, d_model=heads * size, decoder_attention_heads=heads, max_target_positions=256)
    cache = KVCache(replace(sizes, max_source_positions=300), N_SLOTS, torch.device("cpu"), torch.float32)
    slots, lengths = [2, 0, 3], [3, 226, 100]
    for slot in slots:
        write(cache, 0, slot, torch.randn(300, 2, heads, size), 300)
    query, keys_values = torch.randn(3, heads, 226, size), torch.randn(2, 3, heads, 226, size)
    together = PrefillAttention(cache, slots, lengths)
    for row, (slot, n) in enumerate(zip(slots, lengths, strict=True)):
        own, here = PrefillAttention(cache, [slot], [n]), slice(row, row + 1)
        attended = own.self_attention(0, query[here, :, :n], keys_values[:, here, :, :n])
        assert torch.equal(together.self_attention(0, query, keys_values)[here, :, :n], attended)
        attended = own.cross_attention(0, query[here, :, :n])
        assert torch.equal(together.cross_attention(0, query)[here, :, :n], attended)
        assert torch.equal(together.weights(0, 5, query)[here, :n], own.weights(0, 5, query[here, :, :n]))


def test_cross_attention_reads_only_the_states_of_the_window(cache: KVCache) -> None:
    """Windows of different lengths share a batch, and what follows a shorter one in its slot is masked."""
    slots, lengths = [3, 0], [30, 50]
    states = {slot: torch.randn(2, HEADS, length, HEAD_DIM) for slot, length in zip(slots, lengths, strict=True)}
    for slot, keys_values in states.items():
        write(cache, 1, slot, keys_values.permute(2, 0, 1, 3), keys_values.shape[2])
    query = torch.randn(2, HEADS, 4, HEAD_DIM)
    out = PrefillAttention(cache, slots).cross_attention(1, query)
    for row, slot in enumerate(slots):
        for token in range(4):
            torch.testing.assert_close(out[row, :, token], attend(query[row, :, token], *states[slot]))

    query = torch.randn(4, HEADS, 1, HEAD_DIM)
    out = step_over_states(cache, query)
    for slot in slots:
        torch.testing.assert_close(out[slot, :, 0], attend(query[slot, :, 0], *states[slot]))


def step_of(cache: KVCache, n_rows: int) -> DecodeAttention:
    return DecodeAttention(cache, n_rows, torch.zeros(n_rows, dtype=torch.long), 1, is_ragged=False)


def step_over_states(cache: KVCache, query: Tensor) -> Tensor:
    return step_of(cache, len(query)).cross_attention(1, query)


@pytest.mark.parametrize(("has_columns", "n_threads"), [(True, 1), (True, 3), (False, 1)])
@pytest.mark.parametrize("n_states", [1500, 350])
def test_a_row_of_a_step_has_the_same_bits_alone_and_among_others(
    threads: None, has_columns: bool, n_threads: int, n_states: int
) -> None:
    """Also by column with another number of threads, in another slot, and among longer and larger neighbours.

    So have its weights, whose peaks tell where the model listens.
    """
    n_heads, head_dim, n_slots = 8, 64, 5
    sizes = replace(SIZES, d_model=n_heads * head_dim, decoder_attention_heads=n_heads, max_source_positions=1500)
    keys_values = torch.randn(n_states, 2, n_heads, head_dim, generator=torch.Generator().manual_seed(0))
    query = torch.randn(n_slots, n_heads, 1, head_dim, generator=torch.Generator().manual_seed(1))

    torch.set_num_threads(1)
    cache = KVCache(sizes, 1, torch.device("cpu"), torch.float32, has_columns=has_columns)
    write(cache, 1, 0, keys_values, n_states)
    alone = step_over_states(cache, query[3:4])[0]
    weights = step_of(cache, 1).weights(1, 6, query[3:4])[0]

    torch.set_num_threads(n_threads)
    cache = KVCache(sizes, n_slots, torch.device("cpu"), torch.float32, has_columns=has_columns)
    for slot, length in ((0, 1500), (1, 700), (4, 1)):
        neighbour = 1000 * torch.randn(length, 2, n_heads, head_dim)
        write(cache, 1, slot, neighbour, length)
    write(cache, 1, 3, keys_values, n_states)
    assert torch.equal(step_over_states(cache, query)[3], alone)
    assert torch.equal(step_over_states(cache, query[:4])[3], alone)
    assert torch.equal(step_of(cache, n_slots).weights(1, 6, query)[3, :, :n_states], weights)


def test_a_slot_is_read_anew_when_its_window_changes(cache: KVCache) -> None:
    """A shorter window follows a longer one; then the slot is free, and what a step gives for it is finite."""
    for n_states in (50, 20):
        keys_values = torch.randn(2, HEADS, n_states, HEAD_DIM)
        write(cache, 1, 1, keys_values.permute(2, 0, 1, 3), n_states)
        query = torch.randn(2, HEADS, 1, HEAD_DIM)
        out = step_over_states(cache, query)
        torch.testing.assert_close(out[1, :, 0], attend(query[1, :, 0], *keys_values))
    cache.set_length(0, 50)
    cache.forget(1)
    assert step_over_states(cache, query).isfinite().all()


def test_the_weights_of_some_heads_are_kept(cache: KVCache) -> None:
    """They are the softmax over the window's states, and the attention itself does not change."""
    n_states = 30
    keys_values = torch.randn(2, HEADS, n_states, HEAD_DIM)
    for layer in range(2):
        write(cache, layer, 2, keys_values.permute(2, 0, 1, 3), n_states)
    query = torch.randn(1, HEADS, 4, HEAD_DIM)
    recording = RecordingAttention(PrefillAttention(cache, [2]), [(1, 0), (0, 1)])
    for layer in range(2):
        out = recording.cross_attention(layer, query)
        torch.testing.assert_close(out, PrefillAttention(cache, [2]).cross_attention(layer, query))
    assert recording.weights.shape == (1, 2, 4, n_states)
    for index, head in enumerate([1, 0]):  # in the order of their layers
        scores = query[0, head] @ keys_values[0, head].T / math.sqrt(HEAD_DIM)
        torch.testing.assert_close(recording.weights[0, index], scores.softmax(dim=-1))


@pytest.mark.parametrize("n_states", [1, 33, 70])
def test_blocks_of_queries_attend_as_all_queries_together(n_states: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tutti_server.engine.model.attention, "BLOCK_WEIGHTS", 1)
    windows = torch.randn(3, n_states, 3, HEADS, HEAD_DIM).bfloat16()
    out = attend_in_blocks(windows)

    query, key, value = windows.double().permute(2, 0, 3, 1, 4)
    expected = (query @ key.mT / math.sqrt(HEAD_DIM)).softmax(-1) @ value
    torch.testing.assert_close(out.double(), expected.transpose(1, 2), atol=0.03, rtol=0)
    alone = torch.cat([attend_in_blocks(window[None]) for window in windows])
    assert torch.equal(out, alone), "a window attends in another way beside others"


@pytest.mark.parametrize(
    ("has_products", "has_tiles", "dtype"),
    [
        (True, False, torch.bfloat16),
        (True, True, torch.bfloat16),
        (False, False, torch.bfloat16),
        (True, False, torch.float32),
    ],
)
def test_encoder_attends_in_blocks_where_the_processor_has_bfloat16_and_no_tiles(
    has_products: bool, has_tiles: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tutti_server.engine.model.attention, "has_bfloat16", lambda: has_products)
    monkeypatch.setattr(tutti_server.engine.model.attention, "has_tiles", lambda: has_tiles)
    calls = []

    def attend_in_blocks_once(windows: Tensor) -> Tensor:
        calls.append(windows.shape)
        return attend_in_blocks(windows)

    monkeypatch.setattr(tutti_server.engine.model.attention, "attend_in_blocks", attend_in_blocks_once)
    packed = torch.randn(26, 3, HEADS, HEAD_DIM).to(dtype)
    out = encoder_attention(packed, find_runs([5, 5, 16]))
    assert bool(calls) == (has_products and not has_tiles and dtype is torch.bfloat16)
    for part in (slice(0, 5), slice(5, 10), slice(10, 26)):
        query, key, value = packed[part].double().permute(1, 2, 0, 3)
        expected = (query @ key.mT / math.sqrt(HEAD_DIM)).softmax(-1) @ value
        torch.testing.assert_close(out[part].double(), expected.transpose(0, 1).flatten(1), atol=0.03, rtol=0)
