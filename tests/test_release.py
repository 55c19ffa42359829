"""What a release is made of: pages of package indexes whose links hold, and a workflow that builds all on a tag."""

import importlib.util
import json
import re
import shutil
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[1]
ADDRESS = "https://host.example/owner/name"
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
WORKFLOW: dict[str, Any] = yaml.safe_load((REPOSITORY / ".github/workflows/release.yml").read_text())


@pytest.fixture
def release() -> ModuleType:
    """The program that names the repository."""
    spec = importlib.util.spec_from_file_location("prepare", REPOSITORY / "deploy/release/prepare.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path, release: ModuleType) -> Path:
    """A copy of what the program changes, with what the pages link to."""
    for name in ("docs", "CHANGELOG.md", *release.READMES, *release.PROJECTS, release.PACKAGE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, tmp_path / name)
        else:
            shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "README.md").touch()
    for name in ("react", "react-native", "vue"):
        (tmp_path / "examples" / name).mkdir(parents=True)
    return tmp_path


def test_pages_of_package_indexes_lead_to_files_of_the_tag(release: ModuleType, checkout: Path) -> None:
    """Pictures are asked for as they are, pages as the repository shows them; examples are not changed."""
    release.prepare(checkout, ADDRESS)
    text = (checkout / "deploy/release/README.md").read_text()
    assert f"]({ADDRESS}/raw/v{VERSION}/docs/images/demo.svg)" in text
    assert f"]({ADDRESS}/blob/v{VERSION}/docs/results/index.md)" in text
    assert "--index-url https://download.pytorch.org/whl/cpu" in text
    for name in release.READMES:
        prose = re.sub(r"^```.*?^```$", "", (checkout / name).read_text(), flags=re.MULTILINE | re.DOTALL)
        targets = re.findall(r"\]\(([^)\s]+)\)", prose)
        assert [each for each in targets if not each.startswith(("https://", "http://", "#"))] == [], name


def test_the_three_distributions_name_the_repository(release: ModuleType, checkout: Path) -> None:
    release.prepare(checkout, ADDRESS)
    for name in release.PROJECTS:
        project = tomllib.loads((checkout / name).read_text())["project"]
        assert project["urls"]["Repository"] == ADDRESS
        assert project["authors"] == [{"name": "The tutti authors"}] and project["scripts"]
        assert project["keywords"] and project["classifiers"]
    package = json.loads((checkout / release.PACKAGE).read_text())
    assert package["repository"] == {"type": "git", "directory": "clients/js", "url": f"git+{ADDRESS}.git"}
    assert package["homepage"] and package["bugs"] and package["author"]


@pytest.mark.parametrize("address", ["", "owner/name", "http://host.example/owner/name", f"{ADDRESS}/tree/main"])
def test_an_address_of_no_repository_is_refused(release: ModuleType, checkout: Path, address: str) -> None:
    with pytest.raises(ValueError, match="expected the address of a repository"):
        release.prepare(checkout, address)


def test_a_link_to_nothing_is_refused(release: ModuleType, checkout: Path) -> None:
    with (checkout / "clients/js/README.md").open("a") as page:
        page.write("[gone](../../docs/gone.svg)\n")
    with pytest.raises(ValueError, match=r"expected a link to a file of the repository, got \.\./\.\./docs/gone\.svg"):
        release.prepare(checkout, ADDRESS)


def test_the_workflow_publishes_nothing_but_a_checked_tag_and_knows_no_secret() -> None:
    text = (REPOSITORY / ".github/workflows/release.yml").read_text()
    assert "secrets." not in text
    jobs = WORKFLOW["jobs"]
    built = {name for name in jobs if not name.startswith("publish-")}
    assert all(job["timeout-minutes"] for job in jobs.values())
    for name in ("publish-python", "publish-javascript", "publish-docs"):
        assert jobs[name]["if"] == "github.ref_type == 'tag'" and set(jobs[name]["needs"]) == built, name
    assert set(jobs["publish-release"]["needs"]) == {"publish-python", "publish-javascript"}
    for name in built - {"images"}:
        assert "permissions" not in jobs[name], name
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_an_image_is_pushed_after_it_has_transcribed() -> None:
    steps = WORKFLOW["jobs"]["images"]["steps"]
    (tried,) = (at for at, step in enumerate(steps) if "docker run" in step.get("run", ""))
    (pushed,) = (at for at, step in enumerate(steps) if "push" in step.get("with", {}))
    assert tried < pushed
