"""Runs the operator's turn model for all sessions of a process."""

import logging
from collections.abc import Callable, Sequence

from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.network_batcher import NetworkBatcher

logger = logging.getLogger(__name__)

MAX_BATCH = 16
"""The most pauses in one call."""


class TurnBatcher(NetworkBatcher):
    """Gives pauses to the model."""

    def __init__(self, score: Callable[[Sequence[Samples]], Sequence[float]]) -> None:
        """`score` is that of an `AudioTurnModel`."""
        super().__init__(score, "turn-model", MAX_BATCH)
        self._has_failed = False

    async def score(self, samples: Samples) -> float | None:
        """The probability that the turn has ended, for the audio before a pause; `None` if the model failed.

        The first failure is logged. Cancelling is safe.
        """
        try:
            (probability,) = await self._answers([samples], self._waiting_live)
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                then = "such pauses are judged by their text only, and later failures are not logged"
                logger.error("the turn model failed; %s", then, exc_info=error)
            return None
        return float(probability)
