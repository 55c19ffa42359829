"""How large functions, classes and records may grow. The numbers of those that are larger only go down.

`python -m tests.test_sizes [FOLDER ...]` lists what is over a limit.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[1]
FOLDERS = ("app", "engine", "cluster", "clients/python/tutti", "benchmarks", "examples", "pictures", "training")
MAX_ATTRIBUTES = 12
"""Of a class whose instances change; frozen dataclasses are records, and may be as long as what they record."""
MAX_METHODS = 25
MAX_LINES = 50
"""Of a function, its docstring and decorators left out."""
MAX_PARAMETERS = 8
OPTIONS_FROM_OUTSIDE = {"click.command", "cli.command", "gluon.jit", "triton.jit"}
"""Decorators of functions whose parameters are a command's options or a kernel's tensors, sizes and constants."""
MAX_POSITIONAL_FIELDS = 4
"""Of a dataclass that is not `kw_only`."""

DEBTORS: dict[tuple[str, str], int] = {}
"""`(what is counted, path:name)` of what is still over a limit, with its number today: to be lowered, never raised."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Size(NamedTuple):
    """One number of one thing."""

    what: str
    name: str
    number: int
    limit: int


def sizes(path: Path, source: str) -> Iterator[Size]:
    """All that is counted of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield from _class_sizes(node, str(path))
        elif isinstance(node, Function):
            name = f"{path}:{node.name}"
            yield Size("lines", name, _n_lines(node), MAX_LINES)
            if not _decorators(node) & OPTIONS_FROM_OUTSIDE:
                yield Size("parameters", name, _n_parameters(node), MAX_PARAMETERS)


def _class_sizes(node: ast.ClassDef, path: str) -> Iterator[Size]:
    name = f"{path}:{node.name}"
    methods = [each for each in node.body if isinstance(each, Function)]
    yield Size("methods", name, len(methods), MAX_METHODS)
    fields = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    arguments = _dataclass_arguments(node)
    if arguments is not None and not arguments & {"kw_only"}:
        yield Size("positional fields", name, len(fields - _keyword_fields(node)), MAX_POSITIONAL_FIELDS)
    if arguments is None or not arguments & {"frozen"}:
        yield Size("attributes", name, len(fields | _assigned(methods)), MAX_ATTRIBUTES)


def _keyword_fields(node: ast.ClassDef) -> set[str]:
    """The fields that say `field(kw_only=True)`."""
    return {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and isinstance(each.value, ast.Call)
        if any(one.arg == "kw_only" for one in each.value.keywords)
    }


def _dataclass_arguments(node: ast.ClassDef) -> set[str] | None:
    """The arguments of a class's `dataclass` decorator that are true; `None` if it has none."""
    for each in node.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        if isinstance(called, ast.Name) and called.id == "dataclass":
            given = each.keywords if isinstance(each, ast.Call) else []
            return {str(one.arg) for one in given if isinstance(one.value, ast.Constant) and one.value.value is True}
    return None


def _assigned(methods: list[Function]) -> set[str]:
    """The names that methods give to `self`."""
    return {
        each.attr
        for method in methods
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def _decorators(node: Function) -> set[str]:
    return {ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list}


def _n_lines(node: Function) -> int:
    body = node.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _n_parameters(node: Function) -> int:
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([each for each in given if each.arg not in ("self", "cls")])


def over_limit(*folders: str) -> dict[tuple[str, str], Size]:
    """What is larger than it may be. Of several functions of a name in a file, the largest."""
    found: dict[tuple[str, str], Size] = {}
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if "node_modules" in path.parts:
                continue
            for size in sizes(path.relative_to(REPOSITORY), path.read_text()):
                key = (size.what, size.name)
                if size.number > size.limit and (key not in found or size.number > found[key].number):
                    found[key] = size
    return found


def test_nothing_grows_over_its_limit() -> None:
    """What is over a limit is listed in `DEBTORS`, and no larger than it says there."""
    found = {key: size.number for key, size in over_limit(*FOLDERS).items()}
    assert {key: number for key, number in found.items() if number > DEBTORS.get(key, 0)} == {}
    smaller = {key: number for key, number in DEBTORS.items() if found.get(key, 0) < number}
    assert smaller == {}, "lower or remove these in DEBTORS"


@pytest.mark.parametrize(
    ("source", "what", "number"),
    [
        ("class A:\n    def __init__(self):\n        self.a = self.b = 1\n", "attributes", 2),
        ("@dataclass(slots=True)\nclass A:\n    a: int\n    b: int\n", "positional fields", 2),
        ("@dataclass\nclass A:\n    a: int\n    b: int = field(default=0, kw_only=True)\n", "positional fields", 1),
        ("def f(self, a, *, b):\n    '''Doc.'''\n    a\n\n    b\n", "lines", 3),
        ("def f(self, a, *, b):\n    pass\n", "parameters", 2),
        ("@triton.jit\ndef f(a, b):\n    pass\n", "lines", 1),
        ("class A:\n    def f(self): ...\n    async def g(self): ...\n", "methods", 2),
    ],
)
def test_what_is_counted(source: str, what: str, number: int) -> None:
    """Each size is what its limit says of it."""
    counted = [size.number for size in sizes(Path("a.py"), source) if size.what == what]
    assert number in counted


if __name__ == "__main__":
    for size in sorted(over_limit(*(sys.argv[1:] or FOLDERS)).values()):
        print(f"{size.what:18} {size.number:4} (limit {size.limit})  {size.name}")
