"""Plans windows whose prompts help, for `training.prompting`, and windows that must stay as they were."""

import itertools
from dataclasses import replace

import numpy as np

from training.model.windows import (
    IGNORED,
    MAX_PREVIOUS_TOKENS,
    TIMESTAMPS_SHARE,
    BatchPlan,
    PlacedSentence,
    Planner,
    Window,
)
from training.speech.bank_index import BankSentence
from training.tokenizer import Ids

TEXT_UNTIL = 0.075
"""Share of the schedule in which sentences are copied out of the prompt, without audio."""
COPY_UNTIL = 0.25
"""Share of the schedule up to which a prompt may hold the whole text of its window."""
MUTE_UNTIL = 0.5
"""Share of the schedule up to which words are cut out of the audio."""
SILENT_FROM = 0.5
"""Share of the schedule from which some windows have no speech. Before, prompts hold words that are cut out."""
SILENT_SHARE = 0.3
"""Share of these windows in a third of the batches. With more, some would get no sound (see `Frontend`)."""
MAX_TEXT_ROWS = 512
"""Most rows of a batch without audio."""
TEXT_TOKENS = 112
"""Tokens of a row of such a batch."""
TEXT_S = 3.0
"""Seconds of silence that stand for the audio of such a batch."""
COPY_SHARES = (0.3, 0.6, 1.0)
"""Shares of the words that are cut out of a window whose text stands in its prompt."""
PROMPT_TOKENS = 96
"""Most tokens of a prompt in a window that is not for long prompts."""


class CopyPlanner(Planner):
    """Begins with batches without audio, whose sentences stand in the prompt."""

    def batch(self, rows: int, seconds: float, n_tokens: int, long_prompts: bool = False) -> BatchPlan:
        """Plan a batch: at first without audio, later as `Planner` does."""
        if self.progress >= TEXT_UNTIL:
            return super().batch(rows, seconds, n_tokens, long_prompts)
        rows = min(MAX_TEXT_ROWS, 4 * rows)
        inputs = np.full((rows, TEXT_TOKENS), self.ids.end, np.int64)
        targets = np.full((rows, TEXT_TOKENS), IGNORED, np.int64)
        for row in range(rows):
            before, text = self._copy()
            inputs[row, : len(before) + len(text)] = before + text
            targets[row, len(before) - 1 : len(before) + len(text)] = [*text, self.ids.end]
        zeros = np.zeros(rows, np.int64)
        return BatchPlan(
            seconds=TEXT_S,
            inputs=inputs,
            targets=targets,
            places=np.zeros((0, 4), np.int64),
            speeds=np.zeros((0, 2), np.float32),
            classes=zeros[:0],
            class_counts=zeros,
            ends=zeros,
            has_speech=zeros > 0,
            is_prompted=True,
        )

    def _copy(self) -> tuple[list[int], list[int]]:
        """The tokens before a text that stands in its prompt, and the tokens of the text."""
        ids, sentences = self.ids, [sentence.tokens.tolist() for sentence in self.r.sample(self._chunk(), 3)]
        text = sentences[0]
        self.r.shuffle(sentences)
        prompt: list[int] = []
        for sentence in sentences:
            if len(prompt) + len(sentence) + len(text) + 6 <= TEXT_TOKENS:
                prompt += sentence
        return [ids.previous, *prompt, ids.start, ids.english, ids.transcribe, ids.no_timestamps], text[:40]


