"""Clips of people from packages of Debian, and their texts."""

import gzip
from pathlib import Path

from click.testing import CliRunner

from benchmarks.files.labelled_clips import load_clips
from benchmarks.files.package_clips import DIALOGUES, NAMES, PROMPTS, main
from tests.made_files import Track, made_file, tone

SCRIPT = """
dialogId("said", "font_small", "A fish says what is written here.")
dialogStr("Une phrase de cinq mots.")

dialogId("silent", "font_small", "No file has it.")
dialogStr("Une autre phrase de cinq mots.")
"""


def write(file: Path, codec: str, rate: int) -> None:
    """A second of a tone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(made_file(file.suffix[1:], codec, rate, [Track(samples=tone(1.0))]))


def test_prompts_and_dialogues_have_the_texts_that_are_said(tmp_path: Path) -> None:
    """What is said in another way than it is written, or has no file, is left out."""
    share = tmp_path / "packages" / "usr" / "share"
    for language in PROMPTS:
        texts = (
            "; A title\n\ncalls/open: one two three four five\npress: press 1 to go on now\nlost: one two three four no"
        )
        listed = share / f"doc/asterisk-core-sounds-{language}/core-sounds-{language}.txt.gz"
        listed.parent.mkdir(parents=True)
        listed.write_bytes(gzip.compress(texts.encode("utf-8-sig")))
        for name in ("calls/open", "press"):
            write(share / f"asterisk/sounds/{language}_XX_f_Voice/{name}.g722", "g722", 16_000)
    game = share / "games" / "fillets-ng"
    for language in DIALOGUES:
        (game / "script" / "airplane").mkdir(parents=True, exist_ok=True)
        (game / "script" / "airplane" / f"dialogs_{language}.lua").write_text(SCRIPT)
        write(game / "sound" / "airplane" / language / "said.ogg", "libopus", 48_000)
    stamps = share / "tuxpaint" / "stamps" / "animals"
    stamps.mkdir(parents=True)
    lines = ["A dog.", *(f"{language}.utf8=Un chien." for language in NAMES)]
    (stamps / "dog.txt").write_text("\n".join(lines))
    (stamps / "aside.txt").write_text("\n".join(each.replace("chien", "chien (noir)") for each in lines))
    for name in [f"{stamp}_desc_{language}" for stamp in ("dog", "aside") for language in NAMES]:
        write(stamps / f"{name}.ogg", "libopus", 48_000)
    done = CliRunner().invoke(main, [str(tmp_path / "packages"), str(tmp_path / "clips")])
    assert done.exit_code == 0, done.output
    clips = load_clips(tmp_path / "clips")
    assert [(clip.kind, clip.language) for clip in clips] == [
        *((f"prompts-{language}", language) for language in PROMPTS),
        *((f"acted-{language}", language) for language in DIALOGUES),
        *((f"names-{language}", language) for language in NAMES),
    ]
    said = {"prompts": "one two three four five", "acted": "Une phrase de cinq mots.", "names": "Un chien."}
    assert all(clip.texts == (said[clip.kind[:-3]],) for clip in clips)
    assert all(1.9 < clip.audio_s < 2.1 for clip in clips)
    # Quiet, then the tone.
    assert all(clip.channels[0][:7000].std() < 10 for clip in clips)
    assert all(clip.channels[0][10_000:20_000].std() > 3000 for clip in clips)


def test_a_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [str(tmp_path), str(tmp_path / "clips")])
    assert done.exit_code == 1 and "prompts-es: expected recordings with texts below" in done.output
