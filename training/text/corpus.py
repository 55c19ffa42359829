"""Makes English sentences from WordNet, public-domain texts, the Python documentation and the grammar of this project.

Each line holds one sentence, written as it is spoken: American spelling, numbers in words, a full stop at the end.
Sentences equal or close to those of the evaluation audio are left out.
"""

import argparse
import gzip
import html
import itertools
import json
import logging
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

from training.text import numbers
from training.text.templates import Grammar

logger = logging.getLogger(__name__)

NAMED_SENTENCES = Path(__file__).parent / "named_sentences.tsv"
"""Sentences with rare names, and the names. `training.evaluation.agreement` measures prompts with them."""
HELD_OUT_EVERY = 100
"""One sentence in this many is kept for testing."""

_PLAIN = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "—": ", ", "–": ", ", "…": ".", "\u00a0": " ", "`": "'"}
)
_WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*'?")
_TITLES = dict(
    pair.split(":") for pair in "Mr:Mister Mrs:Missus Ms:Miss Dr:Doctor St:Saint Prof:Professor vs:versus".split()
)
_IRREGULAR_PASTS = dict(
    pair.split(":")
    for pair in (
        "be:was have:had do:did go:went say:said get:got make:made know:knew think:thought take:took see:saw "
        "come:came give:gave find:found tell:told become:became leave:left feel:felt put:put bring:brought "
        "begin:began keep:kept hold:held write:wrote stand:stood hear:heard let:let mean:meant set:set "
        "meet:met run:ran pay:paid sit:sat speak:spoke lie:lay lead:led read:read grow:grew lose:lost "
        "fall:fell send:sent build:built understand:understood draw:drew break:broke spend:spent cut:cut "
        "rise:rose drive:drove buy:bought wear:wore choose:chose eat:ate sleep:slept sing:sang swim:swam "
        "drink:drank ring:rang fly:flew throw:threw catch:caught teach:taught sell:sold win:won shoot:shot "
        "hit:hit hurt:hurt cost:cost shut:shut steal:stole ride:rode shake:shook wake:woke forget:forgot "
        "hide:hid bite:bit feed:fed fight:fought hang:hung lend:lent bend:bent dig:dug stick:stuck "
        "strike:struck sweep:swept tear:tore blow:blew freeze:froze bear:bore swear:swore weave:wove "
        "sink:sank shrink:shrank spring:sprang burst:burst cast:cast spread:spread"
    ).split()
)


PRONOUNS = "I you we they he she it everybody nobody someone".split()
MODALS = "will can should might could must would".split()
CONJUNCTIONS = "and but because while when so although until".split()
PREPOSITIONS = [
    *"in on at with without for from under over near behind after before".split(),
    *"between about into through against during".split(),
]


class Words:
    """Knows which spellings are words, how common they are, and their American spelling."""

    def __init__(self, scowl: Path) -> None:
        self.rank: dict[str, int] = {}
        """By word, the size of the smallest word list that holds it. The most common words have 10."""
        self.names: list[str] = []
        british: set[str] = set()
        for file in sorted(
            scowl.glob("*-*.*"), key=lambda file: int(file.suffix[1:]) if file.suffix[1:].isdigit() else 99
        ):
            size = int(file.suffix[1:]) if file.suffix[1:].isdigit() else 99
            if size > 70 or not re.match(
                r"(english|american|british|british_z|variant_1|american_variant_1)-", file.name
            ):
                continue
            for word in file.read_text(encoding="latin-1").split():
                if not word.isascii():
                    continue
                if "proper" in file.name or "upper" in file.name:
                    self.names.append(word)
                    self.rank.setdefault(word, size)
                elif file.name.startswith(("british", "variant")):
                    british.add(word)
                elif "abbreviations" not in file.name:
                    self.rank.setdefault(word, size)
        self.american = {word: other for word in british - self.rank.keys() if (other := self._american(word))}
        for word in "okay hello website email online internet app laptop smartphone blog video login username".split():
            self.rank.setdefault(word, 20)

    def knows(self, word: str) -> bool:
        """Whether this is a word, or a compound of words."""
        word = word.removesuffix("'s").rstrip("'")
        if "-" in word:
            return all(self.knows(part) for part in word.split("-"))
        return word in self.rank or word.lower() in self.rank

    def _american(self, word: str) -> str | None:
        """The American spelling by the regular differences. A guess counts only if it is a word."""
        for pattern, to in (
            ("our", "or"), ("isation", "ization"), ("ise", "ize"), ("ising", "izing"), ("isa", "iza"), ("yse", "yze"),
            ("ysing", "yzing"), ("tre", "ter"), ("bre", "ber"), ("lling", "ling"), ("lled", "led"), ("ller", "ler"),
            ("ence", "ense"), ("ogue", "og"), ("ae", "e"), ("oe", "e"), ("grey", "gray"), ("plough", "plow"),
            ("tyre", "tire"), ("cheque", "check"), ("programme", "program"), ("mould", "mold"), ("fulfil", "fulfill"),
            ("skilful", "skillful"), ("jewell", "jewel"), ("licence", "license"), ("pyjama", "pajama"), ("axe", "ax"),
        ):  # fmt: skip
            guess = word.replace(pattern, to)
            if guess != word and guess in self.rank:
                return guess
        return None


