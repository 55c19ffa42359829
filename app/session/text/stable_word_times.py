"""The times of the words of stable text. A word keeps those with which it became stable, in its final text too.

The alignment of a word moves a little when more audio follows it. A client that was shown a time may have used it
already, for example to cut audio there.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tutti_server.app.session.messages import events
from tutti_server.engine import api

Words = tuple[api.Word, ...]
"""Words that make up a text from its beginning on, in order. Times in seconds from the start of the window."""


def timed_words(done: api.DoneEvent) -> Words:
    """The words of a hypothesis; none if the engine was not asked for their times."""
    return tuple(word for segment in done.segments for word in segment.words or ())


def grow(stable: Words, hypothesis: Words, n_chars: int, until_s: float) -> Words:
    """Add the words of a newer hypothesis that are stable now.

    A word that was stable keeps its times and its confidence. Its text grows where the hypothesis adds to it: "are"
    becomes "are,".

    Args:
        hypothesis: the words of the hypothesis, which begins with that text.
        n_chars: the length of the stable text now.
        until_s: the time before which all of it was spoken.
    """
    words = list(stable)
    n_before = _length(stable)
    for begin, word in _with_begins(hypothesis):
        end = min(begin + len(word.text), n_chars)
        if end <= max(begin, n_before):
            continue
        text = word.text[max(n_before - begin, 0) : end - begin]
        if begin < n_before:
            words[-1] = replace(words[-1], text=words[-1].text + text)
            continue
        start_s = max(min(word.start_s, until_s), words[-1].end_s if words else 0.0)
        words.append(replace(word, text=text, start_s=start_s, end_s=max(min(word.end_s, until_s), start_s)))
    return tuple(words)


def words_between(hypothesis: Words, begin: int, end: int, since_s: float) -> Words:
    """The words that begin between two indices of the hypothesis's text, none of them before the time `since_s`."""
    return not_before((word for at, word in _with_begins(hypothesis) if begin <= at < end), since_s)


def words_at_end(words: Words, n_chars: int) -> Words:
    """The last words that together have at most `n_chars` characters."""
    n_over = _length(words) - n_chars
    return tuple(word for begin, word in _with_begins(words) if begin >= n_over)


def not_before(words: Iterable[api.Word], since_s: float) -> Words:
    """The words with the times that lie before `since_s` moved there."""
    return tuple(_not_before(word, since_s) for word in words)


def words_from(stable: Words, n_chars: int) -> Words:
    """The words of the stable text after its first `n_chars` characters."""
    return tuple(word for begin, word in _with_begins(stable) if begin >= n_chars)


def with_stable_times(segment: api.Segment, stable: Words, n_before: int) -> tuple[api.Segment, float]:
    """Give the stable words of a final segment the times that the client was shown.

    The segment then holds these times, and ends before the stable words of the segments after it.

    Args:
        segment: a final segment of the window.
        stable: the words of the window's stable text, with which its final text begins.
        n_before: the length of the final text before the segment.

    Returns:
        The segment, and the time at which its last stable word ends; 0 if it has none.
    """
    if not stable:
        return segment, 0.0
    end = n_before + len(segment.text)
    inside = [(begin, word) for begin, word in _with_begins(stable) if n_before <= begin < end]
    after = words_from(stable, end)
    since_s = inside[-1][1].end_s if inside else stable[-1].end_s

    def timed(begin: int, word: api.Word) -> api.Word:
        shown = [each for at, each in inside if begin <= at - n_before < begin + len(word.text)]
        if not shown:
            return _not_before(word, since_s)
        return replace(word, start_s=shown[0].start_s, end_s=shown[-1].end_s, probability=shown[0].probability)

    words = tuple(timed(begin, word) for begin, word in _with_begins(segment.words or ()))
    shown_until_s = since_s if inside else 0.0
    start_s = min([segment.start_s, *(word.start_s for _, word in inside)])
    end_s = min([max(segment.end_s, shown_until_s), *(word.start_s for word in after)])
    return replace(segment, start_s=start_s, end_s=end_s, words=words), shown_until_s


def on_timeline(words: Iterable[api.Word], to_timeline: Callable[[float], float]) -> tuple[events.Word, ...]:
    """Words as the session sends them; `to_timeline` turns their times into those of the session."""
    return tuple(
        events.Word(word.text.strip(), to_timeline(word.start_s), to_timeline(word.end_s), round(word.probability, 3))
        for word in words
    )


def _with_begins(words: Iterable[api.Word]) -> Iterator[tuple[int, api.Word]]:
    """Each word with the index of its first character in the text that the words make up."""
    begin = 0
    for word in words:
        yield begin, word
        begin += len(word.text)


def _length(words: Words) -> int:
    return sum(len(word.text) for word in words)


def _not_before(word: api.Word, since_s: float) -> api.Word:
    return replace(word, start_s=max(word.start_s, since_s), end_s=max(word.end_s, since_s))
