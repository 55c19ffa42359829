"""Captions join texts as docs/protocol.md describes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clients.python.client_fakes import make_interim, make_segment, make_utterance
from tutti.captions import Transcript
from tutti.messages import Event, Interim, SpeechStarted, Utterance

WORDS = st.lists(st.sampled_from(["a", " b", " cc", " b.", "字", ""]), min_size=1, max_size=6)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[Event], list[list[str]]]:
    """Events of utterances on two channels, mixed as a server may mix them, and their texts by channel."""
    queues: list[list[Event]] = []
    texts: list[list[str]] = [[], []]
    for number in range(draw(st.integers(1, 4))):
        channel = draw(st.integers(0, 1))
        segments = draw(st.lists(WORDS.map("".join), max_size=3))
        text = "".join(segments)
        texts[channel].append(text)
        events: list[Event] = [SpeechStarted(number, channel, float(number))]
        n_stable = n_final = 0
        for index, segment in enumerate(segments):
            for _ in range(draw(st.integers(0, 3))):
                # Stable text only grows; it may reach beyond the segment that comes next.
                n_stable = draw(st.integers(max(n_stable, n_final), len(text)))
                tail = draw(WORDS.map("".join))
                events.append(make_interim(text[n_final:n_stable], tail, utterance=number, channel=channel))
            events.append(make_segment(segment, utterance=number, id=index, channel=channel))
            n_final += len(segment)
        events.append(make_utterance(text, utterance=number, channel=channel))
        queues.append(events)
    mixed: list[Event] = []
    while any(queues):
        mixed.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    return mixed, texts


@given(sessions())
def test_stable_text_never_changes(session: tuple[list[Event], list[list[str]]]) -> None:
    """`final + stable` of an open utterance only grows into its final text, and all text is there at the end."""
    events, texts = session
    transcript = Transcript()
    shown_stable: dict[int, str] = {}
    for event in events:
        transcript.add(event)
        for channel in (0, 1):
            for caption in transcript.open_captions(channel):
                now = caption.final + caption.stable
                assert now.startswith(shown_stable.get(caption.utterance, ""))
                shown_stable[caption.utterance] = now
        if isinstance(event, Interim):
            caption = next(c for c in transcript.open_captions(event.channel) if c.utterance == event.utterance)
            assert caption.text == caption.final + event.stable + event.tail
        if isinstance(event, Utterance):
            assert event.text.startswith(shown_stable[event.utterance])
    for channel in (0, 1):
        assert not transcript.open_captions(channel)
        assert [utterance.text for utterance in transcript.utterances(channel)] == texts[channel]
        assert transcript.text(channel) == " ".join(text for text in texts[channel] if text)


@pytest.mark.parametrize(
    ("stable", "tail", "text", "rest"),
    [
        ("Hello. How", " are yo", "Hello.", (" How", " are yo")),
        ("Hello", " north, my frend. How are you", "Hello there, my friend.", ("", " How are you")),
        ("", "five six slabs. Six spoons", "5-6 slabs.", ("", " Six spoons")),
        ("", "56 slabs. Six spoons", "5, 6 slabs.", ("", " Six spoons")),
        ("", "今天天汽很好我们", "今天天气很好", ("", "我们")),
    ],
    ids=["text beyond it", "a wrong tail", "fewer words", "more words", "no spaces"],
)
def test_a_segment_replaces_its_part_of_the_shown_text_and_the_rest_stays(
    stable: str, tail: str, text: str, rest: tuple[str, str]
) -> None:
    """Stable or tail, as it was, so that it does not disappear and come back.

    Of a wrong tail the words go that correspond to the segment. A word of it that is written as two does not stay
    beside the final text, nor does the text after it go.
    """
    transcript = Transcript()
    transcript.add(make_interim(stable, tail))
    transcript.add(make_segment(text))
    (caption,) = transcript.open_captions()
    assert (caption.final, caption.stable, caption.tail) == (text, *rest)
    transcript.add(make_segment("".join(rest) + " too.", id=1))
    assert transcript.text() == text + "".join(rest) + " too."


def test_max_utterances_keeps_only_the_newest() -> None:
    """A long session does not need more and more memory."""
    transcript = Transcript(max_utterances=2)
    for number in range(5):
        transcript.add(make_utterance(str(number), utterance=number))
    assert transcript.text() == "3 4"
