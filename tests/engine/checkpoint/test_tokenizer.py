"""Text, characters that several tokens make, and words."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import WhisperTokenizer

from tests.engine.checkpoints import SHAPES, make_tokenizer
from tests.small_model import SMALL_MODEL
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.checkpoint.tokenizer import CharacterDecoder, Tokenizer
from tutti_server.engine.errors import CheckpointError

MIXED = "Ünïcode — “quotes”, 東京です。 สวัสดี 👩‍👩‍👧 done"


@pytest.fixture(scope="module")
def tokenizer(small_checkpoint: Checkpoint) -> Tokenizer:
    return small_checkpoint.tokenizer


@pytest.fixture(scope="module")
def reference() -> WhisperTokenizer:
    tokenizer: WhisperTokenizer = WhisperTokenizer.from_pretrained(SMALL_MODEL)
    return tokenizer


def test_special_tokens_are_those_of_the_checkpoint(tokenizer: Tokenizer, reference: WhisperTokenizer) -> None:
    """Their ids are found by name."""
    names = {
        "<|endoftext|>": tokenizer.eot,
        "<|startoftranscript|>": tokenizer.sot,
        "<|translate|>": tokenizer.translate,
        "<|transcribe|>": tokenizer.transcribe,
        "<|startofprev|>": tokenizer.previous,
        "<|nospeech|>": tokenizer.no_speech,
        "<|notimestamps|>": tokenizer.no_timestamps,
        "<|en|>": tokenizer.languages["en"],
        "<|yue|>": tokenizer.languages["yue"],
    }
    assert names == {name: reference.convert_tokens_to_ids(name) for name in names}
    assert tokenizer.first_timestamp == tokenizer.no_timestamps + 1, "the file names none, like Whisper's first ones"
    assert len(tokenizer.languages) == 100


def test_a_missing_special_token_is_an_error() -> None:
    """The tokenizer of another model is refused, and the error names the token that it lacks."""
    backend = make_tokenizer(SHAPES[0])
    backend.model = type(backend.model)({"a": 0}, [])
    with pytest.raises(CheckpointError, match=r"expected Whisper's token <\|endoftext\|>, got a vocabulary without it"):
        Tokenizer(type(backend)(backend.model))


@pytest.mark.parametrize("text", ["", " Good morning.", MIXED, "a\n\tb  c"])
def test_text_is_encoded_as_in_the_reference(tokenizer: Tokenizer, reference: WhisperTokenizer, text: str) -> None:
    """Decoding gives the text again."""
    assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["<|endoftext|>", "a <|startoftranscript|> b", "<|0.00|><|notimestamps|>"])
def test_text_cannot_insert_special_tokens(tokenizer: Tokenizer, text: str) -> None:
    """The name of a special token becomes text tokens."""
    tokens = tokenizer.encode(text)
    assert all(token < tokenizer.eot for token in tokens)
    assert tokenizer.decode(tokens) == text


@given(text=st.text(max_size=40))
def test_any_text_is_encoded_and_decoded_to_itself(tokenizer: Tokenizer, text: str) -> None:
    """So are its pieces."""
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    pieces = tokenizer.split(tokens, "en")
    assert "".join([piece.text for piece in pieces]) == text
    assert [token for piece in pieces for token in piece.tokens] == tokens


@given(data=st.data())
def test_any_tokens_decode_together_as_one_by_one(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """Incomplete characters do too. Pieces hold all tokens and all text, in every script."""
    tokens = data.draw(st.lists(st.integers(0, 4680), max_size=30))
    characters = CharacterDecoder(tokenizer)
    streamed = "".join([characters.push(token) for token in tokens]) + characters.flush()
    assert streamed == tokenizer.decode(tokens)
    for language in ("en", "ja"):
        pieces = tokenizer.split(tokens, language)
        assert "".join([piece.text for piece in pieces]) == streamed
        assert [token for piece in pieces for token in piece.tokens] == tokens


def test_words_begin_at_spaces(tokenizer: Tokenizer) -> None:
    """Punctuation belongs to the word before it. A quotation mark after a space belongs to the next word."""
    pieces = tokenizer.split(tokenizer.encode(" Hello, “Dr. O'Neill” - it's 3.50 - yes…"), "en")
    assert [piece.text for piece in pieces] == [
        " Hello,", " “Dr.", " O'Neill”", " -", " it's", " 3.50", " -", " yes…",
    ]  # fmt: skip
    spoken = [tokenizer.decode(piece.tokens[: len(piece.tokens) - piece.n_marks]) for piece in pieces]
    assert spoken == [" Hello", " “Dr", " O'Neill", "", " it's", " 3.50", "", " yes"]
    assert [piece.text for piece in pieces if not piece.is_spoken] == [" -", " -"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" Verify Tutti's 10m", [" Verify", " Tutti's", " 10m"]),
        ("我用Kubernetes，10,000个", ["我", "用", "Kubernetes，", "10,000", "个"]),
    ],
)
def test_names_in_latin_letters_are_words_in_a_language_without_spaces(
    tokenizer: Tokenizer, text: str, words: list[str]
) -> None:
    """So are the words of English text that Japanese speech was translated into."""
    assert [piece.text for piece in tokenizer.split(tokenizer.encode(text), "ja")] == words


def test_timestamps_are_pieces_of_their_own(tokenizer: Tokenizer) -> None:
    """They have a time and no text, and they separate words."""
    first = tokenizer.first_timestamp
    tokens = [first, *tokenizer.encode(" Yes"), first + 123, first + 1500, *tokenizer.encode("no")]
    pieces = tokenizer.split(tokens, "en")
    assert [(piece.text, piece.at_s) for piece in pieces] == [
        ("", 0.0), (" Yes", None), ("", 2.46), ("", 30.0), ("no", None),
    ]  # fmt: skip


def test_a_tokenizer_without_tokenizer_json_is_built(tmp_path: Path) -> None:
    """`vocab.json`, `merges.txt` and `added_tokens.json` give the same tokenizer."""
    backend = make_tokenizer(SHAPES[0])
    backend.model.save(str(tmp_path))
    added = {token.content: id for id, token in backend.get_added_tokens_decoder().items()}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    old, new = Tokenizer.from_folder(tmp_path), Tokenizer(backend)
    assert old.encode(MIXED) == new.encode(MIXED)
    assert (old.first_timestamp, old.languages, old.no_speech) == (new.first_timestamp, new.languages, new.no_speech)
