"""The rules on tensors against twins in plain Python, and against transformers."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from tutti_server.engine.decoding.logit_rules import RuleState, Suppress, SuppressAtBegin, Timestamps

N_TEXT = 6
EOT, NO_TIMESTAMPS, FIRST, VOCAB = N_TEXT, 8, 9, 20
MAX_INITIAL = 3
INF = float("inf")
CPU = torch.device("cpu")

histories = st.lists(st.one_of(st.integers(0, N_TEXT - 1), st.integers(FIRST, VOCAB - 1)), max_size=6)
rows = st.lists(
    st.tuples(histories, st.booleans(), st.lists(st.integers(-8, 8).map(float), min_size=VOCAB, max_size=VOCAB)),
    min_size=1,
    max_size=5,
)


def suppress_at_begin_twin(history: Sequence[int], logits: list[float], suppressed: set[int]) -> list[float]:
    return [-INF if not history and id in suppressed else logit for id, logit in enumerate(logits)]


def timestamps_twin(history: Sequence[int], logits: list[float], max_initial: int | None) -> list[float]:
    """One row, in plain Python."""

    def is_allowed(id: int) -> bool:
        is_time = id >= FIRST
        times = [token for token in history if token >= FIRST]
        ends_with_time = bool(history) and history[-1] >= FIRST
        is_pair = ends_with_time and (len(history) < 2 or history[-2] >= FIRST)
        if id == NO_TIMESTAMPS:
            return False
        if not history:
            return is_time and (max_initial is None or id <= FIRST + max_initial)
        if is_pair:
            return not is_time
        if ends_with_time:
            return id >= times[-1] if is_time else id >= EOT
        return not (is_time and times and id <= times[-1])

    allowed = [logit if is_allowed(id) else -INF for id, logit in enumerate(logits)]
    all_times = torch.tensor(allowed[FIRST:]).logsumexp(0).item()
    if all_times > max(allowed[:FIRST]):
        return [-INF] * FIRST + allowed[FIRST:]
    return allowed


def make_timestamps(max_initial: int | None) -> Timestamps:
    return Timestamps(eot=EOT, no_timestamps=NO_TIMESTAMPS, max_initial_index=max_initial, vocab_size=VOCAB, device=CPU)


@given(rows, st.sampled_from([None, MAX_INITIAL]))
def test_timestamps_equal_their_twin(batch: list[tuple[list[int], bool, list[float]]], max_initial: int | None) -> None:
    """Each row by its own history; rows without timestamps stay as they are."""
    logits = torch.tensor([row for _, _, row in batch])
    state = RuleState.begin([history for history, _, _ in batch], [on for _, on, _ in batch], FIRST, CPU)
    make_timestamps(max_initial).apply(logits, state)
    for ours, (history, is_on, row) in zip(logits.tolist(), batch, strict=True):
        assert ours == (timestamps_twin(history, row, max_initial) if is_on else row)


@given(histories, st.lists(st.integers(-8, 8).map(float), min_size=VOCAB, max_size=VOCAB))
def test_all_rules_equal_transformers(history: list[int], row: list[float]) -> None:
    """In the order in which `generate` applies them.

    Text is 0.3 beside the timestamps, whose sum is compared with it: where both are equal but for rounding, either may
    win.
    """
    row = [logit + 0.3 if id < FIRST else logit for id, logit in enumerate(row)]
    begin_suppressed, suppressed = [0, EOT], [1, 2, FIRST + 5]
    config = GenerationConfig(
        eos_token_id=EOT, no_timestamps_token_id=NO_TIMESTAMPS, max_initial_timestamp_index=MAX_INITIAL
    )
    n_control = 2
    tokens = torch.tensor([[7] * n_control + history])
    reference = torch.tensor([row])
    for processor in (
        SuppressTokensAtBeginLogitsProcessor(begin_suppressed, n_control),
        SuppressTokensLogitsProcessor(suppressed),
        WhisperTimeStampLogitsProcessor(config, n_control),
    ):
        reference = processor(tokens, reference)
    logits = torch.tensor([row])
    state = RuleState.begin([history], [True], FIRST, CPU)
    for rule in (
        SuppressAtBegin(begin_suppressed, VOCAB, CPU),
        Suppress(suppressed, VOCAB, CPU),
        make_timestamps(MAX_INITIAL),
    ):
        rule.apply(logits, state)
    assert logits.tolist() == reference.tolist()


@given(histories, st.lists(st.integers(0, N_TEXT - 1), max_size=3))
def test_suppression_at_begin_equals_its_twin(history: list[int], suppressed: list[int]) -> None:
    """It ends with the first token, forced ones included."""
    logits = torch.zeros(1, VOCAB)
    SuppressAtBegin(suppressed, VOCAB, CPU).apply(logits, RuleState.begin([history], [True], FIRST, CPU))
    assert logits[0].tolist() == suppress_at_begin_twin(history, [0.0] * VOCAB, set(suppressed))


def test_suppressed_tokens_are_never_allowed() -> None:
    """In any row, at any time."""
    logits = torch.zeros(2, VOCAB)
    Suppress([3, 5], VOCAB, CPU).apply(logits, RuleState.begin([[], [1]], [True, False], FIRST, CPU))
    assert (logits == -INF).nonzero().tolist() == [[0, 3], [0, 5], [1, 3], [1, 5]]


@given(st.lists(histories, min_size=1, max_size=4), st.data())
def test_state_follows_sampling(begun: list[list[int]], data: st.DataObject) -> None:
    """The state updated token by token is the state of the whole history."""
    state = RuleState.begin(begun, [True] * len(begun), FIRST, CPU)
    for _ in range(3):
        new = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=len(begun), max_size=len(begun)))
        begun = [[*history, token] for history, token in zip(begun, new, strict=True)]
        state = state.after(torch.tensor(new), FIRST)
        expected = RuleState.begin(begun, [True] * len(begun), FIRST, CPU)
        for name in RuleState.__slots__:
            assert getattr(state, name).tolist() == getattr(expected, name).tolist(), name


@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([2, 0])])
def test_state_of_some_rows_is_stored_in_place(index: slice | torch.Tensor) -> None:
    """Selected and stored by slice or by index alike; other rows keep theirs."""
    state = RuleState.blank(3, FIRST, CPU)
    new = RuleState.begin([[1, FIRST], [FIRST + 2]], [True, True], FIRST, CPU)
    state.store(index, new)
    for name in RuleState.__slots__:
        assert getattr(state.select(index), name).tolist() == getattr(new, name).tolist()
    (other,) = {0, 1, 2} - set(torch.arange(3)[index].tolist())
    assert not state.with_timestamps[other]
