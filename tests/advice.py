"""Prints what a reader may stumble over: the largest files, classes and functions, and retired words. It fails nothing.

python -m tests.advice [FOLDER ...]
"""

import ast
import io
import re
import signal
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FOLDERS = (
    "app",
    "engine",
    "cluster",
    "plugins",
    "clients/python/tutti",
    "benchmarks",
    "examples",
    "pictures",
    "training",
)
N_LARGEST = 10
"""How many of each kind are listed."""
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""The words of an identifier."""
RETIRED_PARTS = {
    "nobody": "padding slot",
    "passes": "forward pass",
    "looks": "attention weights",
    "watched": "attention weights",
    "loops": "repetition",
    "told": "control message",
    "asked": "request",
    "said": "text",
    "heard": "received, decoded",
}
"""Parts of identifiers that are retired, and what to write instead."""
RETIRED_PHRASES = {
    "nobody": "no one, nothing, or the subject that is meant",
    "goes round in circles": "repetition",
    "go round in circles": "repetition",
    "is told": "is notified, receives",
    "are told": "are notified, receive",
    "what is said": "text, message",
    "speech filter": "hallucination filter",
    "so many": "a number with a name",
    "who comes": "the subject",
    "led astray": "misled",
    "let go": "dropped",
    "as may be": "a number with a name",
}
"""The same of docstrings and comments."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sizes(source: str) -> Iterator[tuple[str, str, int]]:
    """What is counted, the name of what has it, and the number, for each class and function of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | Function):
            kind = "lines of a class" if isinstance(node, ast.ClassDef) else "lines of a function"
            yield kind, node.name, (node.end_lineno or 0) - node.lineno + 1
        if isinstance(node, ast.ClassDef):
            yield "attributes of a class", node.name, len(_attributes(node))


def _attributes(node: ast.ClassDef) -> set[str]:
    """The fields that a class declares, and the names that its methods give to `self`."""
    declared = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return declared | {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if isinstance(each.value, ast.Name) and each.value.id == "self"
    }


def identifiers(source: str) -> Iterator[tuple[int, str]]:
    """The names that a file gives: to functions, classes, parameters and variables."""
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


def retired_in(source: str) -> Iterator[tuple[int, str, str]]:
    """Where a file uses retired words: line, word, and what to write instead."""
    for line, name in identifiers(source):
        for part in PARTS.findall(name):
            if instead := RETIRED_PARTS.get(part.lower()):
                yield line, name, instead
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, RETIRED_PHRASES)) + r")\b", re.IGNORECASE)
    for line, text in prose(source):
        if found := pattern.search(text):
            yield line, found[0], RETIRED_PHRASES[found[0].lower()]


def main(folders: tuple[str, ...]) -> None:
    """Print the advice on these folders."""
    counted: dict[str, list[tuple[int, str]]] = {}
    words = []
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if "node_modules" in path.parts:
                continue
            name, source = str(path.relative_to(REPOSITORY)), path.read_text()
            counted.setdefault("lines of a file", []).append((source.count("\n"), name))
            for kind, what, number in sizes(source):
                counted.setdefault(kind, []).append((number, f"{name}:{what}"))
            words += [f"{name}:{line}: {word}: {instead}" for line, word, instead in sorted(retired_in(source))]
    for kind, found in counted.items():
        print(
            f"Most {kind}:",
            *(f"{number:6}  {name}" for number, name in sorted(found)[: -N_LARGEST - 1 : -1]),
            "",
            sep="\n",
        )
    print(f"Retired words: {len(words)}", *words, sep="\n")


if __name__ == "__main__":
    # As for other tools, a reader such as `head` may leave early.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main(tuple(sys.argv[1:]) or FOLDERS)
