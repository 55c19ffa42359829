"""Plans windows whose prompts help, for `training.prompting`, and those that must stay as they were."""

from dataclasses import replace

import numpy as np

from training.model.windows import IGNORED, MOST_PREVIOUS_TOKENS, TIMESTAMPS_SHARE, Placed, Plan, Planner, Window
from training.speech.bank_index import Said
from training.tokenizer import Ids

TEXT_UNTIL, COPY_UNTIL, MUTE_UNTIL = 0.075, 0.25, 0.5
"""Shares of the schedule: sentences are copied out of the prompt without any audio; then no prompt holds all of what is
said any more; then no word is cut out of the audio."""
SILENT_FROM = 0.5
"""From here on there are windows in which nobody speaks; before, prompts hold what is not heard."""
SILENT_SHARE = 0.3
"""Of the windows of a third of the batches: no more, or not all would get a sound (`Frontend`)."""
MOST_TEXT_ROWS, TEXT_TOKENS, TEXT_S = 512, 112, 3.0
"""Of a batch without audio; so much silence stands for it."""
COPY_SHARES = (0.3, 0.6, 1.0)
"""Of the words of a window whose text stands in its prompt: how many are cut out."""
PROMPT_TOKENS = 96
"""Most of them, in windows that are not for long prompts."""


class CopyPlanner(Planner):
    """Begins with batches without audio: sentences that stand in the prompt."""

    def batch(self, rows: int, seconds: float, n_tokens: int, long_prompts: bool = False) -> Plan:
        if self.progress >= TEXT_UNTIL:
            return super().batch(rows, seconds, n_tokens, long_prompts)
        rows = min(MOST_TEXT_ROWS, 4 * rows)
        inputs = np.full((rows, TEXT_TOKENS), self.ids.end, np.int64)
        targets = np.full((rows, TEXT_TOKENS), IGNORED, np.int64)
        for row in range(rows):
            before, said = self._copy()
            inputs[row, : len(before) + len(said)] = before + said
            targets[row, len(before) - 1 : len(before) + len(said)] = [*said, self.ids.end]
        nobody = np.zeros(rows, np.int64)
        return Plan(
            TEXT_S,
            inputs,
            targets,
            places=np.zeros((0, 4), np.int64),
            speeds=np.zeros((0, 2), np.float32),
            classes=nobody[:0],
            class_counts=nobody,
            ends=nobody,
            has_speech=nobody > 0,
            is_prompted=True,
        )

    def _copy(self) -> tuple[list[int], list[int]]:
        """What stands before the text, and the text."""
        ids, sentences = self.ids, [said.tokens.tolist() for said in self.r.sample(self._chunk(), 3)]
        said = sentences[0]
        self.r.shuffle(sentences)
        prompt: list[int] = []
        for sentence in sentences:
            if len(prompt) + len(sentence) + len(said) + 6 <= TEXT_TOKENS:
                prompt += sentence
        return [ids.previous, *prompt, ids.start, ids.english, ids.transcribe, ids.no_timestamps], said[:40]


