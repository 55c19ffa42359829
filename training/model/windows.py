"""Plans training windows: which sentences of the bank stand where, and which tokens the decoder shall write.

Plain Python and numpy, run in processes; `training.model.frontend` makes the audio of a plan.
"""

import itertools
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.speech.bank_index import SAMPLE_RATE, BankSentence
from training.tokenizer import Ids

IGNORED = -100
"""The target of positions that have no loss."""
TIMESTAMPS_PER_S = 50
"""Timestamp tokens are 20 ms apart."""
FULL_S = 30.0
"""Length of a full window, in seconds."""

NO_SPEECH_SHARE = 0.08
"""Share of windows without speech."""
PROMPT_SHARE = 0.2
"""Share of windows with a prompt."""
TIMESTAMPS_SHARE = 0.6
"""Share of windows whose text has timestamps."""
TRANSLATE_SHARE = 0.05
"""Share of windows with the task token "translate"; their text is the same."""
CUT_SHARE = 0.35
"""Share of the windows filled to the end in which the end cuts a sentence."""
MAX_PREVIOUS_TOKENS = 220
"""Most tokens in a long prompt."""
MAX_TRIES = 40
"""How often a sentence that is short enough is looked for before a window stays without speech."""
PADDED_SHARE = 0.7
"""Share of the windows with an early end that are zero after it, like a padded buffer."""


class PlacedSentence(NamedTuple):
    """A sentence, or a part of it, at its place in a window."""

    at: int
    """First sample in the window."""
    source: int
    """First sample in the bank."""
    n_samples: int
    """Samples in the window, after the change of speed."""
    speed: float


class Window(NamedTuple):
    """A planned window."""

    placed: list[PlacedSentence]
    inputs: list[int]
    targets: list[int]
    classes: list[NDArray[np.int8]]
    end_s: float
    """Seconds after which the window is padded with zeros."""
    has_speech: bool


@dataclass(slots=True, kw_only=True)
class WindowContent:
    """What a window holds so far."""

    audio_s: float
    """Length of the audio before the padding."""
    placed: list[PlacedSentence] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    classes: list[NDArray[np.int8]] = field(default_factory=list)
    sentences: list[BankSentence] = field(default_factory=list)
    """The sentences whose text the output holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A batch of windows of one length."""

    seconds: float
    inputs: NDArray[np.int64]
    """Tokens that the decoder reads, `(rows, tokens)`."""
    targets: NDArray[np.int64]
    """Tokens that it shall write, `(rows, tokens)`."""
    places: NDArray[np.int64]
    """`(sentences, 4)`: row, sample in the window, sample in the bank, number of samples."""
    speeds: NDArray[np.float32]
    """`(sentences, 2)`: speed and gain."""
    classes: NDArray[np.int64]
    """CTC classes of all rows, one row after the other."""
    class_counts: NDArray[np.int64]
    """Number of CTC classes of each row."""
    ends: NDArray[np.int64]
    """Samples of each row after which it is zero."""
    has_speech: NDArray[np.bool_]
    is_prompted: bool = False
    """Whether its prompts help, as those of `training.prompting` do."""


