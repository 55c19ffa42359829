"""The comparison of disturbed pages with an undisturbed one. `tests/browser` cuts the network of a page."""

from benchmarks.faults.page_faults import PageRun, compared

EXPECTED = PageRun(lines=["one two three", "four five"], changes=[])


def test_runs_are_compared_with_the_undisturbed_page() -> None:
    """Lost, added and changed words are counted, and each line that differs is named."""
    same = compared("cut of 5 s", 4.0, EXPECTED, EXPECTED)
    assert same.is_same
    assert (same.n_words, same.n_lost, same.n_added, same.n_changed) == (5, 0, 0, 0)
    actual = PageRun(lines=["one two three", "for five six"], changes=["1: four became for"])
    other = compared("cut of 20 s", 5.25, EXPECTED, actual)
    assert not other.is_same and (other.n_lost, other.n_added, other.n_changed) == (0, 1, 1)
    assert other.differences == ["'for five six' instead of 'four five'"]
    assert other.changes == ["1: four became for"]


def test_other_punctuation_is_another_text() -> None:
    """The words are the same, and yet the run does not count as equal."""
    actual = PageRun(lines=["one two three.", "four five"], changes=[])
    run = compared("restart", 5.0, EXPECTED, actual)
    assert not run.is_same and run.n_changed == 0
