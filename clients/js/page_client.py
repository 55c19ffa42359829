"""Builds the client that the server's page loads, without Node.js: `python clients/js/page_client.py`.

It takes out of each module of `src` what only TypeScript has, and the comments: what is left is JavaScript. Nothing is
rewritten, so the sources have no enumerations, namespaces and other TypeScript with a meaning when it runs
(`erasableSyntaxOnly` in `tsconfig.json`). What this module does not know to be JavaScript is an error that names its
place. A test compares the result with that of TypeScript's own compiler.

`pip install` and all that makes a wheel build the client first, through `BuildPy`.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools.command.build_py import build_py

if TYPE_CHECKING:
    from tree_sitter import Node

SOURCES = Path("clients/js/src")
"""From the root of the repository, where setuptools runs."""
PACKAGE = "tutti_server.app"
BUILT = Path("static/tutti")
"""The folder of the built client in that package."""

FIELD = "public_field_definition"
ERASED = set(
    """
    comment type_annotation type_predicate_annotation asserts_annotation type_parameters type_arguments
    implements_clause interface_declaration type_alias_declaration ambient_declaration function_signature
    method_signature abstract_method_signature index_signature
    """.split()
)
"""Kinds of nodes that only TypeScript has, wherever they stand; and comments."""
ERASED_IN = {
    FIELD: {"accessibility_modifier", "override_modifier", "readonly", "?", "!"},
    "method_definition": {"accessibility_modifier", "override_modifier"},
    "abstract_class_declaration": {"abstract"},
    "optional_parameter": {"?"},
    "variable_declarator": {"!"},
    "non_null_expression": {"!"},
}
"""Parts of such nodes that only TypeScript has."""
CASTS = ("as_expression", "satisfies_expression")
"""Their first part is JavaScript, and the rest is not."""
SIGN_AFTER = {"class_body": ";", "named_imports": ",", "export_clause": ","}
"""The sign that goes with a part of such a node."""
JAVASCRIPT = set(
    """
    abstract_class_declaration arguments array array_pattern arrow_function as_expression assignment_expression
    assignment_pattern augmented_assignment_expression await_expression binary_expression break_statement
    call_expression catch_clause class class_body class_declaration class_heritage class_static_block
    computed_property_name continue_statement do_statement else_clause empty_statement export_clause export_specifier
    export_statement expression_statement extends_clause false finally_clause for_in_statement for_statement
    formal_parameters function_declaration function_expression generator_function generator_function_declaration
    identifier if_statement import import_clause import_specifier import_statement labeled_statement
    lexical_declaration member_expression meta_property method_definition named_imports namespace_export
    namespace_import new_expression non_null_expression null number object object_assignment_pattern object_pattern
    optional_chain optional_parameter pair pair_pattern parenthesized_expression private_property_identifier program
    property_identifier public_field_definition regex required_parameter rest_pattern return_statement
    satisfies_expression sequence_expression shorthand_property_identifier shorthand_property_identifier_pattern
    spread_element statement_block statement_identifier string subscript_expression super switch_body switch_case
    switch_default switch_statement template_string ternary_expression this throw_statement true try_statement
    type_identifier unary_expression undefined update_expression variable_declarator while_statement yield_expression
    """.split()
)
"""Kinds of nodes that JavaScript has, without what is erased in them."""
WORDS = set(
    """
    as async await break case catch class const continue default delete do else export extends finally for from
    function get if import in instanceof let meta new of return set static super switch target throw try typeof void
    while yield
    """.split()
)
"""Words of JavaScript that stand for themselves in a node."""
ONLY_IN = {"?": "ternary_expression", "!": "unary_expression"}
"""Signs that have a meaning of their own in TypeScript, and the kind of node in which they are JavaScript."""
STATEMENTS = ("expression_statement", "lexical_declaration", "return_statement", "throw_statement")
"""Statements that end with a semicolon."""
VERBATIM = ("string", "regex")
"""Nodes whose parts are of no interest."""


class NotErasable(SystemExit):
    """The sources are missing, or something in them is not known to be JavaScript.

    Not an `Exception`: setuptools only warns of one of those in an editable install.
    """


def build(sources: Path, built: Path) -> None:
    """Write the JavaScript of each module of a folder into another one, and nothing else.

    Raises:
        NotErasable: there are no modules, or what one has is not known to be JavaScript.
    """
    modules = sorted(sources.rglob("*.ts"))
    if not modules:
        raise NotErasable(f"{sources}: expected the TypeScript of the page's client, found none")
    texts = {path.relative_to(sources).with_suffix(".js"): erase(path.read_text("utf-8"), path) for path in modules}
    shutil.rmtree(built, ignore_errors=True)
    for name, text in texts.items():
        (built / name).parent.mkdir(parents=True, exist_ok=True)
        (built / name).write_text(text, "utf-8")


def erase(source: str, path: Path) -> str:
    """The JavaScript in the text of a TypeScript module.

    Raises:
        NotErasable: what it has is not known to be JavaScript; `path` is named.
    """
    # Packages that only a build needs.
    import tree_sitter
    import tree_sitter_typescript

    code = source.encode()
    language = tree_sitter.Language(tree_sitter_typescript.language_typescript())
    module = tree_sitter.Parser(language).parse(code).root_node
    _check(module, module, path)
    text, end, space = bytearray(), 0, b""
    for start, stop, is_kept in _pieces(module, path):
        before, end = code[end:start], stop
        # Where pieces are erased, the last line break with its indentation stays, or else the last space: `= <T>(a)`.
        if b"\n" in before or (b"\n" not in space and (before or code[start:stop] != b"(")):
            space = before
        if is_kept:
            # Blank lines mean nothing outside of templates.
            if text:
                text += b"\n" * (b"\n" in space) + space.rpartition(b"\n")[2]
            text += code[start:stop]
            space = b""
    return (text or b"export {};").decode() + "\n"


def _pieces(node: "Node", path: Path) -> Iterator[tuple[int, int, bool]]:
    """The beginning and the end of each piece of a JavaScript node in their order, and whether it is kept."""
    if node.type == "template_string":
        start = node.start_byte
        for hole in node.children:
            if hole.type == "template_substitution":
                opening, *parts, closing = hole.children
                yield start, opening.end_byte, True
                yield from _pieces_of(parts, hole, path)
                start = closing.start_byte
        yield start, node.end_byte, True
    elif node.type in VERBATIM or not node.children:
        yield node.start_byte, node.end_byte, True
    else:
        yield from _pieces_of(node.children, node, path)


def _pieces_of(parts: "list[Node]", node: "Node", path: Path) -> Iterator[tuple[int, int, bool]]:
    sign = None
    for part in parts:
        is_erased = part.type == sign or _is_erased(part, node)
        if is_erased:
            # The grammar does not know `export type *`.
            if part.has_error and any(each.has_error for each in part.children if each.text != b"type"):
                raise _unknown(part, path)
            yield part.start_byte, part.end_byte, False
        else:
            _check(part, node, path)
            yield from _pieces(part, path)
            _check_end(part, path)
        if part.type != "comment":
            sign = SIGN_AFTER.get(node.type) if is_erased and part.type != sign else None


def _is_erased(node: "Node", parent: "Node") -> bool:
    """Whether a node is TypeScript alone, or a comment."""
    kind, parts = node.type, node.children
    if kind == "import_statement":
        return parts[1].type == "type"
    if kind == "export_statement":
        return parts[1].text == b"type" or any(part.type in ERASED - {"comment"} for part in parts)
    if kind in ("import_specifier", "export_specifier"):
        return parts[0].type == "type"
    if kind == FIELD:
        # As `useDefineForClassFields: false` in tsconfig.json has it: such a field only has a type.
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        is_bare = value is None and name is not None and name.type != "private_property_identifier"
        return is_bare or any(part.type == "declare" for part in parts)
    is_of_cast = parent.type in CASTS and node.start_byte > parent.start_byte
    return is_of_cast or kind in ERASED or kind in ERASED_IN.get(parent.type, ())


def _check(node: "Node", parent: "Node", path: Path) -> None:
    """Raise `NotErasable` unless a node that is kept is JavaScript, but for its parts."""
    kind = node.type
    if node.is_named:
        is_known = kind in JAVASCRIPT
    else:
        is_known = kind in WORDS or (not kind.isalpha() and ONLY_IN.get(kind, parent.type) == parent.type)
    is_damaged = node.is_missing or (node.has_error and kind in VERBATIM)
    if not is_known or is_damaged or (kind == "this" and parent.type == "required_parameter"):
        raise _unknown(node, path)


def _check_end(node: "Node", path: Path) -> None:
    """Raise `NotErasable` if a statement or a field has no semicolon.

    What follows it may be erased, and JavaScript might then read on in what comes after that.
    """
    end = node.next_sibling if node.type == FIELD else node.children[-1] if node.type in STATEMENTS else None
    if node.type in (FIELD, *STATEMENTS) and (end is None or end.type != ";"):
        raise _unknown(node, path, "a semicolon at the end")


def _unknown(node: "Node", path: Path, expected: str = "JavaScript, or types that can be erased") -> NotErasable:
    (line, _), text = node.start_point, (node.text or b"").decode().partition("\n")[0]
    return NotErasable(f"{path}:{line + 1}: expected {expected}, got {node.type} `{text}`")


class BuildPy(build_py):
    """Builds the client in the package before its files are collected, so that an editable install has it, too."""

    def run(self) -> None:
        """Build the client, and then what setuptools builds."""
        # An image installs the dependencies of the server before there is any package.
        if PACKAGE in (self.packages or ()):
            build(SOURCES, Path(self.get_package_dir(PACKAGE)) / BUILT)
        super().run()

    def get_source_files(self) -> list[str]:
        """What a source archive needs to build the same."""
        return [*super().get_source_files(), "clients/js/page_client.py", *map(str, sorted(SOURCES.rglob("*.ts")))]


if __name__ == "__main__":
    build(Path(__file__).parent / "src", Path(__file__).parents[2] / "app" / BUILT)
