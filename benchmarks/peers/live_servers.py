"""The live servers that `benchmarks.live_peers` compares: how each is started, and its client."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers.live_clients import (
    PeerClient,
    tutti_client,
    whisper_streaming_client,
    whisperlive_client,
    whisperlivekit_client,
)
from benchmarks.server import ADMIT_ALL, RunningServer, free_port, running_process, running_server
from tutti_server.engine.model.random_weights import PREFIX

ENVIRONMENTS = Path("build/peers")
"""The folder into which `benchmarks/peers.sh` installs the peers."""
PROGRAMS = Path(__file__).parents[1] / "peer_servers"
"""The programs that start the peers inside their own environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetup:
    """The setup that every server receives."""

    folder: str
    """The checkpoint folder in the layout of transformers; `random:SIZE` for the servers that tell times."""
    ct2_folder: str
    """The same checkpoint, converted for CTranslate2."""
    language: str
    n_threads: int
    n_streams: int
    """The largest number of simultaneous clients."""
    tutti_arguments: tuple[str, ...] = ()
    """Further arguments for `tutti serve`."""

    @property
    def is_random(self) -> bool:
        """Whether the weights are random, so that texts tell nothing."""
        return self.folder.startswith(PREFIX)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the server's process."""
        n = str(self.n_threads)
        return {"OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n, "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class PeerServer:
    """A server in the comparison."""

    title: str
    start: Callable[[ServerSetup], AbstractContextManager[list[RunningServer]]]
    """Starts one server for all clients, or one for each client if it serves only one at a time."""
    client: PeerClient
    environment: str = ""
    """Its folder in `ENVIRONMENTS`. Empty if it runs in the environment of this process."""

    @property
    def tells_times(self) -> bool:
        """Whether its client learns which audio a text covers."""
        return self.client in (tutti_client, whisperlive_client)

    @property
    def python(self) -> Path:
        """The Python interpreter that runs the server."""
        return ENVIRONMENTS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)


@contextmanager
def tutti(setup: ServerSetup) -> Iterator[list[RunningServer]]:
    """`tutti serve`."""
    arguments = ["--threads", str(setup.n_threads), "--max-sessions", str(setup.n_streams + 1), *ADMIT_ALL]
    with running_server(["--model", setup.folder, *arguments, *setup.tutti_arguments]) as server:
        yield [server]


@contextmanager
def whisperlive(setup: ServerSetup, *mode: str) -> Iterator[list[RunningServer]]:
    """WhisperLive with one model for all clients; with the mode "batch" it also batches their windows."""
    port = free_port()
    program = str(PROGRAMS / "whisperlive_server.py")
    command = [_python("whisperlive"), program, str(port), setup.ct2_folder, str(setup.n_streams + 1), *mode]
    command += ["no-timestamps"] if setup.is_random else []
    with running_process(command, port, ready_path="", environment=setup.environment) as server:
        yield [server]


@contextmanager
def whisperlivekit(
    setup: ServerSetup, *, policy: Callable[[ServerSetup], Sequence[str]]
) -> Iterator[list[RunningServer]]:
    """WhisperLiveKit on raw PCM, without the warm-up file that it would download."""
    port = free_port()
    command = [_python("whisperlivekit"), str(PROGRAMS / "whisperlivekit_server.py"), setup.folder]
    command += ["--host", "127.0.0.1", "--port", str(port), "--pcm-input", "--warmup-file", ""]
    command += ["--language", setup.language, *policy(setup)]
    with running_process(command, port, ready_path="/health", environment=setup.environment) as server:
        yield [server]


@contextmanager
def whisper_streaming(setup: ServerSetup) -> Iterator[list[RunningServer]]:
    """whisper_streaming: one process for each client, because it serves one client at a time.

    Its voice detection is on, because without it this checkpoint repeats text in pauses.
    """
    command = [_python("whisper_streaming"), str(PROGRAMS / "whisper_streaming_server.py")]
    command += [str(ENVIRONMENTS / "whisper_streaming" / "source"), "--model_dir", setup.ct2_folder]
    command += ["--language", setup.language, "--host", "127.0.0.1", "--log-level", "WARNING", "--vad"]
    with ExitStack() as stack:
        servers = []
        for _ in range(setup.n_streams):
            port = free_port()
            running = running_process(
                [*command, "--port", str(port)], port, ready_path="", environment=setup.environment
            )
            servers.append(stack.enter_context(running))
        yield servers


def _local_agreement(setup: ServerSetup) -> list[str]:
    """Arguments for the LocalAgreement policy."""
    return ["--backend-policy", "localagreement", "--backend", "faster-whisper", "--model_dir", setup.ct2_folder]


def _simul_streaming(setup: ServerSetup) -> list[str]:
    """Arguments for the SimulStreaming policy, with the encoder of faster-whisper. The decoder is always PyTorch's."""
    return ["--model-path", setup.folder, "--encoder-model-path", setup.ct2_folder, "--backend", "faster-whisper"]


PEER_SERVERS = {
    "tutti": PeerServer("tutti", tutti, tutti_client),
    "whisperlive": PeerServer("WhisperLive", whisperlive, whisperlive_client, "whisperlive"),
    "whisperlive-batch": PeerServer(
        "WhisperLive, batched", lambda setup: whisperlive(setup, "batch"), whisperlive_client, "whisperlive"
    ),
    "simulstreaming": PeerServer(
        "WhisperLiveKit, SimulStreaming",
        partial(whisperlivekit, policy=_simul_streaming),
        whisperlivekit_client,
        "whisperlivekit",
    ),
    "localagreement": PeerServer(
        "WhisperLiveKit, LocalAgreement",
        partial(whisperlivekit, policy=_local_agreement),
        whisperlivekit_client,
        "whisperlivekit",
    ),
    "whisper_streaming": PeerServer(
        "whisper_streaming", whisper_streaming, whisper_streaming_client, "whisper_streaming"
    ),
}


def _python(environment: str) -> str:
    return str(ENVIRONMENTS / environment / "bin" / "python")
