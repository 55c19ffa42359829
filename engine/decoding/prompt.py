"""What stands before the first sampled token: previous text, language, task, timestamps, forced prefix.

Source of the layout: openai/whisper, whisper/decoding.py, `DecodingTask._get_initial_tokens`.
"""

from dataclasses import dataclass

from engine.api import DecodeOptions
from engine.checkpoint.checkpoint import Checkpoint

MAX_PREVIOUS_CHARACTERS = 4_000
"""More of the previous text is never read: its last 223 tokens are far shorter, and tokenising megabytes takes long."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens of one sequence before sampling."""

    tokens: tuple[int, ...]
    """Control tokens, then the forced prefix."""
    sot_index: int
    """Where `<|startoftranscript|>` stands: its output holds the no-speech probability."""
    n_prefix: int
    """How many of the tokens, at the end, are the forced prefix."""
    hotwords: tuple[tuple[int, ...], ...] = ()
    """Tokens of each hotword, as it is written inside a sentence."""
    draft: tuple[int, ...] = ()
    """Tokens behind it that are to be checked."""

    @property
    def prefix(self) -> tuple[int, ...]:
        return self.tokens[len(self.tokens) - self.n_prefix :]

    @property
    def control(self) -> tuple[int, ...]:
        """The tokens before the prefix."""
        return self.tokens[: len(self.tokens) - self.n_prefix]


def build_prompt(checkpoint: Checkpoint, options: DecodeOptions, language: str | None) -> Prompt:
    """Lay out the prompt of a window whose language is known (`None` where the checkpoint names none).

    Of the previous text as many of its last tokens are kept as fill half of the positions, `<|startofprev|>` included;
    hotwords stand before it and take up to half of that.
    """
    tokenizer = checkpoint.tokenizer
    tokens: list[int] = []
    previous_text = options.previous_text[-MAX_PREVIOUS_CHARACTERS:].strip()
    glossary = ", ".join(hotword.strip() for hotword in options.hotwords)
    n_previous = checkpoint.model.max_target_positions // 2 - 1
    if glossary or previous_text:
        # What was said last matters most, and the hotwords must not push it out.
        listed = tokenizer.encode(" " + glossary)[: n_previous // 2] if glossary else []
        said = tokenizer.encode(" " + previous_text)[-(n_previous - len(listed)) :] if previous_text else []
        tokens = [tokenizer.previous, *listed, *said]
    sot_index = len(tokens)
    tokens.append(tokenizer.sot)
    if checkpoint.generation.is_multilingual:
        assert language is not None
        task = tokenizer.transcribe if options.task == "transcribe" else tokenizer.translate
        tokens += [checkpoint.generation.languages[language], task]
    if not options.timestamps:
        tokens.append(tokenizer.no_timestamps)
    hotwords = tuple(tuple(tokenizer.encode(" " + hotword.strip())) for hotword in options.hotwords)
    return Prompt((*tokens, *options.prefix), sot_index, len(options.prefix), hotwords)


def max_output_tokens(checkpoint: Checkpoint, options: DecodeOptions, n_control: int) -> int:
    """Most tokens a window may decode to, forced prefix included, behind `n_control` control tokens.

    Half of the positions, as the reference samples at most (openai/whisper, whisper/decoding.py, `sample_len`).
    """
    positions = checkpoint.model.max_target_positions
    limit = min(positions // 2, positions - n_control)
    return limit if options.max_tokens is None else min(limit, options.max_tokens)
