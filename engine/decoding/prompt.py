"""Builds what stands before the first sampled token: previous text, language, task, timestamps, forced prefix.

Source of the layout: openai/whisper, whisper/decoding.py, `DecodingTask._get_initial_tokens`.
"""

from dataclasses import dataclass

from tutti_server.engine.api import DecodeOptions
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.checkpoint.tokenizer import LANGUAGES_WITHOUT_SPACES

MAX_PREVIOUS_CHARACTERS = 4_000
"""The number of characters at the end of the previous text that are tokenised.

The last 223 tokens of it, the most that are used, are far shorter, and tokenising megabytes takes long.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The tokens of one sequence before sampling."""

    tokens: tuple[int, ...]
    """The control tokens, then the forced prefix."""
    sot_index: int
    """The position of `<|startoftranscript|>`: its output holds the no-speech probability."""
    n_prefix: int = 0
    """The number of tokens, at the end, that are the forced prefix."""
    with_timestamps: bool = True
    """Whether it lets the model mark times."""
    hotwords: tuple[tuple[int, ...], ...] = ()
    """The tokens of each hotword, as it is written inside a sentence."""
    draft: tuple[int, ...] = ()
    """Draft tokens, which follow the prompt and are to be verified."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens of the forced prefix."""
        return self.tokens[len(self.tokens) - self.n_prefix :]

    @property
    def control(self) -> tuple[int, ...]:
        """The control tokens: all tokens before the forced prefix, those of the previous text included."""
        return self.tokens[: len(self.tokens) - self.n_prefix]


def build_prompt(checkpoint: Checkpoint, options: DecodeOptions, language: str | None) -> Prompt:
    """Build the prompt of a window.

    The previous text fills up to half of the positions, `<|startofprev|>` included; its last tokens are kept. Hotwords
    are no part of the prompt: in noise and in unclear speech the model would write them down (`hotwords.py`).

    Args:
        language: of the window; `None` where the checkpoint names no languages.
    """
    tokenizer = checkpoint.tokenizer
    tokens: list[int] = []
    previous_text = options.previous_text[-MAX_PREVIOUS_CHARACTERS:].strip()
    if previous_text:
        n_previous = checkpoint.model.max_target_positions // 2 - 1
        tokens = [tokenizer.previous, *tokenizer.encode(" " + previous_text)[-n_previous:]]
    sot_index = len(tokens)
    tokens.append(tokenizer.sot)
    if checkpoint.generation.is_multilingual:
        assert language is not None
        task = tokenizer.transcribe if options.task == "transcribe" else tokenizer.translate
        tokens += [checkpoint.generation.languages[language], task]
    if not options.timestamps:
        tokens.append(tokenizer.no_timestamps)
    # With a space, a hotword would only be reached after one that such a language does not write.
    space = "" if options.task == "transcribe" and language in LANGUAGES_WITHOUT_SPACES else " "
    hotwords = tuple(tuple(tokenizer.encode(space + hotword.strip())) for hotword in options.hotwords)
    return Prompt(
        tokens=(*tokens, *options.prefix),
        sot_index=sot_index,
        n_prefix=len(options.prefix),
        with_timestamps=options.timestamps,
        hotwords=hotwords,
    )


def max_output_tokens(checkpoint: Checkpoint, options: DecodeOptions) -> int:
    """Return the most tokens that a window may decode to, forced prefix included.

    That is half of the positions, as `sample_len` in openai/whisper, whisper/decoding.py, or what the prompt leaves.
    """
    # The language does not matter here: the token of every language takes one position.
    prompt = build_prompt(checkpoint, options, next(iter(checkpoint.generation.languages), None))
    positions = checkpoint.model.max_target_positions
    limit = min(positions // 2, positions - len(prompt.control))
    return limit if options.max_tokens is None else min(limit, options.max_tokens)
