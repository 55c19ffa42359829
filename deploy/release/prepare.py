"""Names the repository in a checkout that a release is built from: `python deploy/release/prepare.py REPOSITORY`.

`REPOSITORY` is the address of its pages, such as `https://host.example/owner/name`. No file of the checkout says where
the repository is, so that a fork's release does not lead to another one. Package indexes show a README where its
relative links lead nowhere: they become addresses of the tag. All distributions get the addresses as metadata.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

READMES = ("deploy/release/README.md", "clients/python/README.md", "clients/js/README.md")
"""The pages that package indexes show."""
PROJECTS = ("pyproject.toml", "clients/python/pyproject.toml")
PACKAGE = "clients/js/package.json"
PICTURES = (".gif", ".png", ".svg")
LINK = re.compile(r"(\]\(|\bsrc=\"|\bhref=\")(?![a-z]+:|#)([^()\s\"]+)")
"""A relative link of Markdown or HTML: what comes before its target, and the target."""


def absolute(readme: Path, root: Path, repository: str, tag: str) -> str:
    """The text of a README whose links lead to the files of a tag.

    Raises:
        ValueError: a link leads out of the repository, or to nothing.
    """

    def address(match: re.Match[str]) -> str:
        name, hash_, anchor = match[2].partition("#")
        file = (readme.parent / name).resolve()
        if not file.exists() or not file.is_relative_to(root.resolve()):
            raise ValueError(f"{readme}: expected a link to a file of the repository, got {match[2]}")
        kind = "raw" if file.suffix in PICTURES else "blob"
        return f"{match[1]}{repository}/{kind}/{tag}/{file.relative_to(root.resolve()).as_posix()}{hash_}{anchor}"

    # Examples of code keep their addresses, as do commands, which are indented.
    parts = re.split(r"(^```.*?^```$|^ {4}[^\n]*$)", readme.read_text(), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith(("```", "    ")) else LINK.sub(address, part) for part in parts)


def prepare(root: Path, repository: str) -> None:
    """Change the READMEs and the metadata of the three distributions in a checkout.

    Raises:
        ValueError: the address is none of a repository, a link leads nowhere, or the checkout is prepared already.
    """
    if not re.fullmatch(r"https://[^/\s]+/[^/\s]+/[^/\s]+", repository):
        raise ValueError(
            f"expected the address of a repository such as https://host.example/owner/name, got {repository}"
        )
    tag = "v" + tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    addresses = {
        "Repository": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/index.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    table = "[project.urls]\n" + "".join(f'{name} = "{address}"\n' for name, address in addresses.items()) + "\n"
    for name in PROJECTS:
        text = (root / name).read_text()
        if "[project.urls]" in text:
            raise ValueError(f"{name}: expected a fresh checkout, got one that is prepared already")
        (root / name).write_text(text.replace("[project.scripts]\n", table + "[project.scripts]\n"))
    package = json.loads((root / PACKAGE).read_text())
    package["repository"]["url"] = f"git+{repository}.git"
    package |= {"homepage": f"{repository}#readme", "bugs": addresses["Issues"]}
    (root / PACKAGE).write_text(json.dumps(package, indent=2, ensure_ascii=False) + "\n")
    for name in READMES:
        (root / name).write_text(absolute(root / name, root, repository, tag))


if __name__ == "__main__":
    try:
        prepare(Path(__file__).parents[2], *sys.argv[1:2] or [""])
    except ValueError as error:
        sys.exit(f"prepare.py: {error}")