def normal(sentence: str) -> tuple[str, ...]:
    """The words of a sentence, for comparison."""
    return tuple(re.sub(r"[^a-z0-9' ]", " ", sentence.lower()).split())


class SentenceFilter:
    """Remembers the sentences it accepted, and refuses repetitions and sentences close to those of the evaluation."""

    def __init__(self, excluded: Iterable[str]) -> None:
        self.seen: set[tuple[str, ...]] = {normal(sentence) for sentence in excluded}
        self._by_pair: dict[tuple[str, str], list[frozenset[str]]] = defaultdict(list)
        for words in self.seen:
            for pair in itertools.pairwise(words):
                self._by_pair[pair].append(frozenset(words))

    def add(self, sentence: str) -> bool:
        """Accept a sentence. Returns whether it was accepted."""
        words = normal(sentence)
        if words in self.seen or self._is_close(words):
            return False
        self.seen.add(words)
        return True

    def _is_close(self, words: tuple[str, ...]) -> bool:
        if len(words) < 3:
            return False
        own = frozenset(words)
        for pair in itertools.pairwise(words):
            for other in self._by_pair.get(pair, ()):
                if len(own & other) >= 0.7 * len(own | other):
                    return True
        return False


def clean(sentence: str, words: Words, shortest: int = 3, longest: int = 28) -> str | None:
    """Rewrite a sentence from another source in the style of this project.

    Returns `None` if some of it cannot be spoken or is not a word.
    """
    s = sentence.translate(_PLAIN)
    s = s.replace("--", ", ").replace(";", ",").replace("...", ".")
    s = re.sub(r"\([^)]*\)|\[[^]]*\]|\{|\}", " ", s)
    s = s.replace('"', "").replace("*", "").replace("_", " ")
    if s.count("'") > 1:
        s = re.sub(r"(?<![A-Za-z])'|'(?![A-Za-z])", " ", s)
    s = re.sub(r":\s", ", ", s)
    s = re.sub(r"\s+([,.?!])", r"\1", s)
    s = re.sub(r"([,.?!])(?:\s*[,.?!])+", r"\1", s)
    s = " ".join(s.split()).strip(" ,-")
    if not s or re.search(r"[^A-Za-z0-9 ,.?!'$%-]", s):
        return None
    if s[-1] not in ".?!":
        s += "."
    parts = s.split()
    if not shortest <= len(parts) <= longest:
        return None
    spoken: list[str] = []
    for part in parts:
        match = re.fullmatch(r"(.*?)([.,?!]*)", part)
        assert match
        core, mark = match[1], match[2]
        if core in _TITLES:
            spoken.append(_TITLES[core] + ("" if mark == "." and part is not parts[-1] else mark))
            continue
        if re.search(r"\d", core):
            in_words = numbers.in_words(core)
            if in_words is None:
                return None
            spoken.append(in_words + mark)
            continue
        if (
            not _WORD.fullmatch(core)
            or (core.isupper() and len(core) > 1)
            or not words.knows(words.american.get(core.lower(), core))
        ):
            return None
        if (american := words.american.get(core.lower())) is not None:
            core = american.capitalize() if core[0].isupper() else american
        spoken.append(core.replace("!", "") + mark.replace("!", "."))
    joined = " ".join(spoken).replace("!", ".")
    return joined[0].upper() + joined[1:]


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph."""
    paragraph = re.sub(r"\b(Mr|Mrs|Dr|St)\.", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(]?[A-Z])", paragraph)


def _dictionary(texts: Path, name: str) -> str:
    return gzip.open(texts / f"usr/share/dictd/{name}.dict.dz", "rt", encoding="utf-8", errors="replace").read()


def wordnet(texts: Path, words: Words) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """WordNet's examples, its definitions of the more common words, and these words by part of speech."""
    source = re.sub(r"\[(?:syn|ant|also)[^\]]*\]", "", _dictionary(texts, "wn")).replace("{", "").replace("}", "")
    examples, definitions = [], []
    by_class: dict[str, list[str]] = defaultdict(list)
    for entry in re.split(r"\n(?=\S)", source):
        head, _, body = entry.partition("\n")
        rank = words.rank.get(head, 99)
        if rank <= 40 and head.isalpha() and head.islower() and len(head) > 2:
            for word_class in dict.fromkeys(re.findall(r"^\s+(n|v|adj|adv)\b", body, flags=re.M)):
                by_class[word_class].append(head)
        for part in re.split(r"\n\s+(?:n |v |adj |adv )?(?:\d+)?:\s", "\n" + body)[1:]:
            sense = " ".join(part.split())
            examples += re.findall(r'"([^"]{8,200})"', sense)
            definition = re.split(r';?\s*"', sense)[0].split(";")[0].strip(" :,")
            if definition and rank <= 60:
                definitions.append(definition)
    return examples, definitions, by_class


