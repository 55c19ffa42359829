"""Makes a manifest of people who speak twelve languages, from packages of Debian.

    for each in asterisk-core-sounds-{es,fr,it,ru}{,-g722} fillets-ng-data{,-cs,-nl} tuxpaint-stamps-default; do
        apt-get download $each; done
    for each in *.deb; do dpkg -x $each PACKAGES; done
    python -m benchmarks.files.package_clips PACKAGES OUTPUT

The prompts of Asterisk are read by one voice for each language. The dialogues of the game Fish Fillets are acted. The
names of things in Tux Paint are a few words each. Only texts without digits are taken, as people say these in many
ways. OUTPUT is for `--manifest`.
"""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import click
import numpy as np

from benchmarks.files.labelled_clips import read_pcm, to_wav
from benchmarks.options import benchmark_command
from tutti_server.engine.api import SAMPLE_RATE

PROMPTS = ("es", "fr", "it", "ru")
DIALOGUES = ("cs", "nl")
NAMES = ("be", "bg", "ca", "da", "el", "es", "fr", "ro", "ru")
PROMPT = re.compile(r"([\w/.-]+)\s*: *(.+)")
DIALOGUE = re.compile(r'dialogId\("([^"]+)".*?\)\s*\ndialogStr\("([^"]+)"\)')
NAME = re.compile(r"^(\w+)\.utf8=(.+)$", re.MULTILINE)
UNCLEAR = re.compile(r"[\d\[\]?<>\\]|…|\.\.")
"""What texts do not have: digits, descriptions of sounds, broken letters, and pauses."""
MIN_WORDS = 5
"""Of prompts and dialogues."""
QUIET_S = 0.5
"""Added before and after each clip, which has none of its own."""
NOISE_LEVEL = 2.0
"""Of all of it, in units of 16 bits: digital silence is not what a microphone hears."""

Labelled = tuple[Path, str]
"""A file, and what is said in it."""


@benchmark_command()
@click.argument("packages", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--clips", default=60, show_default=True, help="The most of each language; the same ones each time.")
def main(packages: Path, output: Path, clips: int) -> None:
    """Write clips, and their manifest, of what is below PACKAGES/usr/share."""
    share = packages / "usr" / "share"
    found = {f"prompts-{language}": list(prompts(share, language)) for language in PROMPTS}
    found |= {f"acted-{language}": list(dialogues(share, language)) for language in DIALOGUES}
    found |= {f"names-{language}": list(names(share, language)) for language in NAMES}
    output.mkdir(parents=True, exist_ok=True)
    lines = []
    for kind, labelled in found.items():
        if not labelled:
            raise click.ClickException(f"{kind}: expected recordings with texts below {share}, found none")
        random = Random(kind)
        for number, (file, text) in enumerate(random.sample(labelled, min(clips, len(labelled)))):
            name = f"{kind}-{number:03}.wav"
            (output / name).write_bytes(clip(file, number))
            lines.append({"file": name, "text": text, "lang": kind[-2:], "kind": kind})
    texts = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (output / "manifest.jsonl").write_text(texts, encoding="utf-8")
    print(f"Written: {len(lines)} clips in {output}")


def prompts(share: Path, language: str) -> Iterator[Labelled]:
    listed = share / "doc" / f"asterisk-core-sounds-{language}" / f"core-sounds-{language}.txt.gz"
    voices = list((share / "asterisk" / "sounds").glob(f"{language}_*"))
    text = gzip.decompress(listed.read_bytes()).decode("utf-8-sig", "replace") if listed.exists() else ""
    for name, said in PROMPT.findall(text):
        for file in (voice / f"{name}.g722" for voice in voices):
            if file.exists() and is_clear(said, MIN_WORDS):
                yield file, said


def dialogues(share: Path, language: str) -> Iterator[Labelled]:
    game = share / "games" / "fillets-ng"
    for script in sorted((game / "script").glob(f"*/dialogs_{language}.lua")):
        for name, said in DIALOGUE.findall(script.read_text(encoding="utf-8", errors="replace")):
            file = game / "sound" / script.parent.name / language / f"{name}.ogg"
            if file.exists() and is_clear(said, MIN_WORDS):
                yield file, said


def names(share: Path, language: str) -> Iterator[Labelled]:
    for listed in sorted((share / "tuxpaint" / "stamps").rglob("*.txt")):
        said = dict(NAME.findall(listed.read_text(encoding="utf-8", errors="replace"))).get(language)
        file = listed.with_name(f"{listed.stem}_desc_{language}.ogg")
        if said and file.exists() and is_clear(said) and "(" not in said:
            yield file, said


def is_clear(text: str, min_words: int = 1) -> bool:
    """Whether a text says all that is spoken, and is long enough."""
    return not UNCLEAR.search(text) and "\N{REPLACEMENT CHARACTER}" not in text and len(text.split()) >= min_words


def clip(file: Path, seed: int) -> bytes:
    """The recording as a WAV, with quiet around it and a little noise."""
    (channel,) = read_pcm(file, is_mixed=True)
    quiet = np.zeros(round(QUIET_S * SAMPLE_RATE))
    samples = np.concatenate([quiet, channel, quiet])
    noise = NOISE_LEVEL * np.random.default_rng(seed).standard_normal(len(samples))
    return to_wav(np.rint(samples + noise).clip(-32_768, 32_767).astype(np.int16))


if __name__ == "__main__":
    main()
