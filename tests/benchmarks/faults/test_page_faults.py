"""The comparison of disturbed pages with an undisturbed one. `tests/browser` cuts the network of a page."""

from dataclasses import replace

from benchmarks.faults.page_faults import CutRun, compared, table

MESSAGES = [[0, 12, "{}"]]
EXPECTED = CutRun(lines=["one two three", "four five"], changes=[], messages=MESSAGES)


def test_runs_are_compared_with_the_undisturbed_page() -> None:
    """Lost, added and changed words are counted, and each line that differs is named."""
    same = compared("cut of 5 s", 4.0, EXPECTED, EXPECTED)
    assert same.is_same and same.messages == []
    assert (same.n_words, same.n_lost, same.n_added, same.n_changed) == (5, 0, 0, 0)
    actual = CutRun(lines=["one two three", "for five six"], changes=["1: four became for"], messages=MESSAGES)
    other = compared("cut of 20 s", 5.25, EXPECTED, actual)
    assert not other.is_same and (other.n_lost, other.n_added, other.n_changed) == (0, 1, 1)
    assert other.differences == ["'for five six' instead of 'four five'"]
    assert other.changes == ["1: four became for"] and other.messages == MESSAGES


def test_other_punctuation_is_another_text() -> None:
    """The words are the same, and yet the run does not count as equal."""
    actual = CutRun(lines=["one two three.", "four five"], changes=[])
    run = compared("restart", 5.0, EXPECTED, actual)
    assert not run.is_same and run.n_changed == 0


def test_the_table_has_a_row_for_each_browser_and_fault_from_the_shortest_cut_to_restarts() -> None:
    """The rows have sums over the runs."""
    faults = [("none", 0), ("restart", 1), ("cut of 20 s", 2), ("cut of 5 s", 0), ("cut of 20 s", 0)]
    runs = [
        replace(compared(fault, 4.0, EXPECTED, replace(EXPECTED, n_outages=n_outages)), browser=browser)
        for browser, of_browser in (("firefox", faults[:1]), ("chromium", faults))
        for fault, n_outages in of_browser
    ]
    assert table(runs).rows == [
        ("chromium", "none", "1", "1", "0", "5", "0", "0", "0", "0"),
        ("chromium", "cut of 5 s", "1", "1", "0", "5", "0", "0", "0", "0"),
        ("chromium", "cut of 20 s", "2", "2", "1", "10", "0", "0", "0", "0"),
        ("chromium", "restart", "1", "1", "1", "5", "0", "0", "0", "0"),
        ("firefox", "none", "1", "1", "0", "5", "0", "0", "0", "0"),
    ]