def rare_words(texts: Path, words: Words, excluded: Iterable[str]) -> tuple[list[str], list[str]]:
    """WordNet's single words that are in no list of common words: terms, and proper names."""
    unwanted = {word for sentence in excluded for word in normal(sentence)}
    heads = re.findall(r"^([A-Za-z][a-z]{4,13})$", _dictionary(texts, "wn"), flags=re.M)
    rare = [head for head in heads if words.rank.get(head, 99) > 50 and head.lower() not in unwanted]
    terms = [head for head in rare if head.islower() and not re.search(r"(ise|isation|our|tre)$", head)]
    return terms, [head for head in rare if head[0].isupper()]


def public_domain(texts: Path) -> Iterator[str]:
    """The sentences of the Jargon File and of The Devil's Dictionary."""
    for name in ("jargon", "devil"):
        for paragraph in re.split(r"\n\s*\n", _dictionary(texts, name)):
            yield from split_sentences(paragraph)


def python_documentation(texts: Path) -> Iterator[str]:
    """The sentences of the Python documentation, without paragraphs that hold code."""
    for file in sorted(texts.glob("usr/share/doc/python3*/html/**/*.html")):
        page = file.read_text(encoding="utf-8", errors="replace")
        for paragraph in re.findall(r"<(?:p|dd|li)[^>]*>(.*?)</(?:p|dd|li)>", page, flags=re.S):
            if not re.search(r"<(code|pre)", paragraph):
                yield from split_sentences(html.unescape(re.sub(r"<[^>]+>", "", paragraph)))


