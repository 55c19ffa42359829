"""The documentation holds together: links and anchors exist, examples compile, commands are there."""

import ast
import importlib
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

import tutti

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OUTSIDE = [
    path
    for name in (
        *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
        *("clients/python/README.md", "clients/js/README.md", "deploy/release/README.md"),
    )
    if (path := REPOSITORY / name).exists()
] + sorted([REPOSITORY / "examples" / "README.md", *(REPOSITORY / "examples").glob("*/README.md")])
"""Documents that GitHub shows and that are not part of the site."""
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def prose(path: Path) -> str:
    """The text without its code, in which brackets mean something else."""
    text = FENCE.sub("", path.read_text())
    text = re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def links(path: Path) -> Iterator[str]:
    """Where a document's own links lead; addresses elsewhere are left out."""
    # A link around a picture is two.
    text = prose(path)
    for target in LINK.findall(text) + re.findall(r"\]\(([^()\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#{1,6} (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in words}


def missing(path: Path) -> Iterator[str]:
    for target in links(path):
        file, _, anchor = unquote(target).partition("#")
        where = (path.parent / file).resolve() if file else path
        if not where.exists() or (anchor and anchor not in anchors(where)):
            yield target


@pytest.mark.parametrize("path", [*PAGES, *OUTSIDE], ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    """Files, pictures and headings that a document links to exist."""
    assert list(missing(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_pages_link_to_pages_of_the_site(path: Path) -> None:
    """What lies outside `docs/` is named, not linked: the site does not have it."""
    outside = [target for target in links(path) if not (path.parent / target).resolve().is_relative_to(DOCS)]
    assert outside == []


def test_the_site_lists_every_page_once() -> None:
    """Its navigation has all pages, and no other."""
    project = tomllib.loads((REPOSITORY / "zensical.toml").read_text())["project"]
    listed = [
        page for section in project["nav"] for pages in section.values() for each in pages for page in each.values()
    ]
    assert sorted(listed) == [str(path.relative_to(DOCS)) for path in PAGES]


def test_the_site_fetches_nothing_from_elsewhere() -> None:
    """No web fonts, no analytics, no further scripts; diagrams are pictures, as Mermaid would be fetched."""
    project = tomllib.loads((REPOSITORY / "zensical.toml").read_text())["project"]
    assert project["theme"]["font"] is False
    assert not {"analytics", "extra_javascript"} & {*project, *project["extra"]}
    assert [style for style in project["extra_css"] if not (DOCS / style).exists()] == []
    assert [name_of(path) for path in PAGES if "```mermaid" in path.read_text()] == []


@pytest.mark.parametrize("path", [*PAGES, *OUTSIDE], ids=name_of)
def test_python_examples_compile(path: Path) -> None:
    """What an example uses of our client is there."""
    for language, code in FENCE.findall(path.read_text()):
        if language == "python":
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        importlib.import_module(alias.name)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tutti":
                    assert hasattr(tutti, node.attr), node.attr


@pytest.mark.parametrize("path", [*PAGES, *OUTSIDE], ids=name_of)
def test_commands_are_modules_and_files_of_this_repository(path: Path) -> None:
    """`python -m X` names a module, and paths of source and test files exist; `NAME` in a path is the reader's own."""
    text = path.read_text()
    modules = set(re.findall(r"python -m ((?:benchmarks|training|pictures|tests)[\w.]*\w)", text))
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []
    folders = "app|engine|cluster|plugins|benchmarks|tests|deploy|pictures"
    files = set(re.findall(rf"(?<![\w/.])(?:{folders})/[\w/.-]+\.\w+", text))
    assert [file for file in files if "/NAME/" not in file and not (REPOSITORY / file).exists()] == []


def test_code_names_pages_that_exist() -> None:
    """An error or a comment that sends its reader to a page does not send them to one that has moved."""
    folders = ("app", "engine", "cluster", "plugins", "clients/python")
    files = [file for folder in folders for file in sorted((REPOSITORY / folder).rglob("*.py"))]
    named = {(name_of(file), page) for file in files for page in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text())}
    assert sorted((file, page) for file, page in named if not (REPOSITORY / page).exists()) == []
