"""Writes `tests/wire/speakers.json`: `speakers` events of sessions, and who speaks when in the end by their own state.

    python -m tests.speaker_sessions

Both clients read it: whatever the order, the overlaps and the revisions, they must know the same in the end.
"""

import json
import random
from pathlib import Path
from typing import Any

from tutti_server.app.dialects.native.wire import encode
from tutti_server.app.session.messages import events
from tutti_server.app.session.observers.speaker_labels import SpeakerLabels
from tutti_server.app.session.observers.speaker_stretches import SpeakersFound, Stretch, VoiceMemory

FILE = Path(__file__).parent / "wire" / "speakers.json"
FRAME = 320
"""The samples of a frame of 20 ms."""
N_SESSIONS = 6


class NoMemory(VoiceMemory):
    """Is never asked: the answers are made here."""

    async def add(self, stretches: tuple[Stretch, ...]) -> SpeakersFound | None:
        """See `VoiceMemory`."""
        raise AssertionError("not asked")


def session(drawn: random.Random, failures: float = 0.0) -> dict[str, Any]:
    """The events of a session, and who speaks when at its end; `failures` is the share of questions without answer."""
    from_s = drawn.choice([0.0, 12.34, 3600.5])
    labels = SpeakerLabels(NoMemory(), from_s, resumes=False)
    told: list[dict[str, Any]] = []
    answered: list[int] = []
    position = n_unanswered = 0
    for _ in range(drawn.randint(4, 10)):
        new: list[Stretch] = []
        for _ in range(drawn.randint(1, 3)):
            start = max(0, position + drawn.randint(-20, 30))
            position = start + drawn.randint(5, 74)
            is_run = drawn.random() < 0.3
            id_ = len(answered) + n_unanswered + len(new)
            new.append(Stretch(id=id_, start=start * FRAME, end=position * FRAME, frames=(), is_run=is_run))
        assert not list(labels._add(new))
        assert labels.submit() == tuple(new)
        if failures and drawn.random() < failures:
            assert not isinstance(labels.answered(None), events.Speakers)
            n_unanswered += len(new)
            continue
        answered += [each.id for each in new]
        revised = drawn.sample(answered, drawn.randint(0, len(answered)))
        found = {id_: drawn.randint(0, 2) for id_ in sorted({*revised, *(each.id for each in new)})}
        event = labels.answered(SpeakersFound(found, ""))
        assert isinstance(event, events.Speakers)
        told.append(json.loads(encode(event)))
    whole = [labels._span(*each) for each in labels._painted(0, (position + 100) * FRAME)]
    (known,) = [json.loads(encode(events.Speakers(0, tuple(whole))))["spans"]]
    return {"events": told, "known": known}


def text() -> str:
    """The content of the file."""
    sessions = [json.dumps(session(random.Random(seed)), separators=(",", ":")) for seed in range(N_SESSIONS)]
    return "[\n" + ",\n".join(sessions) + "\n]\n"


if __name__ == "__main__":
    FILE.write_text(text())
