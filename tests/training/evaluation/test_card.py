"""The evaluation's table, and its place in the model card."""

from pathlib import Path

import pytest

from training.evaluation.card import BEGIN, END, CardError, as_json, make_row, markdown, replace_table


def test_a_value_stands_beside_its_target_and_a_verdict() -> None:
    """A part's name is written once; what has no target has no verdict, and nothing measured is not a success."""
    rows = [
        make_row("Words", "together", 0.0604, "%", 0.06, of="79 clips"),
        make_row("Words", "names", 0.2, "%"),
        make_row("Times", "start", 0.15, "s", 0.15),
        make_row("Times", "words", None, "s", 0.12),
        make_row("Quiet", "words written", 0, "words", 0),
        make_row("Context", "difference", -0.0012, "points", 0.003),
        make_row("Parity", "same", 0.95, "%", 1.0, at_least=True),
    ]
    assert markdown(rows, ["As measured."]).splitlines()[2:] == [
        "| Words | together | 6.0 % | ≤ 6.0 % | **not met** | 79 clips |",
        "|  | names | 20.0 % |  |  |  |",
        "| Times | start | 0.150 s | ≤ 0.150 s | met |  |",
        "|  | words | – | ≤ 0.120 s | not measured |  |",
        "| Quiet | words written | 0 words | 0 words | met |  |",
        "| Context | difference | -0.12 points | ≤ 0.30 points | met |  |",
        "| Parity | same | 95.0 % | ≥ 100.0 % | **not met** |  |",
        "",
        "- As measured.",
    ]
    assert [row["is_met"] for row in as_json(rows)] == [False, None, True, None, True, True, False]


def test_the_table_takes_the_place_between_the_marks(tmp_path: Path) -> None:
    """What stands around the marks stays, also the second time."""
    card = tmp_path / "README.md"
    card.write_text(f"# Model\n\n{BEGIN}\nold\n{END}\n\nMore.\n")
    for table in ("| first |\n", "| second |"):
        replace_table(card, table)
    assert card.read_text() == f"# Model\n\n{BEGIN}\n| second |\n{END}\n\nMore.\n"


@pytest.mark.parametrize("text", ["# Model\n", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n"])
def test_a_card_without_its_marks_is_left_alone(tmp_path: Path, text: str) -> None:
    """The error names the file and what it should hold."""
    card = tmp_path / "README.md"
    card.write_text(text)
    with pytest.raises(CardError, match=r"README\.md: expected one line <!-- evaluation: begin -->"):
        replace_table(card, "| table |")
    assert card.read_text() == text


def test_a_missing_card_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="no such file"):
        replace_table(tmp_path / "README.md", "")
