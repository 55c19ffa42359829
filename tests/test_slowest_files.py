"""The page of the slowest tests names files of this checkout and what they protect."""

from pathlib import Path

import pytest

from tests.slowest_files import file_of, seconds, table

OWN = Path("tests/test_slowest_files.py")
REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="tests.test_slowest_files" name="one" time="1.5"/>
<testcase classname="tests.test_slowest_files.TestClass" name="two" time="2.0"/>
<testcase classname="tests.app.test_languages" name="three" time="0.4"/>
</testsuite></testsuites>"""


def test_the_times_of_all_reports_are_added_up(tmp_path: Path) -> None:
    reports = [tmp_path / name for name in ("quick.xml", "rest.xml")]
    for each in reports:
        each.write_text(REPORT)
    found = seconds(reports)
    assert found == pytest.approx({OWN: 7.0, Path("tests/app/test_languages.py"): 0.8})
    lines = list(table(found))
    purpose = "The page of the slowest tests names files of this checkout and what they protect"
    assert f"| [{OWN.name}]({OWN.name}) | 7 | {purpose} |" in lines
    assert lines[-3:] == ["| tests | 7 |", "| tests/app | 1 |", "| all | 8 |"]


def test_a_test_of_another_checkout_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"expected a test of this checkout, got tests\.missing"):
        file_of("tests.missing")
