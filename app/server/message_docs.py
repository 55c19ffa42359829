"""What `tutti.messages` says about its classes and their fields, for documents about the wire."""

import ast
import inspect
import itertools
from functools import cache

from tutti import messages


@cache
def descriptions(kind: type | None = None) -> dict[str, str]:
    """The texts about the fields of a message, or about the names of the module."""
    body: list[ast.stmt] = ast.parse(inspect.getsource(messages)).body
    if kind is not None:
        (body,) = (each.body for each in body if isinstance(each, ast.ClassDef) and each.name == kind.__name__)
    found: dict[str, str] = {}
    for named, text in itertools.pairwise(body):
        match named, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(description))):
                found[name] = in_json(inspect.cleandoc(description))
    return found


def summary(kind: type) -> str:
    """The text about a message."""
    return in_json(inspect.getdoc(kind) or "")


def in_json(text: str) -> str:
    """A text about Python's values as one about those of JSON, a line for each paragraph."""
    return "\n".join(" ".join(each.split()) for each in text.split("\n\n")).replace("None", "null")
