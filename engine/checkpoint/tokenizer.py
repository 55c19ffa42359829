"""Text to tokens and back: special ids, whole characters out of byte-level pieces, words.

Knows nothing of audio except that timestamp tokens are 20 ms apart.
"""

import codecs
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from engine.api import Piece
from engine.errors import CheckpointError

TIMESTAMP_STEP_S = 0.02

LANGUAGES_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Words cannot be told by spaces there (openai/whisper, whisper/tokenizer.py, `split_to_word_tokens`)."""


class Tokenizer:
    """A checkpoint's byte-level BPE with Whisper's special tokens.

    Ids below `eot` are text, from `first_timestamp` on they are times, those between are control tokens.
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
        # Tokenizers of old checkpoints do not list the timestamps, which follow here in every vocabulary.
        self.first_timestamp = self.no_timestamps + 1
        self.languages = self._find_languages()
        self._bytes = [_token_bytes(backend.id_to_token(token) or "") for token in range(self.eot)]
        self._texts = [_whole_text(own) for own in self._bytes]

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Read `tokenizer.json`, or build the same from `vocab.json` and `merges.txt`.

        Raises:
            CheckpointError: neither is there, or a token that Whisper needs is missing.
        """
        try:
            if (folder / "tokenizer.json").exists():
                return cls(Backend.from_file(str(folder / "tokenizer.json")))
            return cls(_build(folder))
        except CheckpointError as error:
            raise CheckpointError(f"{folder}: tokenizer: {error}") from error
        except Exception as error:  # tokenizers raises bare exceptions for unreadable files
            raise CheckpointError(f"{folder}: tokenizer not readable: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text. What looks like a special token is spelled out: callers cannot smuggle one in."""
        normalizer, splitter = self._backend.normalizer, self._backend.pre_tokenizer
        if normalizer is not None:
            text = normalizer.normalize_str(text)
        parts = splitter.pre_tokenize_str(text) if text else []
        return [token.id for part, _ in parts for token in self._backend.model.tokenize(part)]

    def is_timestamp(self, token: int) -> bool:
        return token >= self.first_timestamp

    def time_s(self, timestamp: int) -> float:
        """Seconds from the start of the window."""
        return round((timestamp - self.first_timestamp) * TIMESTAMP_STEP_S, 2)

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to the text: part of a character, or several; nothing for special tokens."""
        return self._bytes[token] if token < self.eot else b""

    def whole_text(self, token: int) -> str | None:
        """The text of a token that is made of whole characters; `None` for one that holds part of one."""
        return self._texts[token] if token < self.eot else ""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; timestamps and control tokens have none, and a timestamp ends a broken character."""
        characters = CharacterDecoder(self)
        return "".join([characters.push(token) for token in tokens]) + characters.flush()

    def split(self, tokens: Iterable[int], language: str | None) -> list[Piece]:
        """Cut decoded tokens into words and timestamps.

        A word begins at a space; in scripts without spaces every group of tokens that makes whole characters is
        one. Punctuation without a space before it goes with the word before.

        Source: openai/whisper, whisper/tokenizer.py, `split_to_word_tokens`; and timing.py, `merge_punctuations`.
        """
        has_spaces = language not in LANGUAGES_WITHOUT_SPACES
        pieces: list[Piece] = []
        for group, text in self._whole_characters(tokens):
            if not text and len(group) == 1 and self.is_timestamp(group[0]):
                pieces.append(Piece(group, "", self.time_s(group[0])))
            elif pieces and pieces[-1].at_s is None and not _begins_word(text, has_spaces):
                pieces[-1] = Piece(pieces[-1].tokens + group, pieces[-1].text + text)
            else:
                pieces.append(Piece(group, text))
        return pieces

    def _whole_characters(self, tokens: Iterable[int]) -> Iterator[tuple[tuple[int, ...], str]]:
        """Groups of tokens whose bytes are whole characters, each with its text; timestamps stand alone."""
        characters = CharacterDecoder(self)
        group: tuple[int, ...] = ()
        text = ""
        for token in tokens:
            if self.is_timestamp(token):
                if group:
                    yield group, text + characters.flush()
                yield (token,), ""
                group, text = (), ""
                continue
            group += (token,)
            text += characters.push(token)
            if not characters.is_inside_character:
                yield group, text
                group, text = (), ""
        if group:
            yield group, text + characters.flush()

    def _special(self, *names: str) -> int:
        for name in names:
            token = self._backend.token_to_id(name)
            if token is not None:
                return int(token)
        raise CheckpointError(f"no token {' or '.join(names)}; this is not a Whisper tokenizer")

    def _find_languages(self) -> dict[str, int]:
        """Whisper's special tokens come as `<|startoftranscript|>`, the languages, then the tasks."""
        tokens = range(self.sot + 1, min(self.translate, self.transcribe))
        return {(self._backend.id_to_token(token) or "").strip("<|>"): token for token in tokens}


class CharacterDecoder:
    """Turns tokens into text as they come, holding back the bytes of a character until it is whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.is_inside_character = False

    def push(self, token: int) -> str:
        """The characters that this token completes. A timestamp ends a broken character, which becomes U+FFFD."""
        if not self.is_inside_character:
            text = self._tokenizer.whole_text(token)
            if text is not None:
                return text
        elif self._tokenizer.is_timestamp(token):
            return self.flush()
        text = self._utf8.decode(self._tokenizer.token_bytes(token))
        self.is_inside_character = bool(self._utf8.getstate()[0])
        return text

    def flush(self) -> str:
        """End the text here: bytes still held back can no longer become a character."""
        if not self.is_inside_character:
            return ""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self.is_inside_character = False
        return text


def _build(folder: Path) -> Backend:
    """The tokenizer of a checkpoint from before `tokenizer.json`."""
    vocab, merges, added = (folder / name for name in ("vocab.json", "merges.txt", "added_tokens.json"))
    absent = [file.name for file in (vocab, merges, added) if not file.exists()]
    if absent:
        raise CheckpointError(f"needs tokenizer.json, or else {', '.join(absent)}")
    backend = Backend(BPE.from_file(str(vocab), str(merges)))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    ids: dict[str, int] = json.loads(added.read_text(encoding="utf-8"))
    names = sorted(ids, key=ids.__getitem__)
    backend.add_special_tokens(names)
    moved = [name for name in names if backend.token_to_id(name) != ids[name]]
    if moved:
        raise CheckpointError(f"vocab.json and added_tokens.json disagree about {moved[0]}")
    return backend


def _begins_word(text: str, has_spaces: bool) -> bool:
    if has_spaces:
        return text.startswith(" ")
    return any(character.isalnum() for character in text)


def _whole_text(own: bytes) -> str | None:
    try:
        return own.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _token_bytes(token: str) -> bytes:
    return bytes(_byte_of_character()[character] for character in token)


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """The printable character that byte-level BPE writes for each byte, inverted.

    Source: openai/gpt-2, src/encoder.py, `bytes_to_unicode`.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]
    return dict(zip(characters, printable + others, strict=True))
