"""Every folder of examples/ can be understood and is tested."""

import re

import pytest

from tests.examples.conftest import EXAMPLES

REPOSITORY = EXAMPLES.parent
# A folder that another branch has left behind has no files of its own.
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if any(each.is_file() for each in path.glob("*.*")))
TESTS = "\n".join(
    path.read_text() for path in sorted((REPOSITORY / "tests").rglob("test_*.py")) if "node_modules" not in path.parts
)


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_has_what_a_user_needs(name: str) -> None:
    """A README that says what it shows, how to run it and what is seen; a test that runs it; a line in the lists."""
    readme = EXAMPLES / name / "README.md"
    assert readme.exists(), f"write examples/{name}/README.md: what it shows, how to run it, what is seen"
    text = readme.read_text()
    has_command = "\n    " in text or "\n```" in text
    assert text.startswith("# ") and has_command, f"examples/{name}/README.md needs a title and a command to run"
    assert re.search(rf"examples/{name}\b", TESTS), (
        f"write a test that runs the example, and name examples/{name} in its docstring: in tests/examples, or beside "
        "tests that have what it needs, such as a browser"
    )
    for page in (EXAMPLES / "README.md", REPOSITORY / "docs" / "examples.md"):
        assert f"`{name}`" in page.read_text() or f"({name}/README.md)" in page.read_text(), (
            f"add {name} to the table of {page.relative_to(REPOSITORY)}"
        )


def test_examples_use_what_a_user_has() -> None:
    """The clients from their packages; nothing of the server's own modules."""
    for path in [each for each in EXAMPLES.rglob("*.py") if "node_modules" not in each.parts]:
        modules = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
        assert not {"benchmarks", "tests", "tutti_server"} & set(modules), path
