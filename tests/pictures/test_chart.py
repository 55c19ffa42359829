"""The chart shows the figures of the results pages, and no others."""

from pathlib import Path
from xml.etree import ElementTree

from pictures.chart import chart, load_figures

REPOSITORY = Path(__file__).parents[2]


def test_every_figure_is_on_its_page() -> None:
    """A figure that is measured again is changed in both places."""
    figures = load_figures()
    requests, delays = figures["requests"], figures["delays"]
    page = (REPOSITORY / requests["source"]).read_text()
    assert [name for name, value in requests["bars"] if f"{value:g}" not in page] == []
    rows = [line.split("|") for line in (REPOSITORY / delays["source"]).read_text().splitlines() if line[:1] == "|"]
    # The first table of the page: server, streams, p50/p95 of words first shown.
    measured: dict[tuple[str, str], str] = {}
    for row in rows:
        for name in (row[1].strip(), row[1].split(", ")[-1].strip()):
            measured.setdefault((name, row[2].strip()), row[3].strip())
    for name, points in delays["lines"]:
        for n, seconds in points:
            assert measured[name, str(n)].split("/")[1] == f"{seconds:.2f}"


def test_the_chart_names_everything_that_it_shows() -> None:
    """It is well-formed, fetches nothing, and the committed picture is the one that the figures make."""
    figures = load_figures()
    picture = chart(figures)
    texts = {element.text for element in ElementTree.fromstring(picture).iter() if element.text}
    assert {name for name, _ in (*figures["requests"]["bars"], *figures["delays"]["lines"])} <= texts
    assert "href" not in picture and "url(" not in picture
    assert picture == (REPOSITORY / "docs" / "images" / "results.svg").read_text()
