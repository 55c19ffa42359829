"""The comparison of two pages: which words are lost, added and changed. `tests/browser` restarts a server."""

import numpy as np

from benchmarks.page_restarts import PageRun, compared, differences, table
from benchmarks.recordings import Recording

RECORDING = Recording("test", np.zeros(16_000, np.float32), "")


def test_equal_texts_have_no_difference() -> None:
    """Lines that are divided in another way are reported, but are no lost word."""
    undisturbed = PageRun(lines=["Good morning. How are", "you?"], changes=[])
    disturbed = PageRun(lines=["Good morning.", "How are you?"], changes=[], outages_s=[4.0, 5.25])
    result = compared(RECORDING, undisturbed, disturbed)
    assert (result["words"], result["lost"], result["added"], result["changed"]) == (5, 0, 0, 0)
    assert result["differences"] == [] and not result["same_lines"]
    assert table(result).rows == [("2", "4.0 to 5.2", "1", "5", "0", "0", "0", "no", "0")]


def test_each_difference_is_named() -> None:
    undisturbed = PageRun(lines=["one two three four"], changes=["0: one became none"])
    disturbed = PageRun(lines=["one too three three four five"], changes=["1: a became b"], outages_s=[1.0])
    result = compared(RECORDING, undisturbed, disturbed)
    assert (result["lost"], result["added"], result["changed"]) == (0, 2, 1)
    assert result["changes"] == ["0: one became none", "1: a became b"]
    assert list(differences(["a", "b", "c"], ["a", "x", "c", "d"])) == [("b", "x"), ("", "d")]
