"""What a command imports before it has work to do: a start is quick because it does not import the rest."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.app.cli.child import ENVIRONMENT

UNUSED = {"av", "httpx", "huggingface_hub", "matplotlib", "opentelemetry", "sympy", "transformers"}
"""Packages that a server needs for containers in live audio, a webhook, traces, a model on the hub, or never."""
MAX_IDLE_MIB = 400
"""Far above the memory of an idle server with the small model, which docs/results/start.md names, and far below what
it takes with the weights in memory twice, or with the memory of the warm-up."""
SLOW = {"asyncio", "av", "httpx", "numpy", "prometheus_client", "rich", "soxr", "starlette", "torch", "uvicorn"}
"""Packages that take a noticeable part of a start."""
PROGRAM = """
import sys
from tutti_server.app.cli.commands import main
sys.argv[1:] = {arguments!r}
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(arguments: list[str]) -> set[str]:
    """The top-level packages that a command line has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(arguments=arguments)], capture_output=True, text=True, timeout=100
    )
    modules = done.stderr.split()
    assert "tutti_server.app.cli.commands" in modules, done.stderr
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize(
    "arguments",
    [["serve", "--help"], ["adapt", "--help"], ["serve", "--port", "99999"]],
    ids=str,
)
def test_an_answer_without_work_needs_none_of_the_slow_packages(arguments: list[str]) -> None:
    assert not imported(arguments) & SLOW


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure the memory in use")
def test_an_idle_server_takes_little_memory(tmp_path: Path) -> None:
    """It has imported nothing that it does not use, and said that it is loading before it imported torch.

    It answers at the address that it prints, and SIGTERM ends it cleanly.
    """
    imports = tmp_path / "imports"
    with (
        imports.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "tutti_server.app", "serve", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=ENVIRONMENT,
        ) as server,
    ):
        try:
            assert server.stdout
            page = next((line.split()[-1] for line in server.stdout if "captions" in line), None)
            assert page, imports.read_text()[-1000:]
            with httpx.Client(transport=httpx.HTTPTransport(retries=5)) as client:
                assert client.get(f"{page}readyz").status_code == 200
            status = Path(f"/proc/{server.pid}/status").read_text()
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        finally:
            server.kill()
    written = imports.read_text()
    assert "Traceback" not in written
    assert 0 < written.index("· loading …") < re.search(r"\| +(asyncio|torch)\b", written).start()  # type: ignore[union-attr]
    lines = re.findall(r"^import time:.*\|(.*)$", written, re.M)
    modules = {line.strip().partition(".")[0] for line in lines}
    assert {"tutti_server", "torch", "starlette"} <= modules and not modules & UNUSED
    (resident_kib,) = re.findall(r"^VmRSS:\s+(\d+) kB$", status, re.M)
    assert int(resident_kib) / 1024 < MAX_IDLE_MIB
