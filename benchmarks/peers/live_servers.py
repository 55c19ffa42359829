"""The live servers that `benchmarks.live_peers` compares: how each is started and spoken to."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers.live_clients import (
    Converse,
    converse_tutti,
    converse_whisper_streaming,
    converse_whisperlive,
    converse_whisperlivekit,
)
from benchmarks.server import RunningServer, free_port, running_process, running_server

ENVIRONMENTS = Path("build/peers")
"""Where `benchmarks/peers.sh` installs them."""
PROGRAMS = Path(__file__).parents[1] / "peer_servers"


@dataclass(frozen=True, slots=True)
class Setting:
    """What all of them are given."""

    folder: str
    """The checkpoint as transformers has it."""
    ct2_folder: str
    """Converted for CTranslate2."""
    language: str
    n_threads: int
    n_streams: int
    """The most clients at a time."""

    @property
    def environment(self) -> dict[str, str]:
        n = str(self.n_threads)
        return {"OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n, "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class PeerKind:
    title: str
    start: Callable[[Setting], AbstractContextManager[list[RunningServer]]]
    """One server for all clients, or as many as there may be clients where it takes one at a time."""
    converse: Converse
    environment: str = ""
    """Its folder in `ENVIRONMENTS`; empty for what runs in this one."""

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)


@contextmanager
def tutti(setting: Setting) -> Iterator[list[RunningServer]]:
    arguments = ["--threads", str(setting.n_threads), "--max-sessions", str(setting.n_streams + 1)]
    with running_server(["--model", setting.folder, *arguments]) as server:
        yield [server]


@contextmanager
def whisperlive(setting: Setting, *mode: str) -> Iterator[list[RunningServer]]:
    port = free_port()
    program = str(PROGRAMS / "whisperlive_server.py")
    command = [_python("whisperlive"), program, str(port), setting.ct2_folder, str(setting.n_streams + 1), *mode]
    with running_process(command, port, ready_path="", environment=setting.environment) as server:
        yield [server]


@contextmanager
def whisperlivekit(setting: Setting, *, policy: Callable[[Setting], Sequence[str]]) -> Iterator[list[RunningServer]]:
    """On raw PCM, without the warm-up file that it would download."""
    port = free_port()
    command = [_python("whisperlivekit"), str(PROGRAMS / "whisperlivekit_server.py"), setting.folder]
    command += ["--host", "127.0.0.1", "--port", str(port), "--pcm-input", "--warmup-file", ""]
    command += ["--language", setting.language, *policy(setting)]
    with running_process(command, port, ready_path="/health", environment=setting.environment) as server:
        yield [server]


@contextmanager
def whisper_streaming(setting: Setting) -> Iterator[list[RunningServer]]:
    """A process for each client, as it serves one at a time.

    Its voice detection is asked for, as without it this checkpoint repeats itself in pauses.
    """
    command = [_python("whisper_streaming"), str(PROGRAMS / "whisper_streaming_server.py")]
    command += [str(ENVIRONMENTS / "whisper_streaming" / "source"), "--model_dir", setting.ct2_folder]
    command += ["--language", setting.language, "--host", "127.0.0.1", "--log-level", "WARNING", "--vad"]
    with ExitStack() as stack:
        servers = []
        for _ in range(setting.n_streams):
            port = free_port()
            running = running_process(
                [*command, "--port", str(port)], port, ready_path="", environment=setting.environment
            )
            servers.append(stack.enter_context(running))
        yield servers


def _local_agreement(setting: Setting) -> list[str]:
    return ["--backend-policy", "localagreement", "--backend", "faster-whisper", "--model_dir", setting.ct2_folder]


def _simul_streaming(setting: Setting) -> list[str]:
    """The fast encoder, which it takes by itself when it can; its decoder is PyTorch's in any case."""
    return ["--model-path", setting.folder, "--encoder-model-path", setting.ct2_folder, "--backend", "faster-whisper"]


KINDS = {
    "tutti": PeerKind("tutti", tutti, converse_tutti),
    "whisperlive": PeerKind("WhisperLive", whisperlive, converse_whisperlive, "whisperlive"),
    "whisperlive-batch": PeerKind(
        "WhisperLive, batched", lambda setting: whisperlive(setting, "batch"), converse_whisperlive, "whisperlive"
    ),
    "simulstreaming": PeerKind(
        "WhisperLiveKit, SimulStreaming",
        partial(whisperlivekit, policy=_simul_streaming),
        converse_whisperlivekit,
        "whisperlivekit",
    ),
    "localagreement": PeerKind(
        "WhisperLiveKit, LocalAgreement",
        partial(whisperlivekit, policy=_local_agreement),
        converse_whisperlivekit,
        "whisperlivekit",
    ),
    "whisper_streaming": PeerKind(
        "whisper_streaming", whisper_streaming, converse_whisper_streaming, "whisper_streaming"
    ),
}


def _python(environment: str) -> str:
    return str(ENVIRONMENTS / environment / "bin" / "python")
