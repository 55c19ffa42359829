"""The live servers that `benchmarks.live_peers` compares: how each is started, and its client."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.live_clients import PeerClient, tutti_client, whisperlive_client
from benchmarks.server import ADMIT_ALL, RunningServer, free_port, running_process, running_server

ENVIRONMENTS = Path("build/peers")
"""The folder into which `benchmarks/peers.sh` installs the peers."""
PROGRAMS = Path(__file__).parents[1] / "peer_servers"
"""The programs that start the peers inside their own environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetup:
    model: str
    """The model of tutti."""
    ct2_folder: Path
    """The checkpoint of the peers, for CTranslate2."""
    n_threads: int
    n_streams: int
    """The largest number of simultaneous clients."""
    tutti_arguments: tuple[str, ...] = ()
    """Further arguments for `tutti serve`."""

    @property
    def environment(self) -> dict[str, str]:
        n = str(self.n_threads)
        return {"OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n, "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class PeerServer:
    title: str
    start: Callable[[ServerSetup], AbstractContextManager[RunningServer]]
    client: PeerClient
    environment: str = ""
    """Its folder in `ENVIRONMENTS`. Empty if it runs in the environment of this process."""

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)


@contextmanager
def tutti(setup: ServerSetup) -> Iterator[RunningServer]:
    arguments = ["--threads", str(setup.n_threads), "--max-sessions", str(setup.n_streams + 1), *ADMIT_ALL]
    with running_server(["--model", setup.model, *arguments, *setup.tutti_arguments]) as server:
        yield server


@contextmanager
def whisperlive(setup: ServerSetup, *mode: str) -> Iterator[RunningServer]:
    """WhisperLive with one model for all clients; with the mode "batch" it also batches their windows."""
    port = free_port()
    program = str(PROGRAMS / "whisperlive_server.py")
    python = str(ENVIRONMENTS / "whisperlive" / "bin" / "python")
    command = [python, program, str(port), str(setup.ct2_folder), str(setup.n_streams + 1), *mode]
    with running_process(command, port, ready_path="", environment=setup.environment) as server:
        yield server


PEER_SERVERS = {
    "tutti": PeerServer("tutti", tutti, tutti_client),
    "whisperlive": PeerServer("WhisperLive", whisperlive, whisperlive_client, "whisperlive"),
    "whisperlive-batch": PeerServer(
        "WhisperLive, batched", lambda setup: whisperlive(setup, "batch"), whisperlive_client, "whisperlive"
    ),
}
