"""Embeds stretches of speech for all sessions of a process, those of live sessions first."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.network_batcher import NetworkBatcher

MAX_BATCH = 8
"""The most stretches in one call."""


class EmbedderBatcher(NetworkBatcher):
    """Runs a speaker network on stretches of speech, several in one call."""

    def __init__(self, embed: Callable[[Sequence[Samples]], NDArray[np.float32]]) -> None:
        """`embed` gives unit vectors, `(stretches, dimensions)`, of stretches of mono float32 audio at 16 kHz."""
        super().__init__(embed, "speaker-network", MAX_BATCH)

    async def embed(self, stretches: Sequence[Samples]) -> NDArray[np.float32]:
        """Unit vectors, `(stretches, dimensions)`. Cancelling is safe. An error of the network is raised."""
        return np.stack(await self._answers(stretches, self._waiting))

    async def embed_live(self, stretches: Sequence[Samples]) -> NDArray[np.float32]:
        """Embed a stretch of a live session, before all stretches that are not live."""
        return np.stack(await self._answers(stretches, self._waiting_live))
