"""Converts text to tokens and tokens to text: special tokens, whole characters from bytes, words.

It knows nothing about audio, except that timestamp tokens are 20 ms apart.
"""

import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from string import punctuation

from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from tutti_server.engine.api import Piece, is_punctuation
from tutti_server.engine.errors import CheckpointError

TIMESTAMP_STEP_S = 0.02
"""Seconds from one timestamp token to the next."""

LANGUAGES_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Codes of languages whose words are not separated by spaces.

Source: openai/whisper, whisper/tokenizer.py, `split_to_word_tokens`.
"""

FIRST_WITHOUT_SPACES = "\u0e00"
"""The first character of the scripts without spaces, which is Thai; Latin and Cyrillic letters come before it."""


class Tokenizer:
    """A checkpoint's byte-level BPE (byte pair encoding) with Whisper's special tokens.

    Ids below `eot` are text, ids from `first_timestamp` on are timestamps, and ids between them are control tokens.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.eot = self._special("<|endoftext|>")
        self.sot = self._special("<|startoftranscript|>")
        self.translate = self._special("<|translate|>")
        self.transcribe = self._special("<|transcribe|>")
        self.previous = self._special("<|startofprev|>")
        self.no_speech = self._special("<|nospeech|>", "<|nocaptions|>")
        self.no_timestamps = self._special("<|notimestamps|>")
        # Tokenizers of old checkpoints do not list the timestamps. In every vocabulary they follow this token.
        self.first_timestamp = self.no_timestamps + 1
        self.languages = self._find_languages()
        self._bytes = [token_bytes(backend.id_to_token(token) or "") for token in range(self.eot)]
        self.texts = [_whole_text(token_bytes) for token_bytes in self._bytes]
        """The text of each token that holds whole characters; `None` for one that holds part of a character."""

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Read `tokenizer.json`, or build the same from `vocab.json`, `merges.txt` and `added_tokens.json`.

        `tokenizer_config.json` may list the added tokens instead.

        Raises:
            CheckpointError: files are missing or cannot be read, or a token that Whisper needs is missing.
        """
        try:
            if (folder / "tokenizer.json").exists():
                return cls(Backend.from_file(str(folder / "tokenizer.json")))
            return cls(_build(folder))
        except CheckpointError as error:
            raise CheckpointError(f"{folder}: tokenizer: {error}") from error
        except Exception as error:  # the library tokenizers raises plain Exception for a file that it cannot read
            raise CheckpointError(f"{folder}: tokenizer: expected readable files, got: {error}") from error

    @classmethod
    def from_tokens(cls, texts: Sequence[bytes], specials: Sequence[str]) -> "Tokenizer":
        """Build a tokenizer from the bytes of its text tokens and the names of those after them, in the order of ids.

        Tokens were merged in the order of their ids, so that the ids tell which bytes to merge first.

        Source: openai/tiktoken, src/lib.rs, `_byte_pair_merge`.

        Raises:
            CheckpointError: a token that Whisper needs is missing.
        """
        characters = {byte: character for character, byte in _byte_of_character().items()}
        names = ["".join(characters[byte] for byte in text) for text in texts]
        ids = {name: token for token, name in enumerate(names)}
        merges = [
            (name[:cut], name[cut:])
            for name in names
            for cut in range(1, len(name))
            if name[:cut] in ids and name[cut:] in ids
        ]
        backend = Backend(BPE(ids, merges))
        backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
        backend.add_special_tokens(list(specials))
        return cls(backend)

    def encode(self, text: str) -> list[int]:
        """The tokens of plain text. The name of a special token becomes text tokens, so callers cannot insert one."""
        normalizer, splitter = self._backend.normalizer, self._backend.pre_tokenizer
        if normalizer is not None:
            text = normalizer.normalize_str(text)
        parts = splitter.pre_tokenize_str(text) if text else []
        return [token.id for part, _ in parts for token in self._backend.model.tokenize(part)]

    def is_timestamp(self, token: int) -> bool:
        """Whether a token is a timestamp."""
        return token >= self.first_timestamp

    def time_s(self, timestamp: int) -> float:
        """The time of a timestamp token, in seconds from the start of the window."""
        return round((timestamp - self.first_timestamp) * TIMESTAMP_STEP_S, 2)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to the text: part of a character, or several; none for a special token."""
        return self._bytes[token] if token < self.eot else b""

    def whole_text(self, token: int) -> str | None:
        """The text of a token, as `texts` has it; empty for a special token."""
        return self.texts[token] if token < self.eot else ""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens. Timestamps and control tokens have none.

        A character that a timestamp interrupts becomes U+FFFD.
        """
        characters = CharacterDecoder(self)
        return "".join([characters.push(token) for token in tokens]) + characters.flush()

    def split(self, tokens: Sequence[int], language: str | None, logprobs: Sequence[float | None] = ()) -> list[Piece]:
        """Split decoded tokens into words and timestamps.

        A word begins at a space. In a language without spaces, each group of tokens that makes whole characters is a
        word, but a name in Latin letters is one. Punctuation without a space before it belongs to the word before it.

        Source: openai/whisper, whisper/tokenizer.py, `split_to_word_tokens`; and timing.py, `merge_punctuations`.

        Args:
            logprobs: the log-probability of each token, `None` where a prefix forced it; empty for words without any.
        """
        has_spaces = language not in LANGUAGES_WITHOUT_SPACES
        pieces: list[Piece] = []
        begin = end = n_marks = 0
        word = ""
        for n_tokens, text in self._whole_characters(tokens):
            begins_word = text is None or begin == end or _begins_word(text, word, has_spaces)
            if begins_word and begin < end:
                pieces.append(_word(tokens[begin:end], word, n_marks, logprobs[begin:end]))
            if text is None:
                pieces.append(Piece((tokens[end],), "", self.time_s(tokens[end])))
                begin = end = end + 1
                continue
            if begins_word:
                begin, word, n_marks = end, "", 0
            end += n_tokens
            word += text
            n_marks = n_marks + n_tokens if _is_mark(text) else 0
        if begin < end:
            pieces.append(_word(tokens[begin:end], word, n_marks, logprobs[begin:end]))
        return pieces

    def _whole_characters(self, tokens: Iterable[int]) -> Iterator[tuple[int, str | None]]:
        """Yield how many tokens make whole characters together, and these; 1 and `None` for a timestamp."""
        characters = CharacterDecoder(self)
        n_tokens = 0
        text = ""
        for token in tokens:
            if token >= self.first_timestamp:
                if n_tokens:
                    yield n_tokens, text + characters.flush()
                yield 1, None
                n_tokens, text = 0, ""
                continue
            n_tokens += 1
            text += characters.push(token)
            if not characters.is_inside_character:
                yield n_tokens, text
                n_tokens, text = 0, ""
        if n_tokens:
            yield n_tokens, text + characters.flush()

    def _special(self, *names: str) -> int:
        """The id of the special token that has one of these names."""
        for name in names:
            token = self._backend.token_to_id(name)
            if token is not None:
                return int(token)
        raise CheckpointError(f"expected Whisper's token {' or '.join(names)}, got a vocabulary without it")

    def _find_languages(self) -> dict[str, int]:
        """The language tokens, which stand between `<|startoftranscript|>` and the tasks in every vocabulary."""
        tokens = range(self.sot + 1, min(self.translate, self.transcribe))
        return {(self._backend.id_to_token(token) or "").strip("<|>"): token for token in tokens}


class CharacterDecoder:
    """Decodes tokens one by one, and holds back the bytes of a character until it is complete."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Called for each token of each window.
        self._texts, self._eot = tokenizer.texts, tokenizer.eot
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.is_inside_character = False
        """Whether it holds back bytes now."""

    def push(self, token: int) -> str:
        """The characters that this token completes. A character that a timestamp interrupts becomes U+FFFD."""
        if not self.is_inside_character:
            text = self._texts[token] if token < self._eot else ""
            if text is not None:
                return text
        elif self._tokenizer.is_timestamp(token):
            return self.flush()
        text = self._utf8.decode(self._tokenizer.token_bytes(token))
        self.is_inside_character = bool(self._utf8.getstate()[0])
        return text

    def flush(self) -> str:
        """End the text. Bytes that are still held back become U+FFFD."""
        if not self.is_inside_character:
            return ""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self.is_inside_character = False
        return text


