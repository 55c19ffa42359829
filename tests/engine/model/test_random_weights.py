"""Checkpoints with random weights."""

import pytest

from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.random_weights import SIZES, random_checkpoint


def test_special_tokens_have_the_ids_of_large_v3() -> None:
    tokenizer = random_checkpoint("random:large-v3").tokenizer
    assert (tokenizer.eot, tokenizer.sot, tokenizer.translate, tokenizer.transcribe) == (50257, 50258, 50359, 50360)
    assert (tokenizer.previous, tokenizer.no_speech, tokenizer.no_timestamps) == (50362, 50363, 50364)
    assert tokenizer.first_timestamp + 1501 == SIZES["large-v3"].vocab_size == 51866
    assert len(tokenizer.languages) == 100


def test_other_sizes_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"random:huge: expected random: and one of tiny, base, .* got 'huge'"):
        random_checkpoint("random:huge")
