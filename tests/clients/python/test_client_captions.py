"""Captions follow the rule by which texts are joined."""

from hypothesis import given
from hypothesis import strategies as st

from tutti.captions import Transcript
from tutti.messages import Event, Interim, Segment, SpeechStarted, Utterance

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
                events.append(Interim(number, channel, 0.0, 1.0, text[n_final:n_stable], tail))
            events.append(Segment(number, index, channel, 0.0, 1.0, segment, (), 1.0, None))
            n_final += len(segment)
        events.append(Utterance(number, channel, 0.0, 1.0, text, (), 0.0))
        queues.append(events)
    mixed: list[Event] = []
    while any(queues):
        mixed.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    return mixed, texts


@given(sessions())
def test_what_is_promised_is_never_taken_back(session: tuple[list[Event], list[list[str]]]) -> None:
    """`final + stable` of an open utterance only grows into its final text, and all text is there at the end."""
    events, texts = session
    transcript = Transcript()
    promised: dict[int, str] = {}
    for event in events:
        transcript.add(event)
        for channel in (0, 1):
            for caption in transcript.open_captions(channel):
                now = caption.final + caption.stable
                assert now.startswith(promised.get(caption.utterance, ""))
                promised[caption.utterance] = now
        if isinstance(event, Interim):
            caption = next(c for c in transcript.open_captions(event.channel) if c.utterance == event.utterance)
            assert caption.text == caption.final + event.stable + event.tail
        if isinstance(event, Utterance):
            assert event.text.startswith(promised[event.utterance])
    for channel in (0, 1):
        assert not transcript.open_captions(channel)
        assert [utterance.text for utterance in transcript.utterances(channel)] == texts[channel]
        assert transcript.text(channel) == " ".join(text for text in texts[channel] if text)


def test_text_beyond_a_segment_stays_until_the_next_interim() -> None:
    """A segment takes its part of what was shown and leaves the rest, stable and tail apart."""
    transcript = Transcript()
    transcript.add(Interim(0, 0, 0.0, 2.0, "Hello. How", " are yo"))
    transcript.add(Segment(0, 0, 0, 0.0, 1.0, "Hello.", (), 1.0, None))
    (caption,) = transcript.open_captions()
    assert (caption.final, caption.stable, caption.tail) == ("Hello.", " How", " are yo")


def test_a_final_text_replaces_a_tail_that_was_wrong() -> None:
    """What was only a guess goes when the final text differs."""
    transcript = Transcript()
    transcript.add(Interim(0, 0, 0.0, 2.0, "Hello", " north"))
    transcript.add(Segment(0, 0, 0, 0.0, 1.0, "Hello there.", (), 1.0, None))
    assert transcript.text() == "Hello there."


def test_what_follows_a_tail_that_was_wrong_stays() -> None:
    """The segment takes as many words as it has, so that the rest does not vanish and come back."""
    transcript = Transcript()
    transcript.add(Interim(0, 0, 0.0, 4.0, "Hello", " north, my frend. How are you"))
    transcript.add(Segment(0, 0, 0, 0.0, 1.0, "Hello there, my friend.", (), 1.0, None))
    (caption,) = transcript.open_captions()
    assert (caption.final, caption.stable, caption.tail) == ("Hello there, my friend.", "", " How are you")
    transcript.add(Segment(0, 1, 0, 1.0, 2.0, " How are you doing?", (), 1.0, None))
    assert transcript.text() == "Hello there, my friend. How are you doing?"


def test_only_the_newest_utterances_are_kept_when_asked() -> None:
    """`max_utterances` bounds what a long session keeps."""
    transcript = Transcript(max_utterances=2)
    for number in range(5):
        transcript.add(Utterance(number, 0, 0.0, 1.0, str(number), (), 0.0))
    assert transcript.text() == "3 4"