def _build(folder: Path) -> Backend:
    """Build the tokenizer of a checkpoint that is older than `tokenizer.json`."""
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    ids = _added_tokens(folder)
    is_there = {vocab.name: vocab.exists(), merges.name: merges.exists(), "added_tokens.json": bool(ids)}
    if not all(is_there.values()):
        absent = ", ".join(name for name, exists in is_there.items() if not exists)
        raise CheckpointError(
            f"expected tokenizer.json, or vocab.json, merges.txt and added_tokens.json; missing: {absent}; copy them "
            "from the model that this one was trained from"
        )
    backend = Backend(BPE.from_file(str(vocab), str(merges)))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    names = sorted(ids, key=ids.__getitem__)
    backend.add_special_tokens(names)
    moved = [name for name in names if backend.token_to_id(name) != ids[name]]
    if moved:
        name = moved[0]
        raise CheckpointError(
            f"vocab.json and added_tokens.json disagree: expected {name} to have the id {ids[name]}, "
            f"got {backend.token_to_id(name)}"
        )
    return backend


def _added_tokens(folder: Path) -> dict[str, int]:
    """The ids of the tokens that vocab.json does not hold, from either of the files that list them."""
    added, config = folder / "added_tokens.json", folder / "tokenizer_config.json"
    if added.exists():
        ids: dict[str, int] = json.loads(added.read_text(encoding="utf-8"))
        return ids
    listed = json.loads(config.read_text(encoding="utf-8")).get("added_tokens_decoder", {}) if config.exists() else {}
    return {token["content"]: int(number) for number, token in listed.items()}


