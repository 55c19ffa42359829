"""Plans windows: which sentences of the bank stand where, and the tokens a decoder should write.

Plain Python and numpy, run ahead in threads; `training.model.frontend` makes the audio of it.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.speech.bank_index import SAMPLE_RATE, Said
from training.tokenizer import Ids

IGNORED = -100
N_STAMPS_PER_S = 50
FULL_S = 30.0

NO_SPEECH_SHARE = 0.08
PROMPT_SHARE = 0.2
TIMESTAMPS_SHARE = 0.6
TRANSLATE_SHARE = 0.05
CUT_SHARE = 0.35
"""Of windows that speech fills to the end: how many cut a sentence there."""
MOST_PREVIOUS_TOKENS = 220
MOST_TRIES = 40
"""To find a sentence short enough, before a window stays without speech."""
PADDED_SHARE = 0.7
"""Of windows whose speech ends early: how many are zero from there on, as a padded buffer is."""


class Placed(NamedTuple):
    """A sentence, or its beginning, in a window."""

    at: int
    source: int
    n_samples: int
    """In the window, after the change of speed."""
    speed: float


class Window(NamedTuple):
    placed: list[Placed]
    inputs: list[int]
    targets: list[int]
    classes: list[NDArray[np.int8]]
    end_s: float
    """From here on the window is padded with zeros."""
    has_speech: bool


@dataclass(slots=True)
class _Filled:
    """What a window holds so far."""

    audio_s: float
    placed: list[Placed] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    classes: list[NDArray[np.int8]] = field(default_factory=list)
    heard: list[Said] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch of windows of one length."""

    seconds: float
    inputs: NDArray[np.int64]
    """`(rows, tokens)`"""
    targets: NDArray[np.int64]
    places: NDArray[np.int64]
    """`(placed, 4)`: row, sample in the window, sample in the bank, samples."""
    speeds: NDArray[np.float32]
    """`(placed, 2)`: speed and gain."""
    classes: NDArray[np.int64]
    """CTC classes of all rows after each other."""
    class_counts: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Samples of each row after which it is zero."""
    has_speech: NDArray[np.bool_]
    is_prompted: bool = False
    """Its prompts help: a plan of `training.prompting`."""


class Planner:
    def __init__(self, chunks: list[list[Said]], ids: Ids, seed: int, marks: list[int]) -> None:
        """`marks`: the tokens of the comma, which separates the words of a glossary prompt, and of other marks."""
        self.chunks, self.ids, self.r, self.marks = chunks, ids, random.Random(seed), marks
        self.progress = 0.0
        """Of the training."""

    def batch(self, rows: int, seconds: float, n_tokens: int, long_prompts: bool = False) -> Plan:
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
        return Plan(
            seconds,
            inputs,
            targets,
            np.array(places, np.int64).reshape(-1, 4),
            np.array(speeds, np.float32).reshape(-1, 2),
            np.concatenate(classes).astype(np.int64),
            class_counts,
            ends,
            has_speech,
        )

    def window(self, seconds: float, n_tokens: int, long_prompts: bool) -> Window:
        r, ids = self.r, self.ids
        if r.random() < NO_SPEECH_SHARE:
            return self._without_speech(seconds)
        has_stamps = r.random() < TIMESTAMPS_SHARE
        chunk = self._chunk()
        index = r.randrange(len(chunk))
        room = n_tokens - 6
        prompt_length = 0
        wants_prompt = r.random() < (0.8 if long_prompts else PROMPT_SHARE)
        wants_glossary = wants_prompt and r.random() < 0.25
        previous: list[int] = []
        if wants_prompt and not wants_glossary:
            previous = self._previous(chunk, index, MOST_PREVIOUS_TOKENS if long_prompts else 50, long_prompts)
        if wants_prompt:
            prompt_length = 1 + (40 if wants_glossary else len(previous))
        filled = self._fill(chunk, index, seconds, room - prompt_length, has_stamps)
        if not filled.placed:
            return self._without_speech(seconds)
        if wants_glossary:
            previous = self._glossary(filled.heard)
        task = ids.translate if r.random() < TRANSLATE_SHARE else ids.transcribe
        head = [ids.start, ids.english, task]
        if not has_stamps:
            head.append(ids.no_timestamps)
        before = [ids.previous, *previous] if previous else []
        output = [*filled.output, ids.end]
        inputs = before + head + output[:-1]
        targets = [IGNORED] * len(before) + [ids.english] + [IGNORED] * (len(head) - 2) + output
        assert len(inputs) == len(targets) <= n_tokens
        return Window(
            filled.placed, inputs, targets, filled.classes, self._end(filled.audio_s, seconds), has_speech=True
        )

    def _without_speech(self, seconds: float) -> Window:
        """Nothing is said: `<|nospeech|>` where the language is told, and an end wherever text or a stamp could be."""
        ids, stamp = self.ids, self.ids.first_timestamp + self.r.randrange(N_STAMPS_PER_S)
        last = ids.no_timestamps if self.r.random() < 0.6 else stamp
        inputs = [ids.start, ids.english, ids.transcribe, last]
        # A decoder that must begin with a stamp still ends right after it.
        third = ids.end if last == stamp else IGNORED
        return Window(
            [],
            inputs,
            [ids.no_speech, IGNORED, third, ids.end],
            [],
            self._end(seconds * self.r.uniform(0.1, 1.0), seconds),
            has_speech=False,
        )

    def _fill(self, chunk: list[Said], index: int, seconds: float, room: int, has_stamps: bool) -> _Filled:
        """Sentences one after another until the tokens, the audio's end or the sentences drawn are used up."""
        r = self.r
        is_mixed, is_alone = r.random() < 0.25, r.random() < 0.06
        # Up to here there is audio; what is left of the window is padding.
        audio_s = seconds if r.random() < 0.65 else max(1.0, seconds * r.uniform(0.1, 1.0))
        cuts = r.random() < CUT_SHARE
        filled = _Filled(audio_s)
        at_s, tries = self._lead(audio_s), 0
        while tries < MOST_TRIES:
            said = chunk[index % len(chunk)]
            index += 1
            speed = 1.0 if r.random() < 0.5 else r.uniform(0.86, 1.16)
            duration_s = said.n_samples / SAMPLE_RATE / speed
            at_s = round(at_s * N_STAMPS_PER_S) / N_STAMPS_PER_S
            fits_tokens = len(filled.output) + len(said.tokens) + 2 <= room
            if fits_tokens and at_s + duration_s <= audio_s - 0.02:
                filled.placed.append(
                    Placed(int(at_s * SAMPLE_RATE), said.start, int(said.n_samples / speed) - 1, speed)
                )
                self._write(filled.output, said.tokens.tolist(), at_s, at_s + duration_s, has_stamps)
                filled.classes.append(said.classes)
                filled.heard.append(said)
                if is_alone:
                    break
                pause_s = r.expovariate(2.5) if r.random() < 0.9 else r.uniform(1, 4)
                at_s += duration_s + pause_s + 0.04
            elif (
                cuts and fits_tokens and self._cut(said, at_s, speed, audio_s == seconds, has_stamps, filled)
            ) or filled.placed:
                break
            else:
                tries += 1
                at_s = 0.0 if tries > 5 else at_s
                filled.audio_s = audio_s = seconds if tries > 10 else audio_s
            if is_mixed or not filled.placed:
                chunk = self._chunk()
                index = r.randrange(len(chunk))
        return filled

    def _end(self, audio_s: float, seconds: float) -> float:
        if audio_s >= seconds or self.r.random() >= PADDED_SHARE:
            return seconds
        return min(seconds, audio_s + self.r.choice([0.0, self.r.uniform(0, 1)]))

    def _lead(self, seconds: float) -> float:
        u = self.r.random()
        return 0.0 if u < 0.15 else self.r.uniform(0, 0.8) if u < 0.85 else self.r.uniform(0, min(5.0, seconds / 3))

    def _write(self, output: list[int], tokens: list[int], start_s: float, end_s: float, has_stamps: bool) -> None:
        if not has_stamps:
            output += tokens
            return
        first = self.ids.first_timestamp
        last_stamp = int(FULL_S * N_STAMPS_PER_S)
        start = first + min(last_stamp, round(start_s * N_STAMPS_PER_S))
        output += [start, *tokens, first + min(last_stamp, round(end_s * N_STAMPS_PER_S))]

    def _cut(
        self, said: Said, at_s: float, speed: float, is_window_end: bool, has_stamps: bool, filled: _Filled
    ) -> bool:
        """Let the audio's end break a sentence off: an open stamp as Whisper learnt it, or the words heard so far."""
        left_s = filled.audio_s - at_s
        if left_s < 0.3:
            return False
        n_samples = min(int(left_s * SAMPLE_RATE), int(said.n_samples / speed)) - 1
        if is_window_end and has_stamps and filled.placed and left_s > 1.0 and self.r.random() < 0.5:
            filled.placed.append(Placed(int(at_s * SAMPLE_RATE), said.start, n_samples, speed))
            filled.output.append(self.ids.first_timestamp + round(at_s * N_STAMPS_PER_S))
            return True
        if not said.is_timed:
            return False
        bounds = [*(said.words[:, 2] / SAMPLE_RATE / speed).tolist(), said.n_samples / SAMPLE_RATE / speed]
        # A word counts once most of it was heard; the one that the end falls into rarely was.
        n_words = sum(start + 0.8 * (end - start) <= left_s for start, end in zip(bounds, bounds[1:], strict=False))
        if n_words < 1:
            return False
        n_tokens, n_classes = said.words[n_words - 1, :2].tolist()
        tokens = said.tokens[:n_tokens].tolist()
        while tokens and tokens[-1] in self.marks:
            tokens.pop()
        if not tokens:
            return False
        filled.placed.append(Placed(int(at_s * SAMPLE_RATE), said.start, n_samples, speed))
        self._write(filled.output, tokens, at_s, filled.audio_s, has_stamps)
        filled.classes.append(said.classes[:n_classes])
        filled.heard.append(said)
        return True

    def _chunk(self) -> list[Said]:
        """Any chunk, the newest somewhat more often."""
        chunks = self.chunks
        u = self.r.random()
        return chunks[int(u * len(chunks))] if self.r.random() < 0.5 else chunks[-1 - int(u * u * len(chunks))]

    def _previous(self, chunk: list[Said], index: int, room: int, fills: bool) -> list[int]:
        """The sentences before this one, as many as the prompt takes."""
        tokens: list[int] = []
        before = index - 1
        while before >= 0 and len(tokens) + len(chunk[before].tokens) < room:
            tokens = chunk[before].tokens.tolist() + tokens
            before -= 1
            if not fills and self.r.random() < 0.4:
                break
        return tokens

    def _glossary(self, heard: list[Said]) -> list[int]:
        """Rarer words of what is said, and some that are not, as a user's list of names and terms."""
        own = [word for said in heard for word in self._rare_words(said)]
        other = [word for said in self.r.sample(self._chunk(), 2) for word in self._rare_words(said)]
        chosen = self.r.sample(own, min(3, len(own))) + self.r.sample(other, min(3, len(other)))
        self.r.shuffle(chosen)
        tokens: list[int] = []
        for word in chosen:
            if len(tokens) + len(word) + 1 > 38:
                break
            tokens += [*([self.marks[0]] if tokens else []), *word]
        return tokens

    def _rare_words(self, said: Said) -> list[list[int]]:
        ends = said.words[:, 0].tolist()
        words = [said.tokens[start:end].tolist() for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        kept = [[token for token in word if token not in self.marks] for word in words]
        return [word for word in kept if 3 <= len(word) <= 8]


def _joined(classes: list[NDArray[np.int8]]) -> NDArray[np.int8]:
    """With a space between sentences."""
    parts: list[NDArray[np.int8]] = []
    for some in classes:
        parts += [np.ones(1, np.int8), some] if parts else [some]
    return np.concatenate(parts) if parts else np.zeros(0, np.int8)
