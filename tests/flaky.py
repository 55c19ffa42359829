"""Finds tests that fail by chance: `python -m tests.flaky RUNS -- ARGUMENTS`, with pytest's arguments.

It runs the tests again and again beside two busy loops, and ends with status 1 if any test failed in any run. The
failures are printed with the number of runs in which each failed.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

N_BUSY = 2
"""Busy loops beside the tests: as many as the machine of CI has cores."""
NO_FAILURE = (0, 1)
"""Exit statuses of pytest after a complete run. Any other is an error of the run itself."""


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def failures(report: Path) -> set[str]:
    """Return the names of the tests that failed, or whose set-up or clean-up did, in a report in JUnit's format."""
    cases = ElementTree.parse(report).iter("testcase")
    return {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }


def run_once(arguments: Sequence[str]) -> set[str]:
    """Run the tests once, and return the names of those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *arguments, f"--junitxml={report}"]
        status = subprocess.run(command).returncode
        if status not in NO_FAILURE:
            raise SystemExit(f"pytest ended with status {status}: expected 0 or 1")
        failed = failures(report)
        if status == 1 and not failed:
            raise SystemExit("pytest ended with status 1, and its report names no test that failed")
        return failed


def main(n_runs: int, arguments: Sequence[str]) -> int:
    """Return 1 if any test failed in any run."""
    n_failed: Counter[str] = Counter()
    with busy_loops(N_BUSY):
        for _ in range(n_runs):
            n_failed.update(run_once(arguments))
    print(f"{len(n_failed)} tests failed in {n_runs} runs beside {N_BUSY} busy loops")
    for name, number in n_failed.most_common():
        print(f"{number} of {n_runs}: {name}")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[sys.argv.index("--") + 1 :]))