_is_mark = lru_cache(maxsize=4096)(is_punctuation)
"""`is_punctuation`, remembered: most texts of tokens come again and again."""


def _word(tokens: Sequence[int], text: str, n_marks: int, logprobs: Sequence[float | None]) -> Piece:
    """Make a word, with how sure the model is of it."""
    marks_from = len(tokens) - n_marks
    logprob, marks_logprob = _least(logprobs[:marks_from]), _least(logprobs[marks_from:])
    return Piece(tuple(tokens), text, n_marks=n_marks, logprob=logprob, marks_logprob=marks_logprob)


def _least(logprobs: Sequence[float | None]) -> float | None:
    """Return the least log-probability of the tokens that no prefix forced; `None` without any."""
    if len(logprobs) == 1:
        return logprobs[0]
    return min((logprob for logprob in logprobs if logprob is not None), default=None) if logprobs else None


def _begins_word(text: str, before: str, has_spaces: bool) -> bool:
    if has_spaces:
        return text.startswith(" ")
    if not any(character.isalnum() for character in text):
        return False
    beside = before.rstrip(punctuation)[-1:] + text.lstrip(punctuation)[:1]
    return text.startswith(" ") or max(beside) >= FIRST_WITHOUT_SPACES


def _whole_text(token_bytes: bytes) -> str | None:
    try:
        return token_bytes.decode("utf-8")
    except UnicodeDecodeError:
        return None


def token_bytes(token: str) -> bytes:
    """The bytes of a token that is written in the characters of byte-level BPE.

    Raises:
        KeyError: a character stands for no byte.
    """
    return bytes(_byte_of_character()[character] for character in token)


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """The byte for each printable character by which byte-level BPE writes bytes.

    Source: openai/gpt-2, src/encoder.py, `bytes_to_unicode`.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]
    return dict(zip(characters, printable + others, strict=True))
