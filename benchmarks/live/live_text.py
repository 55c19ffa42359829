"""What a reader sees of a live session: how its text grows, which words change, and when each word stays. No I/O."""

import difflib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import tutti
from benchmarks.live.captions import Caption, SpokenWord, measure_words
from benchmarks.scoring import words
from tutti_server.app.errors import SessionError
from tutti_server.app.session.messages import events

STOCK_PHRASES = frozenset(
    (
        *("thank you", "thanks", "thank you very much", "thank you so much"),
        *("thanks for watching", "thank you for watching", "bye", "bye bye"),
        *("you", "so", "oh", "okay"),
    )
)
"""What Whisper likes to write where it does not understand, as `scoring.words` has it."""


@dataclass(slots=True)
class UtteranceText:
    """The texts of one utterance, each with the seconds of audio after which it came."""

    interims: list[tuple[float, str]] = field(default_factory=list)
    """Each text as far as it was shown, the segments before it included."""
    final: tuple[float, str] | None = None
    """`None` until the utterance has ended."""
    start_s: float = 0.0
    end_s: float = 0.0
    """Where its speech begins, and where its speech or its text ends; known when it has ended."""
    first_text_s: float | None = None
    n_ends: int = 0
    """How often it has ended; the protocol guarantees once."""


@dataclass(slots=True, kw_only=True)
class ReaderFigures:
    """What readers saw of one session, or of several together."""

    n_utterances: int = 0
    n_words: int = 0
    n_changed: int = 0
    """Words of an interim that the next text of the same utterance does not have."""
    n_flashed: int = 0
    """Utterances that showed a stock phrase, and nothing else, with which their final text does not begin."""
    first_right_s: list[float] = field(default_factory=list)
    """For each utterance with text, seconds from its start until its first word stays."""
    ended_s: list[float] = field(default_factory=list)
    """For each utterance with text, seconds from its end until it is final."""
    shown_s: list[float] = field(default_factory=list)
    """For each spoken word, seconds from its end until it is shown for good.

    Infinite for a word that is not in the final text.
    """
    stable_s: list[float] = field(default_factory=list)
    """The same until it is stable."""

    def add(self, other: "ReaderFigures") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class LiveText:
    """Observes a session, inside the service or as a client of it, and keeps every text that a reader sees."""

    def __init__(self) -> None:
        self.utterances: dict[int, UtteranceText] = {}
        self.captions: list[Caption] = []
        """The text of the whole session whenever it changes."""
        self.taken_back: list[str] = []
        """Changes of text that was shown as stable, which must not happen."""
        self._ended: dict[int, str] = {}
        self._open: dict[int, tuple[str, str]] = {}
        """By utterance: its final segments with the stable text after them, and with all text after them."""

    @property
    def text(self) -> str:
        return " ".join(text for _, text in sorted(self._ended.items()) if text)

    def on_event(self, at_s: float, event: events.Event | tutti.Event) -> None:
        """Keep what an event shows that came at `at_s`, in seconds of audio or on the clock of a client."""
        match event:
            case events.Failure():
                raise SessionError(event.code, event.message)
            case events.SpeechStarted() | tutti.SpeechStarted():
                self._of(event.utterance)
                return
            case events.Interim() | tutti.Interim():
                final_text = self._ended.get(event.utterance, "")
                shown = final_text + event.stable + event.tail
                self._show(event.utterance, at_s, final_text + event.stable, shown)
                self._of(event.utterance).interims.append((at_s, shown))
            case events.Segment() | tutti.Segment():
                final_text = self._ended[event.utterance] = self._ended.get(event.utterance, "") + event.text
                before = self._open.get(event.utterance, ("", ""))
                # Text shown after the segment stays until the next interim replaces it.
                stable, shown = (text if text.startswith(final_text) else final_text for text in before)
                self._show(event.utterance, at_s, stable, shown)
            case events.Utterance() | tutti.Utterance():
                self._ended[event.utterance] = event.text
                self._show(event.utterance, at_s, event.text, event.text)
                ended = self._of(event.utterance)
                ended.n_ends += 1
                ended.final, ended.start_s, ended.end_s = (at_s, event.text), event.start_s, event.end_s
            case _:
                return
        stable, shown = (
            " ".join(texts) for texts in zip(*(each for _, each in sorted(self._open.items())), strict=True)
        )
        self.captions.append(Caption(at_s, shown, stable))

    def _show(self, utterance: int, at_s: float, stable: str, shown: str) -> None:
        before, _ = self._open.get(utterance, ("", ""))
        if not stable.startswith(before):
            self.taken_back.append(f"utterance {utterance} took stable text back: {before!r} became {stable!r}")
        self._open[utterance] = (stable, shown)
        if shown.strip() and self._of(utterance).first_text_s is None:
            self._of(utterance).first_text_s = at_s

    def _of(self, utterance: int) -> UtteranceText:
        return self.utterances.setdefault(utterance, UtteranceText())


def measure(live: LiveText, spoken: Sequence[SpokenWord]) -> ReaderFigures:
    """What a reader of this session saw; `spoken` says when each word was spoken."""
    latencies = measure_words(live.captions, spoken, 0.0)
    total = ReaderFigures(shown_s=latencies.shown_s, stable_s=latencies.stable_s)
    for utterance in live.utterances.values():
        total.add(measure_utterance(utterance))
    return total


def measure_utterance(utterance: UtteranceText) -> ReaderFigures:
    """What a reader of this utterance saw, without times of words; nothing if it has not ended."""
    if utterance.final is None:
        return ReaderFigures()
    ended_at_s, final = utterance.final[0], words(utterance.final[1])
    shown = [(at_s, words(text)) for at_s, text in utterance.interims]
    texts = [*(text for _, text in shown), final]
    found = ReaderFigures(n_utterances=1, n_words=len(final))
    found.n_changed = sum(n_lost(before, after) for before, after in itertools.pairwise(texts))
    found.n_flashed = any(" ".join(text) in STOCK_PHRASES and text != final[: len(text)] for _, text in shown)
    if final:
        since_s = ended_at_s
        for at_s, text in reversed(shown):
            if text[:1] != final[:1]:
                break
            since_s = at_s
        found.first_right_s.append(since_s - utterance.start_s)
        found.ended_s.append(ended_at_s - utterance.end_s)
    return found


def n_lost(before: Sequence[str], after: Sequence[str]) -> int:
    """How many words of a text the next one does not have, in the same order."""
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return len(before) - sum(block.size for block in blocks)
