"""The measurement of a start, with a command that stands in for `tutti`."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import start

STAND_IN = """#!{python}
import http.server, sys
if "--version" in sys.argv:
    sys.exit(print("tutti, version 1"))
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
    def log_message(self, *arguments): pass
port = int(sys.argv[sys.argv.index("--port") + 1])
assert "--slots" in sys.argv
http.server.HTTPServer(("127.0.0.1", port), Ready).serve_forever()
"""


def test_all_figures_of_a_start_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times on the clock and of the CPU, and memory."""
    monkeypatch.setattr(start, "IDLE_S", 0.0)
    program, path = tmp_path / "tutti", tmp_path / "start.json"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    done = CliRunner().invoke(
        start.main, ["--tutti", str(program), "--runs", "2", "--json", str(path), "--", "--slots", "4"]
    )
    assert done.exit_code == 0, done.output
    assert "median and worst of 2" in done.output
    result = json.loads(path.read_text())
    assert len(result["version"]) == len(result["ready"]) == 2
    for run in (*result["version"], *result["ready"]):
        assert run["wall_s"] > 0 and run["cpu_s"] > 0
    assert all(run["idle_rss_mib"] > 1 for run in result["ready"])
