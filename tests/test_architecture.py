"""The claims that the layout makes about itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_model import SMALL_MODEL

REPOSITORY = Path(__file__).parents[1]
COMMAND_TIMEOUT_S = 60


def python(*arguments: str) -> str:
    """Standard output of a fresh interpreter; the test fails with all it printed."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
    )
    if done.returncode != 0:
        pytest.fail(f"{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


def loaded_by(modules: str) -> set[str]:
    """The top-level packages that importing modules, with commas between them, brings in."""
    script = (
        f"import json, sys, {modules}; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    return set(json.loads(python("-c", script)))


def test_torch_is_not_needed() -> None:
    """The service, the boundary and the deciding half of the batcher import without torch and the model libraries."""
    modules = (
        "tutti_server.engine.api, tutti_server.engine.errors, tutti_server.engine.config, "
        "tutti_server.engine.scheduling.batcher, tutti_server.app.session.session, tutti_server.app.server.main, "
        "tutti_server.app.cli.commands, tutti_server.cluster.local.supervisor, tutti_server.cluster.local.roles"
    )
    loaded = loaded_by(modules)
    assert loaded & {"torch", "transformers", "flashinfer"} == set()


@pytest.mark.parametrize("package", ["tutti_server", "tutti"])
@pytest.mark.nightly
def test_importing_a_module_changes_no_environment_variable(package: str) -> None:
    """Every module of the package is imported, one after the other. Processes set variables when they start."""
    script = (
        f"import importlib, os, pkgutil, {package}; before = dict(os.environ); "
        f"names = [each.name for each in pkgutil.walk_packages({package}.__path__, '{package}.')]; "
        # `kernels` and what imports it need Triton; the command line has a main module that would start it. Ray is an
        # extra, and sets a variable of its own.
        "[importlib.import_module(name) for name in names"
        " if not name.startswith(('tutti_server.engine.cuda', 'tutti_server.plugins.ray'))"
        " and not name.endswith('__main__')]; "
        "assert len(names) > 5; print({k: v for k, v in os.environ.items() if before.get(k) != v})"
    )
    assert python("-c", script).strip() == "{}"


@pytest.mark.nightly
def test_a_start_does_not_import_the_compiler_of_pytorch() -> None:
    """Which takes two seconds, and is not needed where nothing is compiled by it. SymPy is a part of it: 35 MB."""
    script = (
        "import sys; from tutti_server.engine.config import EngineConfig; "
        "from tutti_server.engine.runner import load_runner; "
        f"load_runner(EngineConfig(model={SMALL_MODEL!r}, device='cpu')).warm_up(); "
        "print({'sympy', 'torch._dynamo'} & sys.modules.keys())"
    )
    assert python("-c", script).strip() == "set()"


def test_the_python_client_knows_nothing_of_the_server() -> None:
    """`import tutti` imports nothing of `tutti_server`, nor what only that needs."""
    loaded = loaded_by("tutti")
    assert "tutti" in loaded
    assert loaded & {"tutti_server", "torch", "numpy", "starlette"} == set()
