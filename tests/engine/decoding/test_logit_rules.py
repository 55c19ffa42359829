"""The rules on tensors against those of transformers."""

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
INF = float("inf")
CPU = torch.device("cpu")

histories = st.lists(st.one_of(st.integers(0, N_TEXT - 1), st.integers(FIRST, VOCAB - 1)), max_size=6)


@given(histories, st.lists(st.integers(-8, 8).map(float), min_size=VOCAB, max_size=VOCAB), st.sampled_from([None, 3]))
def test_all_rules_equal_transformers(history: list[int], row: list[float], max_initial: int | None) -> None:
    """In the order in which `generate` applies them.

    Text is 0.3 beside the timestamps, whose sum is compared with it: where both are equal but for rounding, either may
    win.
    """
    row = [logit + 0.3 if id < FIRST else logit for id, logit in enumerate(row)]
    begin_suppressed, suppressed = [0, EOT], [1, 2, FIRST + 5]
    config = GenerationConfig(
        eos_token_id=EOT, no_timestamps_token_id=NO_TIMESTAMPS, max_initial_timestamp_index=max_initial
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
        SuppressAtBegin(begin_suppressed, CPU),
        Suppress(suppressed, CPU),
        Timestamps(eot=EOT, no_timestamps=NO_TIMESTAMPS, max_initial_index=max_initial, vocab_size=VOCAB, device=CPU),
    ):
        rule.apply(logits, state)
    assert logits.tolist() == reference.tolist()


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
