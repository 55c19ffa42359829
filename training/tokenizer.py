"""Trains the byte-level BPE and writes the tokenizer files, with Whisper's special tokens in their order after it."""

import argparse
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

logger = logging.getLogger(__name__)

VOCAB_SIZE = 3072
"""Number of byte-level pieces. With the special tokens there are 4681 tokens."""
N_TIMESTAMPS = 1501
"""Timestamp tokens from 0.00 s to 30.00 s, 0.02 s apart."""
N_POSITIONS = 448
"""Tokens that a decoder accepts, including its prompt."""
MARKS = (",", ".", "?")
"""The punctuation of the training text. The comma comes first: it separates the words of a glossary prompt."""


def special_tokens() -> list[str]:
    """Whisper's special tokens without the timestamps, in the order of their ids."""
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    languages = [f"<|{language}|>" for language in LANGUAGES]
    tasks = "translate transcribe startoflm startofprev nospeech notimestamps".split()
    return ["<|endoftext|>", "<|startoftranscript|>", *languages, *(f"<|{task}|>" for task in tasks)]


def train(sentences: Iterable[str], folder: Path, vocab_size: int = VOCAB_SIZE) -> None:
    """Write `tokenizer.json`, `vocab.json`, `merges.txt`, `tokenizer_config.json` and `preprocessor_config.json`."""
    from transformers import WhisperFeatureExtractor, WhisperTokenizer

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        (" " + sentence for sentence in sentences),
        trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False),
    )
    model: dict[str, Any] = json.loads(bpe.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(merge) for merge in model["merges"]]
    tokenizer = WhisperTokenizer(vocab=vocab, merges=merges)
    specials = special_tokens()
    stamps = [f"<|{index * 0.02:.2f}|>" for index in range(N_TIMESTAMPS)]
    for names, special in ((specials, True), (stamps, False)):
        added = [AddedToken(name, lstrip=False, rstrip=False, normalized=False, special=special) for name in names]
        tokenizer.add_tokens(added, special_tokens=special)
    for offset, name in enumerate(specials + stamps):
        assert tokenizer.convert_tokens_to_ids(name) == len(vocab) + offset, name
    tokenizer.add_special_tokens({"extra_special_tokens": specials[1:]})
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in merges))
    extractor = WhisperFeatureExtractor(feature_size=80)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    extractor.save_pretrained(folder)


class Ids:
    """The ids of the special tokens, by name."""

    def __init__(self, file: Path) -> None:
        added = {entry["content"]: entry["id"] for entry in json.loads(file.read_text())["added_tokens"]}
        self.end = added["<|endoftext|>"]
        self.start = added["<|startoftranscript|>"]
        self.english = added["<|en|>"]
        self.translate, self.transcribe = added["<|translate|>"], added["<|transcribe|>"]
        self.previous, self.no_speech = added["<|startofprev|>"], added["<|nospeech|>"]
        self.no_timestamps, self.first_timestamp = added["<|notimestamps|>"], added["<|0.00|>"]
        self.vocab_size = added["<|30.00|>"] + 1
        assert self.vocab_size == self.first_timestamp + N_TIMESTAMPS


def mark_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of `MARKS`."""
    found = [tokenizer.token_to_id(mark) for mark in MARKS]
    return [each for each in found if each is not None]


def main() -> None:
    """Train the tokenizer on a text file."""
    parser = argparse.ArgumentParser(prog="python -m training.tokenizer", description=__doc__)
    parser.add_argument("--text", type=Path, required=True, help="train.tsv of training.text")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tokenizer files")
    parser.add_argument("--vocab", type=int, default=VOCAB_SIZE, help="number of byte-level pieces")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    rows = [line.split("\t") for line in args.text.read_text().splitlines()]
    # Nonsense sentences would spend pieces on rare words, and made-up names would spend them on nothing.
    train((sentence for source, sentence in rows if source not in ("salad", "rare")), args.out, args.vocab)
    encoded = Tokenizer.from_file(str(args.out / "tokenizer.json")).encode_batch([" " + row[1] for row in rows[:3000]])
    pieces = sum(len(e.ids) for e in encoded)
    logger.info("%.2f pieces a word", pieces / sum(len(row[1].split()) for row in rows[:3000]))


if __name__ == "__main__":
    main()
