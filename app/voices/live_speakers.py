"""Tells speakers apart in live sessions: the network embeds their speech, and each session has groups of its own."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tutti_server.app.session.observers.speaker_stretches import SpeakersFound, Stretch

if TYPE_CHECKING:
    from tutti_server.app.voices.live_clustering import LiveClusters
    from tutti_server.app.voices.speaker_model import SpeakerModel

logger = logging.getLogger(__name__)

Count = Callable[[str, int], None]
"""Counts stretches by their outcome: `embedded`, `failed` or `dropped`."""
DEADLINE_S = 10.0
"""How long the network may take for the stretches of one call, in seconds. Then they get no speaker."""


def _count_nothing(outcome: str, n: int) -> None:
    pass


class LiveSpeakers:
    """Opens the memories of sessions. It is a `SpeakerTeller`."""

    def __init__(self, model: Callable[[], "SpeakerModel | None"], count: Count = _count_nothing) -> None:
        """Use a network; `count` is called with what became of stretches, and how many there were."""
        self._model = model
        self._count = count

    def open(self, max_speakers: int, voices: str) -> "LiveVoices | None":
        """See `SpeakerTeller`."""
        # Imported here because few services are asked for it.
        from tutti_server.app.voices.live_clustering import LiveClusters

        model = self._model()
        if model is None:
            return None
        return LiveVoices(model, LiveClusters(model.thresholds, max_speakers, voices, model.network), self._count)


class LiveVoices:
    """The speakers of one session. It is a `VoiceMemory`."""

    def __init__(
        self,
        model: "SpeakerModel",
        speakers: "LiveClusters",
        count: Count = _count_nothing,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._embed = model.embed_live or model.embed
        self._speakers = speakers
        self._count = count
        self._deadline_s = deadline_s
        self._next_id = 0
        """The id of the next stretch, if none is dropped."""

    async def add(self, stretches: tuple[Stretch, ...]) -> SpeakersFound | None:
        """See `VoiceMemory`."""
        self._count("dropped", stretches[0].id - self._next_id)
        self._next_id = stretches[-1].id + 1
        outcome = "dropped"
        try:
            found = await self._find(stretches)
            outcome = "embedded"
        except TimeoutError:
            logger.warning("speakers: the network did not answer within %g s", self._deadline_s)
            found, outcome = None, "failed"
        except Exception:
            # Whatever fails here costs labels, and never the session's text.
            logger.exception("speakers: the network failed")
            found, outcome = None, "failed"
        finally:
            self._count(outcome, len(stretches))
        return found

    async def _find(self, stretches: tuple[Stretch, ...]) -> SpeakersFound:
        async with asyncio.timeout(self._deadline_s):
            vectors = await self._embed([each.samples for each in stretches])
        ids, are_short = [each.id for each in stretches], [each.is_short for each in stretches]

        def find() -> SpeakersFound:
            return SpeakersFound(self._speakers.add(ids, vectors, are_short), self._speakers.voices())

        # Some milliseconds: in a thread, as the network is. It is not cut off, so that only one works on the groups.
        return await asyncio.to_thread(find)
