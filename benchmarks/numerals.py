"""Which of two ways of writing spoken numbers in digits writes more sentences as expected.

    python -m benchmarks.numerals --audio FOLDER

Compares `app/text_rules/numerals.py` with text2num, if that is installed, on transcripts of recordings with numbers,
dates and digits. What is expected is listed here, and was checked by hand.
"""

import json
from collections.abc import Callable
from pathlib import Path

import click

from app.text_rules.edits import apply
from app.text_rules.numerals import Numerals

EXPECTED = {
    "human/digits8k/jackson_0.flac": "5567953517",
    "human/digits8k/jackson_1.flac": "2836648262",
    "human/digits8k/jackson_2.flac": "4341",
    "human/digits8k/jackson_3.flac": "996652891",
    "human/digits8k/george_0.flac": "414561206",
    "human/digits8k/george_1.flac": "357183",
    "human/digits8k/george_2.flac": "2487964234",
    "human/digits8k/george_3.flac": "10768",
    "synth/sentences/number_29.flac": "She ran 10 kilometers in 51 minutes.",
    "synth/sentences/number_02.flac": "The population reached 8,200,000 last year.",
    "synth/sentences/number_28.flac": "The meeting room holds up to 35 people.",
    "synth/sentences/number_16.flac": "It weighs 18 kilograms, give or take.",
    "synth/sentences/number_14.flac": "Your code is 810337.",
    "synth/sentences/number_23.flac": "The highest mountain rises 8849 meters above the sea.",
    "synth/sentences/number_03.flac": "Please transfer €1250 to the second account.",
    "synth/sentences/number_19.flac": "The answer is 105.",
    "synth/sentences/number_24.flac": "Call extension 6214 after the tone.",
    "synth/sentences/number_06.flac": "The flight number is 7492.",
    "synth/sentences/number_25.flac": "The recipe needs three eggs and 200 grams of flour.",
    "synth/sentences/number_20.flac": "They ordered 24 chairs and six tables.",
    "synth/sentences/date_12.flac": "The lease began in February 2019.",
    "synth/sentences/date_06.flac": "The show starts at a quarter to eight.|The show starts at 7:45.",
    "synth/sentences/date_05.flac": "Your next payment is due on the 1st of August.",
    "synth/sentences/date_19.flac": "The museum was founded in 1759.",
    "synth/sentences/date_01.flac": "My date of birth is March 14, 1988.|My date of birth is March 14th, 1988.",
    "synth/sentences/date_20.flac": "Our flight lands at 11:55 p m, local time.",
    "synth/sentences/date_13.flac": "He retired in the spring of 2008.",
    "synth/sentences/date_16.flac": "The year 1969 changed everything.",
    "synth/sentences/date_00.flac": "The contract ends on the 31st of December, 2026.",
    "synth/sentences/date_08.flac": "The ship sailed on April 10, 1912.|The ship sailed on April 10th, 1912.",
}
"""What the transcript of a recording is in digits; `|` stands between forms of which each is right."""


def ours(text: str) -> str:
    """A text as the rule of this project writes it."""
    return apply(text, Numerals().find(text).edits)


@click.command()
@click.option(
    "--audio", type=click.Path(path_type=Path, exists=True), required=True, help="Folder with manifest.jsonl."
)
def main(audio: Path) -> None:
    """Count the sentences that each way writes as expected, and show the others."""
    lines = map(json.loads, (audio / "manifest.jsonl").read_text().splitlines())
    spoken = {line["file"]: line["text"] for line in lines if line["file"] in EXPECTED}
    for name, write in writers().items():
        wrong = {text: write(text) for file, text in spoken.items() if write(text) not in EXPECTED[file].split("|")}
        click.echo(f"{name}: {len(spoken) - len(wrong)} of {len(spoken)} as expected")
        for text, written in wrong.items():
            click.echo(f"    {text}\n    {written}\n")


def writers() -> dict[str, Callable[[str], str]]:
    """Both ways, by their names."""
    try:
        from text_to_num import alpha2digit
    except ImportError:
        click.echo("text2num is not installed: pip install text2num", err=True)
        return {"tutti": ours}
    return {"tutti": ours, "text2num": lambda text: alpha2digit(text, "en")}


if __name__ == "__main__":
    main()