class PromptPlanner(CopyPlanner):
    """Plans windows whose prompt shows how some of their words are written."""

    def __init__(self, chunks: list[list[BankSentence]], ids: Ids, seed: int, marks: list[int]) -> None:
        super().__init__(chunks, ids, seed, marks)
        self._others: list[list[int]] = []
        """Rare words of earlier windows. A prompt lists them beside the words of its window."""
        self._max_tokens = PROMPT_TOKENS
        self._known_words: dict[int, list[list[int]]] = {}

    def batch(self, rows: int, seconds: float, n_tokens: int, long_prompts: bool = False) -> BatchPlan:
        """Plan a batch with room for prompts."""
        room = n_tokens if long_prompts else n_tokens + PROMPT_TOKENS - 48
        return replace(super().batch(rows, seconds, room, long_prompts), is_prompted=True)

    def window(self, seconds: float, n_tokens: int, long_prompts: bool) -> Window:
        """Plan a window: with its text in the prompt, or with some of its rare words there."""
        r, ids = self.r, self.ids
        self._max_tokens = MAX_PREVIOUS_TOKENS if long_prompts else PROMPT_TOKENS
        is_copied = r.random() < 1 - self.progress / COPY_UNTIL
        has_timestamps = not is_copied and r.random() < TIMESTAMPS_SHARE  # words that are cut out have no time
        chunk, index = self._start()
        content = self._fill(chunk, index, seconds, n_tokens - 6 - self._max_tokens, has_timestamps)
        if not content.placed:
            return self._without_speech(seconds)
        placed = content.placed
        own = [word for sentence in content.sentences for word in self._rare_words(sentence)]
        if is_copied:
            prompt = self._copied(content.sentences)
            placed = self._muted(content.placed, content.sentences, r.choice(COPY_SHARES), None)
        else:
            listed = r.sample(own, min(r.choice((0, 1, 2, 4, 8)), len(own)))
            prompt = self._listed(listed) if r.random() < 0.7 else self._mentioned(listed)
            if r.random() < 0.7 * (1 - self.progress / MUTE_UNTIL):
                placed = self._muted(content.placed, content.sentences, 1.0, listed)
        self._others = [*self._others[-500:], *own]
        head = [ids.start, ids.english, ids.transcribe] + [ids.no_timestamps] * (not has_timestamps)
        before = [ids.previous, *prompt] if prompt else []
        output = [*content.output, ids.end]
        targets = [IGNORED] * len(before) + [ids.english] + [IGNORED] * (len(head) - 2) + output
        end_s = self._end(content.audio_s, seconds)
        return Window(placed, before + head + output[:-1], targets, content.classes, end_s, has_speech=True)

    def _start(self) -> tuple[list[BankSentence], int]:
        """A sentence with a rare word, if 20 draws find one; otherwise any sentence."""
        for _ in range(20):
            chunk = self._chunk()
            index = self.r.randrange(len(chunk))
            if self._rare_words(chunk[index]):
                break
        return chunk, index

    def _copied(self, spoken: list[BankSentence]) -> list[int]:
        """A prompt of the sentences of the window in random order, sometimes with another sentence."""
        sentences = [sentence.tokens.tolist() for sentence in spoken]
        if self.r.random() < 0.5:
            sentences.append(self.r.choice(self._chunk()).tokens.tolist())
        self.r.shuffle(sentences)
        return self._shortened(sentences, [])

    def _listed(self, own: list[list[int]]) -> list[int]:
        """A prompt like a user's list of names and terms, some of which are spoken."""
        others = self.r.sample(self._others, min(self.r.choice((0, 1, 2, 4, 8, 12)), len(self._others)))
        words = [*own, *others]
        self.r.shuffle(words)
        return self._shortened(words, [self.marks[0]])

    def _mentioned(self, own: list[list[int]]) -> list[int]:
        """A prompt of sentences that are not in the window, with these words put into them."""
        sentences = []
        for word in own or [[]]:
            other = self.r.choice(self._chunk())
            ends = [0, *other.words[:-1, 0].tolist()]
            at = self.r.choice(ends)
            tokens = other.tokens.tolist()
            sentences.append(tokens[:at] + word + tokens[at:])
        return self._shortened(sentences, [])

    def _shortened(self, parts: list[list[int]], between: list[int]) -> list[int]:
        """Join the parts that fit into the prompt."""
        tokens: list[int] = []
        for part in parts:
            joined = [*(between if tokens else []), *part]
            if len(tokens) + len(joined) < self._max_tokens:
                tokens += joined
        return tokens

    def _muted(
        self, placed: list[PlacedSentence], sentences: list[BankSentence], share: float, words: list[list[int]] | None
    ) -> list[PlacedSentence]:
        """Cut a share of the words out of the audio, or of these words only, where word times are known."""
        if len(placed) != len(sentences):
            return placed  # a sentence that the end of the window cuts has no text
        kept: list[PlacedSentence] = []
        for place, sentence in zip(placed, sentences, strict=True):
            if not sentence.is_timed:
                kept.append(place)
                continue
            bounds = [*sentence.words[:, 2].tolist(), sentence.n_samples]
            for (start, end), tokens in zip(itertools.pairwise(bounds), self._words(sentence), strict=True):
                is_wanted = words is None or tokens in words
                if is_wanted and self.r.random() < share:
                    continue
                at, n_samples = int(start / place.speed), int((end - start) / place.speed)
                n_samples = min(n_samples, place.n_samples - at) - 1
                if n_samples > 0:
                    kept.append(PlacedSentence(place.at + at, place.source + int(start), n_samples, place.speed))
        return kept

    def _words(self, sentence: BankSentence) -> list[list[int]]:
        """The tokens of each word, without punctuation."""
        if (known := self._known_words.get(sentence.start)) is not None:
            return known
        ends = sentence.words[:, 0].tolist()
        words = [sentence.tokens[start:end].tolist() for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        known = [[token for token in word if token not in self.marks] for word in words]
        self._known_words[sentence.start] = known
        return known

    def _rare_words(self, sentence: BankSentence) -> list[list[int]]:
        """The words of three to ten tokens. A name of several words counts as several words."""
        return [word for word in self._words(sentence) if 3 <= len(word) <= 10]


class SilentPlanner(PromptPlanner):
    """Plans some windows without speech, most of them with a prompt, so that the decoder does not write its prompt."""

    def window(self, seconds: float, n_tokens: int, long_prompts: bool) -> Window:
        """Plan a window, late in the schedule sometimes one without speech."""
        if self.progress < SILENT_FROM or self.r.random() > SILENT_SHARE:
            return super().window(seconds, n_tokens, long_prompts)
        window = self._without_speech(seconds)
        if self.r.random() < 0.4:
            return window
        listed = self.r.sample(self._others, min(self.r.choice((1, 2, 4)), len(self._others)))
        prompt = self._listed(listed) if self.r.random() < 0.6 else self._mentioned(listed)
        before = [self.ids.previous, *prompt] if prompt else []
        return window._replace(inputs=before + window.inputs, targets=[IGNORED] * len(before) + window.targets)


class KeptPlanner(CopyPlanner):
    """Plans ordinary windows whose prompt does not help."""

    def _glossary(self, sentences: list[BankSentence]) -> list[int]:
        return super()._glossary([])