class Planner:
    """Plans windows of ordinary training."""

    def __init__(self, chunks: list[list[BankSentence]], ids: Ids, seed: int, marks: list[int]) -> None:
        """`chunks`: the sentences of the bank; the list may grow. `marks`: the ids of `training.tokenizer.MARKS`."""
        self.chunks, self.ids, self.r, self.marks = chunks, ids, random.Random(seed), marks
        self.progress = 0.0
        """Elapsed share of the schedule."""

    def batch(self, rows: int, seconds: float, n_tokens: int, long_prompts: bool = False) -> BatchPlan:
        """Plan a batch of windows of this many seconds and tokens."""
        inputs = np.full((rows, n_tokens), self.ids.end, np.int64)
        targets = np.full((rows, n_tokens), IGNORED, np.int64)
        places: list[tuple[int, int, int, int]] = []
        speeds: list[tuple[float, float]] = []
        classes: list[NDArray[np.int8]] = []
        class_counts, ends, has_speech = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        for row in range(rows):
            window = self.window(seconds, n_tokens, long_prompts)
            inputs[row, : len(window.inputs)] = window.inputs
            targets[row, : len(window.targets)] = window.targets
            for place in window.placed:
                places.append((row, place.at, place.source, place.n_samples))
                speeds.append((place.speed, 10 ** (self.r.uniform(-4, 4) / 20)))
            joined = _joined(window.classes)
            classes.append(joined)
            class_counts[row], has_speech[row] = len(joined), window.has_speech
            ends[row] = int(window.end_s * SAMPLE_RATE)
        return BatchPlan(
            seconds=seconds,
            inputs=inputs,
            targets=targets,
            places=np.array(places, np.int64).reshape(-1, 4),
            speeds=np.array(speeds, np.float32).reshape(-1, 2),
            classes=np.concatenate(classes).astype(np.int64),
            class_counts=class_counts,
            ends=ends,
            has_speech=has_speech,
        )

    def window(self, seconds: float, n_tokens: int, long_prompts: bool) -> Window:
        """Plan one window."""
        r, ids = self.r, self.ids
        if r.random() < NO_SPEECH_SHARE:
            return self._without_speech(seconds)
        has_timestamps = r.random() < TIMESTAMPS_SHARE
        chunk = self._chunk()
        index = r.randrange(len(chunk))
        room = n_tokens - 6
        prompt_length = 0
        wants_prompt = r.random() < (0.8 if long_prompts else PROMPT_SHARE)
        wants_glossary = wants_prompt and r.random() < 0.25
        previous: list[int] = []
        if wants_prompt and not wants_glossary:
            previous = self._previous(chunk, index, MAX_PREVIOUS_TOKENS if long_prompts else 50, long_prompts)
        if wants_prompt:
            prompt_length = 1 + (40 if wants_glossary else len(previous))
        content = self._fill(chunk, index, seconds, room - prompt_length, has_timestamps)
        if not content.placed:
            return self._without_speech(seconds)
        if wants_glossary:
            previous = self._glossary(content.sentences)
        task = ids.translate if r.random() < TRANSLATE_SHARE else ids.transcribe
        head = [ids.start, ids.english, task]
        if not has_timestamps:
            head.append(ids.no_timestamps)
        before = [ids.previous, *previous] if previous else []
        output = [*content.output, ids.end]
        inputs = before + head + output[:-1]
        targets = [IGNORED] * len(before) + [ids.english] + [IGNORED] * (len(head) - 2) + output
        assert len(inputs) == len(targets) <= n_tokens
        return Window(
            content.placed, inputs, targets, content.classes, self._end(content.audio_s, seconds), has_speech=True
        )

    def _without_speech(self, seconds: float) -> Window:
        """A window without speech: its targets are `<|nospeech|>` for the language, and the end token for the text."""
        ids, timestamp = self.ids, self.ids.first_timestamp + self.r.randrange(TIMESTAMPS_PER_S)
        last = ids.no_timestamps if self.r.random() < 0.6 else timestamp
        inputs = [ids.start, ids.english, ids.transcribe, last]
        # A decoder that must begin with a timestamp ends right after it.
        third = ids.end if last == timestamp else IGNORED
        return Window(
            [],
            inputs,
            [ids.no_speech, IGNORED, third, ids.end],
            [],
            self._end(seconds * self.r.uniform(0.1, 1.0), seconds),
            has_speech=False,
        )

    def _fill(
        self, chunk: list[BankSentence], index: int, seconds: float, room: int, has_timestamps: bool
    ) -> WindowContent:
        """Place sentences one after another until the tokens or the audio are used up."""
        r = self.r
        is_mixed, is_alone = r.random() < 0.25, r.random() < 0.06
        # The rest of the window after this is padding.
        audio_s = seconds if r.random() < 0.65 else max(1.0, seconds * r.uniform(0.1, 1.0))
        cuts = r.random() < CUT_SHARE
        content = WindowContent(audio_s=audio_s)
        at_s, tries = self._lead(audio_s), 0
        while tries < MAX_TRIES:
            sentence = chunk[index % len(chunk)]
            index += 1
            speed = 1.0 if r.random() < 0.5 else r.uniform(0.86, 1.16)
            duration_s = sentence.n_samples / SAMPLE_RATE / speed
            at_s = round(at_s * TIMESTAMPS_PER_S) / TIMESTAMPS_PER_S
            fits_tokens = len(content.output) + len(sentence.tokens) + 2 <= room
            if fits_tokens and at_s + duration_s <= audio_s - 0.02:
                content.placed.append(
                    PlacedSentence(int(at_s * SAMPLE_RATE), sentence.start, int(sentence.n_samples / speed) - 1, speed)
                )
                self._write(content.output, sentence.tokens.tolist(), at_s, at_s + duration_s, has_timestamps)
                content.classes.append(sentence.classes)
                content.sentences.append(sentence)
                if is_alone:
                    break
                pause_s = r.expovariate(2.5) if r.random() < 0.9 else r.uniform(1, 4)
                at_s += duration_s + pause_s + 0.04
            elif (
                cuts and fits_tokens and self._cut(sentence, at_s, speed, audio_s == seconds, has_timestamps, content)
            ) or content.placed:
                break
            else:
                tries += 1
                at_s = 0.0 if tries > 5 else at_s
                content.audio_s = audio_s = seconds if tries > 10 else audio_s
            if is_mixed or not content.placed:
                chunk = self._chunk()
                index = r.randrange(len(chunk))
        return content

    def _end(self, audio_s: float, seconds: float) -> float:
        if audio_s >= seconds or self.r.random() >= PADDED_SHARE:
            return seconds
        return min(seconds, audio_s + self.r.choice([0.0, self.r.uniform(0, 1)]))

    def _lead(self, seconds: float) -> float:
        u = self.r.random()
        return 0.0 if u < 0.15 else self.r.uniform(0, 0.8) if u < 0.85 else self.r.uniform(0, min(5.0, seconds / 3))

    def _write(self, output: list[int], tokens: list[int], start_s: float, end_s: float, has_timestamps: bool) -> None:
        if not has_timestamps:
            output += tokens
            return
        first = self.ids.first_timestamp
        last_timestamp = int(FULL_S * TIMESTAMPS_PER_S)
        start = first + min(last_timestamp, round(start_s * TIMESTAMPS_PER_S))
        output += [start, *tokens, first + min(last_timestamp, round(end_s * TIMESTAMPS_PER_S))]

    def _cut(
        self,
        sentence: BankSentence,
        at_s: float,
        speed: float,
        is_window_end: bool,
        has_timestamps: bool,
        content: WindowContent,
    ) -> bool:
        """Cut a sentence at the end of the audio. Returns whether that was possible.

        The text gets an open timestamp, as Whisper was trained, or the words before the cut.
        """
        left_s = content.audio_s - at_s
        if left_s < 0.3:
            return False
        n_samples = min(int(left_s * SAMPLE_RATE), int(sentence.n_samples / speed)) - 1
        if is_window_end and has_timestamps and content.placed and left_s > 1.0 and self.r.random() < 0.5:
            content.placed.append(PlacedSentence(int(at_s * SAMPLE_RATE), sentence.start, n_samples, speed))
            content.output.append(self.ids.first_timestamp + round(at_s * TIMESTAMPS_PER_S))
            return True
        if not sentence.is_timed:
            return False
        bounds = [*(sentence.words[:, 2] / SAMPLE_RATE / speed).tolist(), sentence.n_samples / SAMPLE_RATE / speed]
        # A word counts once 80 % of it are in the audio.
        n_words = sum(start + 0.8 * (end - start) <= left_s for start, end in itertools.pairwise(bounds))
        if n_words < 1:
            return False
        n_tokens, n_classes = sentence.words[n_words - 1, :2].tolist()
        tokens = sentence.tokens[:n_tokens].tolist()
        while tokens and tokens[-1] in self.marks:
            tokens.pop()
        if not tokens:
            return False
        content.placed.append(PlacedSentence(int(at_s * SAMPLE_RATE), sentence.start, n_samples, speed))
        self._write(content.output, tokens, at_s, content.audio_s, has_timestamps)
        content.classes.append(sentence.classes[:n_classes])
        content.sentences.append(sentence)
        return True

    def _chunk(self) -> list[BankSentence]:
        """Draw a chunk, newer ones somewhat more often."""
        chunks = self.chunks
        u = self.r.random()
        return chunks[int(u * len(chunks))] if self.r.random() < 0.5 else chunks[-1 - int(u * u * len(chunks))]

    def _previous(self, chunk: list[BankSentence], index: int, room: int, fills: bool) -> list[int]:
        """The sentences before this one, as many as fit into the prompt."""
        tokens: list[int] = []
        before = index - 1
        while before >= 0 and len(tokens) + len(chunk[before].tokens) < room:
            tokens = chunk[before].tokens.tolist() + tokens
            before -= 1
            if not fills and self.r.random() < 0.4:
                break
        return tokens

    def _glossary(self, sentences: list[BankSentence]) -> list[int]:
        """A prompt like a user's list of names and terms: rare words of the window, and other words."""
        own = [word for sentence in sentences for word in self._rare_words(sentence)]
        other = [word for sentence in self.r.sample(self._chunk(), 2) for word in self._rare_words(sentence)]
        chosen = self.r.sample(own, min(3, len(own))) + self.r.sample(other, min(3, len(other)))
        self.r.shuffle(chosen)
        tokens: list[int] = []
        for word in chosen:
            if len(tokens) + len(word) + 1 > 38:
                break
            tokens += [*([self.marks[0]] if tokens else []), *word]
        return tokens

    def _rare_words(self, sentence: BankSentence) -> list[list[int]]:
        ends = sentence.words[:, 0].tolist()
        words = [sentence.tokens[start:end].tolist() for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        kept = [[token for token in word if token not in self.marks] for word in words]
        return [word for word in kept if 3 <= len(word) <= 8]


def _joined(classes: list[NDArray[np.int8]]) -> NDArray[np.int8]:
    """The CTC classes of a window, with a space between sentences."""
    parts: list[NDArray[np.int8]] = []
    for some in classes:
        parts += [np.ones(1, np.int8), some] if parts else [some]
    return np.concatenate(parts) if parts else np.zeros(0, np.int8)
