"""Prepares all tests: their tiers, and what they share. Imports no torch, which most tests do not need.

Hypothesis tries the examples of its profile: `changes`, or `night` in the nightly tier. Generated examples have no
deadline, so that none fails because the machine is busy.

Without an NVIDIA GPU, Triton runs kernels in its interpreter, which must be chosen before Triton is imported.
"""

import asyncio
import functools
import gc
import inspect
import multiprocessing.process
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import certifi
import pytest
from hypothesis import settings

from tests.small_model import SMALL_MODEL
from tests.tiers import TESTS, TIERS, WITHOUT_TORCH, may_hold, needs_torch, tier_of
from tutti_server.app.media.decoder_workers import Decoders

settings.register_profile("changes", deadline=None, max_examples=25)
settings.register_profile("night", deadline=None, max_examples=300)
settings.load_profile(os.environ.get("TUTTI_HYPOTHESIS", "changes"))

if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# Imports make objects that stay: looking through all of them again and again takes a quarter of the collection.
gc.disable()

OF_A_PROCESS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
"""Audit events of a new process. Source: the table of audit events in Python's documentation."""
LOOPBACK = ("127.", "::1", "localhost")

broken_rules: list[str] = []
"""What the test that runs has done that no test of the quick tier may do."""


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model as a folder of transformers, for programs that know no other form."""
    from tests.engine.checkpoint_writers import write_transformers

    return write_transformers(SMALL_MODEL, tmp_path_factory.mktemp("transformers"))


def pytest_configure(config: pytest.Config) -> None:
    _read_authorities_once()
    if config.option.markexpr == "quick":
        _hold_to_one_process()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    # Else extension modules report what is frozen as lost.
    gc.unfreeze()


def _read_authorities_once() -> None:
    """Give all clients of httpx one TLS context: each would read the certificates of 140 authorities, for 40 ms."""
    make = ssl.create_default_context
    of_authorities = functools.cache(lambda cafile: make(cafile=cafile))

    @functools.wraps(make)
    def shared(*arguments: Any, **named: Any) -> ssl.SSLContext:
        for cafile in (certifi.where(), os.environ.get("SSL_CERT_FILE")):
            if cafile and not arguments and named == {"cafile": cafile}:
                return of_authorities(cafile)
        return make(*arguments, **named)

    ssl.create_default_context = shared


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect no file without a test of the tier that `-m` begins with: its imports take longer than the tests.

    Of the tests with torch and those without, collect the files of one kind.
    """
    tier, *others = config.option.markexpr.split() or [""]
    if tier in TIERS and "or" not in others and not may_hold(collection_path, tier):
        return True
    if "torch" not in others:
        return None
    return True if _is_of_other_kind(collection_path, wants_torch="not" not in others) else None


def _is_of_other_kind(path: Path, *, wants_torch: bool) -> bool:
    """Whether a file or folder holds no test of the kind that is wanted: with torch, or without."""
    if not path.is_dir():
        return path.suffix == ".py" and path.name.startswith("test_") and needs_torch(path) != wants_torch
    inside = path.relative_to(TESTS)
    return not wants_torch and not any(
        inside in (each, *each.parents) or each in inside.parents for each in map(Path, WITHOUT_TORCH)
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test one tier. Of several, as of a function and one of its parameters, the last one counts."""
    for item in items:
        own = [tier for tier in TIERS if item.get_closest_marker(tier)]
        item.own_markers = [mark for mark in item.own_markers if mark.name not in own[:-1]]
        if len({mark.name for mark in item.iter_markers() if mark.name in TIERS}) > 1:
            raise pytest.UsageError(f"{item.nodeid}: its module has another tier: say it in tests/tiers.py")
        if not own and not item.get_closest_marker("gpu"):
            item.add_marker(tier_of(item.path))
        if needs_torch(item.path):
            item.add_marker("torch")
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _limited(item.obj, _limit_s(item))


def _limit_s(item: pytest.Item) -> float | None:
    """Less than what pytest-timeout gives a test and its fixtures: its error ends any task, and perhaps no test."""
    marker = item.get_closest_marker("timeout")
    of_all = item.config.getoption("timeout") or item.config.getini("timeout") or 0
    return 0.75 * float(marker.args[0] if marker and marker.args else of_all) or None


def _limited(test: Callable[..., Awaitable[None]], limit_s: float | None) -> Callable[..., Awaitable[None]]:
    """A test that fails when it takes too long. A fixture could not do that: it runs in a task of its own."""

    @functools.wraps(test)
    async def limited(*arguments: Any, **named: Any) -> None:
        async with asyncio.timeout(limit_s):
            await test(*arguments, **named)

    return limited


def _hold_to_one_process() -> None:
    """Refuse new processes and connections to other machines, so that no test of the quick tier depends on them."""

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if "PYTEST_CURRENT_TEST" not in os.environ:
            # pytest-xdist starts its workers.
            return
        if event in OF_A_PROCESS:
            _refuse(f"started a process ({event})")
        if event == "socket.connect" and isinstance(arguments[1], tuple) and not arguments[1][0].startswith(LOOPBACK):
            _refuse(f"connected to {arguments[1][0]}")

    def start(self: multiprocessing.process.BaseProcess) -> None:
        _refuse(f"started {self}")

    sys.addaudithook(check)
    multiprocessing.process.BaseProcess.start = start  # type: ignore[method-assign]


def _refuse(what: str) -> NoReturn:
    broken_rules.append(what)
    raise PermissionError(f"a test of the quick tier {what}")


@pytest.fixture(autouse=True)
def keeps_to_its_tier() -> Iterator[None]:
    """Fail a test of the quick tier that broke a rule, even where the code under test has handled the refusal."""
    broken_rules.clear()
    yield
    if broken_rules:
        pytest.fail(f"a test of the quick tier {'; '.join(broken_rules)}: mark it `default` (tests/tiers.py)")


@pytest.fixture(scope="session")
def decoders() -> Iterator[Decoders]:
    """Decode the files of all servers: the processes take time to start."""
    with closing(Decoders()) as decoders:
        yield decoders
