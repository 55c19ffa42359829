"""The words of docs/glossary.md: what is retired there does not come back."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FOLDERS = ("app", "engine", "cluster", "clients/python/tutti", "benchmarks", "examples", "pictures", "training")
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def retired() -> tuple[set[str], list[str]]:
    """Parts of identifiers, and phrases of docstrings and comments, from the table of the glossary."""
    table = (REPOSITORY / "docs/glossary.md").read_text().split("## Retired words")[1]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][1:]
    entries = [entry.strip() for cell in cells for entry in cell.split(",")]
    parts = {entry.strip("`") for entry in entries if entry.startswith("`")}
    return parts, [entry for entry in entries if entry and not entry.startswith("`")]


def identifiers(source: str) -> Iterator[tuple[int, str]]:
    """The names that a file gives: to functions, classes, parameters, fields and variables."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings, also those of fields and constants, and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def retired_in(source: str) -> list[tuple[int, str]]:
    """Where a file uses retired words: line and word."""
    parts, phrases = retired()
    names = [
        (line, name) for line, name in identifiers(source) if parts & {part.lower() for part in PARTS.findall(name)}
    ]
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, phrases)) + r")\b", re.IGNORECASE)
    texts = [(line, found[0]) for line, text in prose(source) if (found := pattern.search(text))]
    return sorted(names + texts)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_retired_word_comes_back(folder: str) -> None:
    """No identifier contains one, and no docstring or comment."""
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {word}"
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        if "node_modules" not in path.parts
        for line, word in retired_in(path.read_text())
    ]
    assert found == []


def test_modules_have_no_retired_names() -> None:
    """Files and folders neither."""
    parts, _ = retired()
    stems = {path.stem for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")}
    assert {stem for stem in stems if parts & set(stem.split("_"))} == set()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class SpeechGate:\n    pass\n", ["SpeechGate"]),
        ("def f(n_told):\n    self.gate = 1\n", ["n_told", "gate"]),
        ("x = 1\n'''Of so many windows.'''\n", ["so many"]),
        ("# The window that\nx = 1  # nobody owns\n", ["nobody"]),
        ("def investigate(foretold):\n    'Delegate.'\n", []),
    ],
)
def test_what_is_found(source: str, words: list[str]) -> None:
    """Whole parts of names and whole phrases, wherever they stand."""
    assert [word for _, word in retired_in(source)] == words
