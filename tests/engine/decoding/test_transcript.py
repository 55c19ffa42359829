"""Tokens become events: segments and the result."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.engine.api import DoneEvent, EngineEvent, Segment, SegmentEvent, text_logprob
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.checkpoint.tokenizer import Tokenizer
from tutti_server.engine.decoding.transcript import TokenTranscript, TranscriptInfo, compression_ratio
from tutti_server.engine.decoding.word_timing import Alignment

AUDIO_S = 2.5


@pytest.fixture(scope="module")
def tokenizer(small_checkpoint: Checkpoint) -> Tokenizer:
    return small_checkpoint.tokenizer


def begin(tokenizer: Tokenizer, **changes: Any) -> TokenTranscript:
    """The transcript of a window, before its first token."""
    info = TranscriptInfo(audio_s=AUDIO_S, language="en", with_timestamps=True, no_speech_prob=0.125)
    return TokenTranscript(tokenizer, replace(info, **changes))


def run(tokenizer: Tokenizer, tokens: list[int], *, n_forced: int = 0, **changes: Any) -> list[EngineEvent]:
    """All events of a window of these tokens, each with log-probability -1, the end token with -3."""
    transcript = begin(tokenizer, **changes)
    events: list[EngineEvent] = []
    for index, token in enumerate(tokens):
        events += transcript.push(token, None if index < n_forced else -1.0)
    events += transcript.push(tokenizer.eot, -3.0)
    return events + transcript.finish(is_truncated=False, n_steps=5)


def segments(events: list[EngineEvent]) -> list[Segment]:
    return [event.segment for event in events if isinstance(event, SegmentEvent)]


def result(events: list[EngineEvent]) -> DoneEvent:
    assert isinstance(events[-1], DoneEvent)
    return events[-1]


def test_segments_come_as_they_close(tokenizer: Tokenizer) -> None:
    """A segment is emitted by its closing timestamp, before any token of the next segment, and by no other token."""
    first = tokenizer.first_timestamp
    one, two = tokenizer.encode(" one"), tokenizer.encode(" two")
    tokens = [first, *one, first + 50, first + 60, *two, first + 100]
    transcript = begin(tokenizer)
    emitting = [token for token in tokens if transcript.push(token, -1.0)]
    assert emitting == [first + 50, first + 100]
    events = run(tokenizer, tokens)
    assert [type(event) for event in events] == [SegmentEvent, SegmentEvent, DoneEvent]
    assert [(segment.start_s, segment.end_s, segment.text) for segment in segments(events)] == [
        (0.0, 1.0, " one"),
        (1.2, 2.0, " two"),
    ]
    assert segments(events)[1].tokens == (first + 60, *two, first + 100)


@pytest.mark.parametrize(
    ("written", "with_timestamps", "expected"),
    [
        pytest.param([10, " cut off"], True, [(0.2, AUDIO_S, " cut off")], id="open, up to the end of the audio"),
        pytest.param(
            [" early", 20, " late"], True, [(0.0, 0.4, " early"), (0.4, AUDIO_S, " late")], id="text first, of a prefix"
        ),
        pytest.param(
            [0, " a", 500, 501, " a"], True, [(0.0, AUDIO_S, " a"), (AUDIO_S, AUDIO_S, " a")], id="times in the padding"
        ),
        pytest.param([" all of it"], False, [(0.0, AUDIO_S, " all of it")], id="without timestamps"),
    ],
)
def test_segments_hold_all_text_within_the_audio(
    tokenizer: Tokenizer, written: list[str | int], with_timestamps: bool, expected: list[tuple[float, float, str]]
) -> None:
    """Of text and timestamps, in steps of 20 ms."""
    tokens: list[int] = []
    for each in written:
        tokens += tokenizer.encode(each) if isinstance(each, str) else [tokenizer.first_timestamp + each]
    found = segments(run(tokenizer, tokens, with_timestamps=with_timestamps))
    assert [(segment.start_s, segment.end_s, segment.text) for segment in found] == expected


def test_a_word_has_the_time_that_timestamps_before_it_took(tokenizer: Tokenizer) -> None:
    """But no more than a word usually has: 0.23 s for three letters."""
    first = tokenizer.first_timestamp
    one, two = tokenizer.encode(" one")[0], tokenizer.encode(" two")[0]
    tokens = [first, one, first + 50, first + 50, two, first + 100]
    for begins_s, word_s in ((1.0, 1.0), (0.7, 0.87)):
        transcript = begin(tokenizer, with_word_times=True)
        for token in tokens:
            transcript.push(token, -1.0)
        alignment = Alignment((0.0, 0.2, begins_s, 1.1, 1.1, 1.1), ((0.0, 0.5), (0.7, 2.0)), (0.5,) * len(tokens))
        made = segments(transcript.finish(is_truncated=False, n_steps=5, alignment=alignment))
        assert [(each.words or ())[0].start_s for each in made] == pytest.approx([0.2, word_s])


def test_the_end_of_the_last_word_is_told_beside_a_timestamp_that_comes_too_early(tokenizer: Tokenizer) -> None:
    first = tokenizer.first_timestamp
    words = tokenizer.encode(" one two")
    transcript = begin(tokenizer)
    for token in (first, *words, first + 25):
        transcript.push(token, -1.0)
    assert transcript.ends_before(0.6) and not transcript.ends_before(0.5)
    alignment = Alignment((0.0, 0.2, 0.6, 1.1), ((0.0, 2.0),), (0.5,) * 4)
    done = result(transcript.finish(is_truncated=False, n_steps=5, alignment=alignment))
    assert [(each.end_s, each.words) for each in done.segments] == [(0.5, None)]
    assert done.text_end_s == pytest.approx(1.1)


def test_text_that_no_timestamp_ends_reaches_the_end_of_the_audio(tokenizer: Tokenizer) -> None:
    transcript = begin(tokenizer)
    assert not transcript.ends_before(1.0)
    first = tokenizer.first_timestamp
    for token in (first, *tokenizer.encode(" one"), first + 25, first + 25, *tokenizer.encode(" two")):
        transcript.push(token, -1.0)
    assert not transcript.ends_before(1.0)
    assert result(transcript.finish(is_truncated=False, n_steps=5)).text_end_s is None


@pytest.mark.parametrize("n_times", [0, 1, 2])
def test_no_text_makes_no_segment(tokenizer: Tokenizer, n_times: int) -> None:
    """Silence is silent."""
    events = run(tokenizer, [tokenizer.first_timestamp] * n_times)
    assert [type(event) for event in events] == [DoneEvent]
    assert (result(events).text, result(events).segments, result(events).compression_ratio) == ("", (), 0.0)


def test_mean_log_probability_counts_what_was_sampled(tokenizer: Tokenizer) -> None:
    """The end token counts for the transcript; forced tokens count for nothing."""
    first = tokenizer.first_timestamp
    word = tokenizer.encode(" the")
    events = run(tokenizer, [first, *word, first + 20, first + 20, *word, first + 40], n_forced=3)
    assert result(events).avg_logprob == pytest.approx((-1 * 3 - 3) / 4)
    assert [segment.avg_logprob for segment in segments(events)] == [0.0, -1.0]


def test_a_word_is_as_sure_as_its_tokens_and_its_punctuation_by_itself(tokenizer: Tokenizer) -> None:
    """What the prefix forced counts for neither."""
    transcript = begin(tokenizer)
    forced, tokens = tokenizer.encode(" and"), tokenizer.encode(" the one, -")
    for token in forced:
        transcript.push(token, None)
    logprobs = [-0.5, -0.25, -2.0] + [-3.0] * (len(tokens) - 3)
    for token, logprob in zip(tokens, logprobs, strict=True):
        transcript.push(token, logprob)
    pieces = result(transcript.finish(is_truncated=False, n_steps=5)).pieces
    assert [(piece.text, piece.logprob, piece.marks_logprob) for piece in pieces] == [
        (" and", None, None),
        (" the", -0.5, None),
        (" one,", -0.25, -2.0),
        (" -", None, -3.0),
    ]
    assert text_logprob(pieces) == pytest.approx((-0.5 - 2.0 - 3.0) / 3)


def test_how_sure_the_end_is(tokenizer: Tokenizer) -> None:
    """The log-probabilities of the last text token and of the end token are kept, and those alone."""
    transcript = begin(tokenizer)
    first, (one, *_), (stop,) = tokenizer.first_timestamp, tokenizer.encode(" one"), tokenizer.encode(".")
    for token, logprob in ((first, -1.0), (one, -0.5), (stop, -0.25), (first + 50, -2.0), (tokenizer.eot, -0.125)):
        transcript.push(token, logprob)
    done = result(transcript.finish(is_truncated=False, n_steps=5))
    assert (done.last_text_logprob, done.end_logprob) == (-0.25, -0.125)


def test_an_end_that_was_not_sampled_is_not_sure(tokenizer: Tokenizer) -> None:
    """Forced text, the token limit and a cut repetition say nothing about the end."""
    forced, cut = begin(tokenizer), begin(tokenizer)
    for token in (tokenizer.first_timestamp, *tokenizer.encode(" one")):
        forced.push(token, None)
        cut.push(token, -1.0)
    cut.cut_repetition(1)
    for transcript in (forced, cut):
        done = result(transcript.finish(is_truncated=True, n_steps=5))
        assert (done.last_text_logprob, done.end_logprob) == (None, None)


def test_a_repetition_is_cut_between_characters(tokenizer: Tokenizer) -> None:
    """Where a round begins inside a character, as letters of many scripts are several tokens, no part of it stays."""
    transcript = begin(tokenizer)
    letters = tokenizer.encode("იიი")
    for token in (tokenizer.first_timestamp, *tokenizer.encode(" one"), *letters):
        transcript.push(token, -1.0)
    transcript.cut_repetition(1 + len(letters) // 3)
    done = result(transcript.finish(is_truncated=False, n_steps=5))
    assert (done.text, [piece.text for piece in done.pieces]) == (" oneი", ["", " oneი"])


def test_repetition_compresses() -> None:
    """A repetition lies above the limit of 2.4, plain text below."""
    assert compression_ratio(" and so on" * 30) > 2.4 > compression_ratio(" The next train leaves at nine.")


@given(st.data())
def test_nothing_is_lost_and_times_run_forward(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """For any tokens: texts add up, times are ordered and inside the audio, pieces give the tokens again."""
    first = tokenizer.first_timestamp
    token = st.one_of(st.integers(0, tokenizer.eot - 1), st.integers(first, first + 200), st.just(tokenizer.no_speech))
    tokens = data.draw(st.lists(token, max_size=25))
    with_timestamps = data.draw(st.booleans())
    audio_s = data.draw(st.floats(0.0001, 5.0))
    events = run(tokenizer, tokens, with_timestamps=with_timestamps, audio_s=audio_s)
    done = result(events)
    assert done.text == tokenizer.decode(tokens)
    assert done.text == "".join([piece.text for piece in done.pieces])
    assert done.text == "".join([segment.text for segment in done.segments])
    assert list(done.segments) == segments(events)
    assert [token for piece in done.pieces for token in piece.tokens] == tokens
    assert all(0 <= segment.start_s <= segment.end_s <= audio_s for segment in done.segments)
    assert all(one.end_s <= two.start_s for one, two in pairwise(done.segments))
    assert math.isfinite(done.avg_logprob)
