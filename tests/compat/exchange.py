"""Golden exchanges: the messages between a client of a dialect and the server, without a network and a clock.

A file under `tests/compat/golden/DIALECT/` is a list of steps. The client's are `{"text": message}`, `{"binary": text}`
and `{"speech": [word, ...], "silence_s": seconds}`, which is the made-up speech of `tests/fakes.py`; between them stand
the answers, `{"answer": message}` and `{"close": [code, reason]}`. The engine of `tests/fakes.py` answers at once.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.fakes import decode, pcm, silence, speech
from tests.talk import CONFIG, Decode, Talk
from tutti_server.app.errors import LimitExceeded, SessionError
from tutti_server.app.live.dialect import Dialect
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.core.options import SessionConfig

GOLDEN = Path(__file__).parent / "golden"

Step = dict[str, Any]
ToMessages = Callable[[Samples], Iterable[str | bytes]]
"""Audio, 16 kHz, as a client of the dialect sends it."""


def in_pieces(samples: Samples) -> Iterator[bytes]:
    """Floats, in messages of 100 ms."""
    return (pcm(samples[at : at + 1600]) for at in range(0, len(samples), 1600))


SPEECH = st.builds(
    lambda words, silence_s: {"speech": words, "silence_s": silence_s},
    st.lists(st.integers(0, 80), max_size=8),
    st.sampled_from([0.0, 0.2, 0.6, 1.2, 2.0]),
)
"""Any speech of a client, as a step."""


def golden(dialect: str) -> list[Path]:
    return sorted((GOLDEN / dialect).glob("*.json"))


def cases(dialect: str, shows: Mapping[str, Any]) -> list[Any]:
    """The exchanges of a dialect as cases of a test, with the marks of what those of some names show."""
    return [pytest.param(path, id=path.stem, marks=shows.get(path.stem, ())) for path in golden(dialect)]


@dataclass(frozen=True, slots=True)
class Server:
    """The server behind a dialect."""

    config: SessionConfig
    decode: Decode


PLAIN = Server(CONFIG, decode)
"""The fake engine as it is, without speculative finals."""


def replay(
    path: Path, dialect: Dialect, to_messages: ToMessages, said: list[Step] | None = None, server: Server = PLAIN
) -> None:
    """Assert that the client's steps of a file get the answers that the file has."""
    recorded = json.loads(path.read_text())
    assert exchange(recorded, dialect, to_messages, said, server) == recorded


def record(
    path: Path, dialect: Dialect, to_messages: ToMessages, said: list[Step] | None = None, server: Server = PLAIN
) -> None:
    """Write the answers of now into a file. Read what has changed before it is kept."""
    steps = exchange(json.loads(path.read_text()), dialect, to_messages, said, server)
    lines = ",\n".join(json.dumps(step, ensure_ascii=False) for step in steps)
    path.write_text(f"[\n{lines}\n]\n")


def exchange(
    steps: Iterable[Step],
    dialect: Dialect,
    to_messages: ToMessages,
    said: list[Step] | None = None,
    server: Server = PLAIN,
) -> list[Step]:
    """The client's steps, each followed by its answers.

    Args:
        said: where the dialect itself puts what it tells others than its client, in steps of its own.
    """
    talk = _Recording(dialect, said if said is not None else [], server)
    for step in steps:
        match step:
            case {"text": str(text)}:
                talk.hear(step, [text])
            case {"text": message}:
                talk.hear(step, [json.dumps(message)])
            case {"binary": text}:
                talk.hear(step, [text.encode()])
            case {"speech": words, "silence_s": silence_s}:
                talk.hear(step, to_messages(np.concatenate((speech(words), silence(silence_s)))))
    return talk.steps


class _Recording(Talk):
    """Notes what is said as steps."""

    def __init__(self, dialect: Dialect, steps: list[Step], server: Server) -> None:
        self.steps = steps
        super().__init__(dialect, config=server.config, decode=server.decode)

    def hear(self, step: Step, messages: Iterable[str | bytes]) -> None:
        self.steps.append(step)
        for message in messages:
            try:
                self.say(message)
            except LimitExceeded as error:
                self.perform(self.session.end(error))
            except SessionError as error:
                self.perform(self.session.fail(error))

    def note_message(self, text: str) -> None:
        self.steps.append({"answer": json.loads(text)})

    def note_close(self, close: Close) -> None:
        self.steps.append({"close": [close.code, close.reason]})
