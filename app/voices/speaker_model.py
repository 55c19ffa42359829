"""The speaker network of a service, with the cosines that belong to it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tutti_server.app.voices.file_speakers import Embed
from tutti_server.app.voices.speaker_batcher import EmbedderBatcher
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.app.voices.speaker_network import DEFAULT_WEIGHTS, NumpyNetwork


@dataclass(frozen=True, slots=True)
class SpeakerModel:
    """Embeds speech for all sessions of a process."""

    embed: Embed
    thresholds: SpeakerThresholds
    embed_live: Embed | None = None
    """Embeds like `embed`, but before what is not live; `None` if there is no such order."""
    network: str = ""
    """Names the network, so that a session that goes on elsewhere does not compare voices of two networks."""


def load_onnx(path: Path, thresholds: SpeakerThresholds) -> SpeakerModel:
    """The network in an operator's ONNX file, with the cosines that belong to it.

    Raises:
        SettingsError: the file holds no such network.
    """
    # Imported here because most services use the network that comes with the package.
    from tutti_server.app.voices.onnx_network import OnnxNetwork

    batcher = EmbedderBatcher(OnnxNetwork(path).embed)
    return SpeakerModel(batcher.embed, thresholds, batcher.embed_live, _name(path))


def load(path: Path = DEFAULT_WEIGHTS) -> SpeakerModel | None:
    """The network in a file of weights; `None` if there is no such file.

    Raises:
        ValueError: the file holds other arrays.
    """
    if not path.exists():
        return None
    network = NumpyNetwork(path)
    # Imported here because it sets an environment variable.
    from threadpoolctl import ThreadpoolController

    # On a busy machine several threads wait for each other: a stretch of 3 s took 482 ms, with one thread 8 ms. This is
    # NumPy's library; PyTorch has one of its own.
    ThreadpoolController().select(internal_api="openblas").limit(limits=1)
    batcher = EmbedderBatcher(network.embed)
    return SpeakerModel(batcher.embed, network.thresholds, batcher.embed_live, _name(path))


def _name(path: Path) -> str:
    """What names a network in `resume.voices`: the beginning of its file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
