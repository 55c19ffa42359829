"""Where the texts of two pages differ."""

from benchmarks.faults.restarted_server import differences


def test_each_difference_is_named() -> None:
    """Replaced and added lines are named, equal ones are not."""
    assert list(differences(["a", "b", "c"], ["a", "x", "c", "d"])) == [("b", "x"), ("", "d")]