class PromptPlanner(CopyPlanner):
    """Windows whose prompt says how something in them is written."""

    def __init__(self, chunks: list[list[Said]], ids: Ids, seed: int, marks: list[int]) -> None:
        super().__init__(chunks, ids, seed, marks)
        self._others: list[list[int]] = []
        """Rare words of earlier windows, which stand in a prompt without being said."""
        self._most_tokens = PROMPT_TOKENS
        self._known_words: dict[int, list[list[int]]] = {}

    def batch(self, rows: int, seconds: float, n_tokens: int, long_prompts: bool = False) -> Plan:
        room = n_tokens if long_prompts else n_tokens + PROMPT_TOKENS - 48
        return replace(super().batch(rows, seconds, room, long_prompts), is_prompted=True)

    def window(self, seconds: float, n_tokens: int, long_prompts: bool) -> Window:
        r, ids = self.r, self.ids
        self._most_tokens = MOST_PREVIOUS_TOKENS if long_prompts else PROMPT_TOKENS
        is_copied = r.random() < 1 - self.progress / COPY_UNTIL
        has_stamps = not is_copied and r.random() < TIMESTAMPS_SHARE  # what is cut out has no time
        chunk, index = self._start()
        filled = self._fill(chunk, index, seconds, n_tokens - 6 - self._most_tokens, has_stamps)
        if not filled.placed:
            return self._without_speech(seconds)
        placed = filled.placed
        own = [word for said in filled.heard for word in self._rare_words(said)]
        if is_copied:
            prompt = self._copied(filled.heard)
            placed = self._muted(filled.placed, filled.heard, r.choice(COPY_SHARES), None)
        else:
            listed = r.sample(own, min(r.choice((0, 1, 2, 4, 8)), len(own)))
            prompt = self._listed(listed) if r.random() < 0.7 else self._mentioned(listed)
            if r.random() < 0.7 * (1 - self.progress / MUTE_UNTIL):
                placed = self._muted(filled.placed, filled.heard, 1.0, listed)
        self._others = [*self._others[-500:], *own]
        head = [ids.start, ids.english, ids.transcribe] + [ids.no_timestamps] * (not has_stamps)
        before = [ids.previous, *prompt] if prompt else []
        output = [*filled.output, ids.end]
        targets = [IGNORED] * len(before) + [ids.english] + [IGNORED] * (len(head) - 2) + output
        end_s = self._end(filled.audio_s, seconds)
        return Window(placed, before + head + output[:-1], targets, filled.classes, end_s, has_speech=True)

    def _start(self) -> tuple[list[Said], int]:
        """A sentence with a rare word, if one is found soon."""
        for _ in range(20):
            chunk = self._chunk()
            index = self.r.randrange(len(chunk))
            if self._rare_words(chunk[index]):
                break
        return chunk, index

    def _copied(self, heard: list[Said]) -> list[int]:
        """What is said, in any order, and now and then a sentence that is not."""
        sentences = [said.tokens.tolist() for said in heard]
        if self.r.random() < 0.5:
            sentences.append(self.r.choice(self._chunk()).tokens.tolist())
        self.r.shuffle(sentences)
        return self._shortened(sentences, [])

    def _listed(self, own: list[list[int]]) -> list[int]:
        """A user's list of names and terms, of which some are said."""
        others = self.r.sample(self._others, min(self.r.choice((0, 1, 2, 4, 8, 12)), len(self._others)))
        words = [*own, *others]
        self.r.shuffle(words)
        return self._shortened(words, [self.marks[0]])

    def _mentioned(self, own: list[list[int]]) -> list[int]:
        """Sentences that nobody says here, with the words in them."""
        sentences = []
        for word in own or [[]]:
            said = self.r.choice(self._chunk())
            ends = [0, *said.words[:-1, 0].tolist()]
            at = self.r.choice(ends)
            tokens = said.tokens.tolist()
            sentences.append(tokens[:at] + word + tokens[at:])
        return self._shortened(sentences, [])

    def _shortened(self, parts: list[list[int]], between: list[int]) -> list[int]:
        """As many as the prompt takes."""
        tokens: list[int] = []
        for part in parts:
            joined = [*(between if tokens else []), *part]
            if len(tokens) + len(joined) < self._most_tokens:
                tokens += joined
        return tokens

    def _muted(
        self, placed: list[Placed], heard: list[Said], share: float, words: list[list[int]] | None
    ) -> list[Placed]:
        """The same with that share of the words, or of these, cut out of the audio where their times are known."""
        if len(placed) != len(heard):
            return placed  # a sentence that the window's end breaks off has no text
        kept: list[Placed] = []
        for place, said in zip(placed, heard, strict=True):
            if not said.is_timed:
                kept.append(place)
                continue
            bounds = [*said.words[:, 2].tolist(), said.n_samples]
            for (start, end), tokens in zip(zip(bounds, bounds[1:], strict=False), self._words(said), strict=True):
                is_wanted = words is None or tokens in words
                if is_wanted and self.r.random() < share:
                    continue
                at, n_samples = int(start / place.speed), int((end - start) / place.speed)
                n_samples = min(n_samples, place.n_samples - at) - 1
                if n_samples > 0:
                    kept.append(Placed(place.at + at, place.source + int(start), n_samples, place.speed))
        return kept

    def _words(self, said: Said) -> list[list[int]]:
        """Without their marks."""
        if (known := self._known_words.get(said.start)) is not None:
            return known
        ends = said.words[:, 0].tolist()
        words = [said.tokens[start:end].tolist() for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        known = [[token for token in word if token not in self.marks] for word in words]
        self._known_words[said.start] = known
        return known

    def _rare_words(self, said: Said) -> list[list[int]]:
        """Words of many tokens; names of several words are listed word by word."""
        return [word for word in self._words(said) if 3 <= len(word) <= 10]


class SilentPlanner(PromptPlanner):
    """Among the windows are some in which nobody speaks, most of them behind a prompt: it must not be read out."""

    def window(self, seconds: float, n_tokens: int, long_prompts: bool) -> Window:
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
    """Windows whose prompt says nothing about what is said."""

    def _glossary(self, heard: list[Said]) -> list[int]:
        return super()._glossary([])