class WordSalad:
    """Makes grammatical nonsense in which every common word appears, the most common ones most often."""

    WEIGHTS: ClassVar = {10: 8.0, 20: 5.0, 35: 1.6, 40: 1.0}
    """How often a word is drawn, by its rank in `Words`."""

    def __init__(self, r: random.Random, words: Words, by_class: dict[str, list[str]]) -> None:
        self.r, self.words = r, words
        self.by_class = {name: (heads, self._cumulative(heads)) for name, heads in by_class.items()}
        self.every = [
            word
            for word, rank in words.rank.items()
            if rank <= 40 and word.isalpha() and word.islower() and len(word) > 1
        ]
        self.every_weights = self._cumulative(self.every)
        self.names = [
            name for name in words.names if words.rank.get(name, 99) <= 60 and name.isalpha() and name.istitle()
        ]

    def _cumulative(self, heads: list[str]) -> list[float]:
        total, sums = 0.0, []
        for head in heads:
            total += self.WEIGHTS.get(self.words.rank.get(head, 40), 0.5)
            sums.append(total)
        return sums

    def _draw(self, word_class: str) -> str:
        heads, sums = self.by_class[word_class]
        return self.r.choices(heads, cum_weights=sums)[0]

    def any_word(self) -> str:
        """A common word of any part of speech."""
        return self.r.choices(self.every, cum_weights=self.every_weights)[0]

    def _form(self, *forms: str) -> str | None:
        return next((form for form in forms if form in self.words.rank), None)

    def plural(self, noun: str) -> str:
        """The plural of a noun."""
        stem = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
        return self._form(stem, noun + "es", noun + "s") or noun

    def past(self, verb: str) -> str:
        """The past tense of a verb."""
        if verb in _IRREGULAR_PASTS:
            return _IRREGULAR_PASTS[verb]
        return self._form(verb + "ed", verb + "d", verb + verb[-1] + "ed", verb[:-1] + "ied") or "wanted to " + verb

    def ing(self, verb: str) -> str:
        """The "-ing" form of a verb."""
        return self._form(verb.removesuffix("e") + "ing", verb + "ing", verb + verb[-1] + "ing") or "trying to " + verb

    def noun_phrase(self) -> str:
        """A random noun phrase."""
        r = self.r
        noun = self._draw("n")
        adjective = self._draw("adj") + " " if r.random() < 0.55 else ""
        if r.random() < 0.3:
            quantity = r.choice(
                [*"the some many these those our their no all".split(), numbers.cardinal(r.randint(2, 99))]
            )
            return f"{quantity} {adjective}{self.plural(noun)}"
        return f"{r.choice('the the a my your his her this that every its'.split())} {adjective}{noun}"

    def sentence(self) -> str:
        """A random sentence."""
        r = self.r
        pronouns = "I you we they he she it".split()
        noun = self.noun_phrase
        subject = noun() if r.random() < 0.5 else r.choice([*PRONOUNS, r.choice(self.names)])
        verb, past = self._draw("v"), self.past(self._draw("v"))
        where = f"{r.choice(PREPOSITIONS)} {noun()}"
        shape = r.randint(0, 11)
        if shape == 0:
            made = f"{subject} {past} {noun()} {where}"
        elif shape == 1:
            made = f"{subject} {self._draw('adv')} {past} {noun()}"
        elif shape == 2:
            made = f"{noun()} {r.choice(['is', 'was', 'will be', 'has been', 'may be'])} {self._draw('adj')} {where}"
        elif shape == 3:
            made = f"{subject} {r.choice([*MODALS, 'did not'])} {verb} {noun()} {where}"
        elif shape == 4:
            made = f"{subject} {past} {noun()} {r.choice(CONJUNCTIONS)} {r.choice(pronouns)} {self.past(verb)} {noun()}"
        elif shape == 5:
            made = f"{r.choice([*MODALS, 'do', 'did'])} {r.choice(pronouns)} {verb} {noun()} {where}?"
        elif shape == 6:
            made = f"{r.choice(['they were', 'he is', 'she was', 'we are', 'I am'])} {self.ing(verb)} {noun()} {where}"
        elif shape == 7:
            made = f"{noun()} of {noun()} {past} {noun()}"
        elif shape == 8:
            made = f"{noun()}, {noun()}, and {noun()}"
        elif shape == 9:
            made = f"{verb} {noun()} {where}"
        elif shape == 10:
            made = f"{r.choice(['there is', 'there was', 'there are', 'here is', 'this is'])} {noun()} {where}"
        else:
            made = self._listed(r.randint(3, 11))
        made = re.sub(r"\ba (?=[aeio])", "an ", made)
        made = made[0].upper() + made[1:]
        return made if made.endswith("?") else made + "."

    def _listed(self, count: int) -> str:
        """Words in a row, sometimes with a comma."""
        r = self.r
        chosen = [self.any_word() if r.random() < 0.94 else r.choice(self.names) for _ in range(count)]
        return " ".join(word + ("," if r.random() < 0.07 and i < count - 1 else "") for i, word in enumerate(chosen))

    def short(self) -> str:
        """A sentence of one to three words, like commands and answers."""
        chosen = [self.any_word() for _ in range(self.r.choice([1, 1, 1, 2, 2, 3]))]
        made = " ".join(chosen)
        return made[0].upper() + made[1:] + self.r.choice([".", ".", ".", "?"])


def excluded_sentences(manifests: Iterable[Path]) -> Iterator[str]:
    """The sentences of evaluation manifests."""
    for manifest in manifests:
        for line in manifest.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            for text in [entry.get("text") or "", *entry.get("channel_text", [])]:
                yield text
                yield from re.split(r"(?<=[.?!])\s+", text)


def is_held_out(sentence: str) -> bool:
    """Whether a sentence is kept for testing. The answer depends on its words alone."""
    return random.Random(" ".join(normal(sentence))).randrange(HELD_OUT_EVERY) == 0


def build(
    texts: Path, kept: SentenceFilter, rare_excluded: Iterable[str], seed: int, scale: float
) -> list[tuple[str, str]]:
    """Make pairs of source and sentence in random order.

    Words of `rare_excluded` are not drawn as rare words. A `scale` below 1 makes fewer sentences, for trials.
    """
    r = random.Random(seed)
    words = Words(texts / "usr/share/dict/scowl")
    examples, definitions, by_class = wordnet(texts, words)
    salad, grammar = WordSalad(r, words, by_class), Grammar(r, *rare_words(texts, words, rare_excluded))

    def cleaned(raw: Iterable[str]) -> Iterator[str]:
        return (sentence for s in raw if (sentence := clean(s, words)) is not None)

    def drawn(draw: Callable[[], str], count: int) -> Iterator[str]:
        return (draw() for _ in range(int(count * scale)))

    r.shuffle(definitions)
    every_word = [
        word[0].upper() + word[1:] + "."
        for word in words.rank
        if words.rank[word] <= 20 and word.isalpha() and len(word) > 1
    ]
    sources: list[tuple[str, Iterable[str], int]] = [
        ("wordnet-example", cleaned(examples), 60_000),
        ("wordnet-definition", cleaned(definitions), 45_000),
        ("public-domain", cleaned(public_domain(texts)), 12_000),
        ("python", cleaned(python_documentation(texts)), 14_000),
        ("salad", drawn(salad.sentence, 150_000), 150_000),
        ("short", [*every_word, *drawn(salad.short, 12_000)], 30_000),
        *(
            (name, drawn(partial(grammar.sentence, name), count), count)
            for name, count in (
                ("everyday", 60_000), ("call", 60_000), ("meeting", 20_000), ("lecture", 26_000), ("command", 16_000),
                ("number", 34_000), ("date", 24_000), ("name", 24_000), ("spell", 24_000),
                ("rare", 90_000),
            )
        ),
    ]  # fmt: skip
    made: list[tuple[str, str]] = []
    counts: Counter[str] = Counter()
    for name, sentences, max_count in sources:
        for sentence in sentences:
            if counts[name] >= max_count * scale:
                break
            if kept.add(sentence):
                made.append((name, sentence))
                counts[name] += 1
        logger.info("%-20s %7d", name, counts[name])
    r.shuffle(made)
    return made


def main() -> None:
    """Write train.tsv and test.tsv."""
    parser = argparse.ArgumentParser(prog="python -m training.text", description=__doc__)
    parser.add_argument("--texts", type=Path, required=True, help="folder into which the text packages were unpacked")
    parser.add_argument("--out", type=Path, required=True, help="folder for train.tsv and test.tsv")
    parser.add_argument(
        "--exclude", type=Path, nargs="*", default=[], help="evaluation manifests whose sentences are left out"
    )
    parser.add_argument(
        "--own",
        type=Path,
        default=Path(__file__).parent / "own_sentences.txt",
        help="own sentences, which are left out too",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the sentences to make")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    named = NAMED_SENTENCES.read_text(encoding="utf-8").splitlines()
    own = [*args.own.read_text().splitlines(), *(line.split("\t")[0] for line in named)]
    made = build(args.texts, SentenceFilter([*excluded_sentences(args.exclude), *own]), named, args.seed, args.scale)
    args.out.mkdir(parents=True, exist_ok=True)
    test = [pair for pair in made if is_held_out(pair[1])]
    train = [pair for pair in made if not is_held_out(pair[1])]
    for name, pairs in (("train", train), ("test", test)):
        (args.out / f"{name}.tsv").write_text("".join(f"{source}\t{sentence}\n" for source, sentence in pairs))
    logger.info(
        "%d sentences to train on, %d to test, %d words", len(train), len(test), sum(len(s.split()) for _, s in made)
    )
