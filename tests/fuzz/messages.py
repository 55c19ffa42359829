"""Damaged messages of every dialect, on WebSockets of a live server."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.compat.exchange import GOLDEN
from tests.fakes import pcm, speech
from tests.fuzz.live_server import OPCODE_BINARY, OPCODE_TEXT, Frame, LiveServer, check_answer, upgrade
from tests.fuzz.mutations import damaged_messages

AUDIO = pcm(speech([1, 2, 3]))
"""Half a second of what the fake engine understands."""
WIRE = GOLDEN.parents[1] / "wire"
PATHS = {
    "native": "/v1/stream",
    "deepgram": "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true",
    "deepgram-flux": "/v2/listen?model=flux-general-multi&encoding=linear16&sample_rate=16000&eager_eot_threshold=0.4",
    "openai-realtime": "/v1/realtime?intent=transcription",
    "twilio": "/v1/twilio",
    "asterisk": "/v1/asterisk",
    "audiohook": "/v1/audiohook",
    "freeswitch": "/v1/freeswitch",
    "vonage": "/v1/vonage",
    "telnyx": "/v1/telnyx",
    "plivo": "/v1/plivo",
    "jambonz": "/v1/jambonz",
    "whisperlive": "/",
}
"""The address of each dialect."""


def _examples(dialect: str) -> tuple[Any, ...]:
    """Messages of real clients: JSON values, other texts, and audio."""
    if dialect == "native":
        found = [case["wire"] for case in json.loads((WIRE / "client.json").read_text())]
    else:
        files = sorted((GOLDEN / dialect).glob("*.json"))
        found = [step["text"] for file in files for step in json.loads(file.read_text()) if "text" in step]
    return (*found, "END_OF_AUDIO", AUDIO)


EXAMPLES = {dialect: _examples(dialect) for dialect in PATHS}

CONVERSATIONS = st.sampled_from(sorted(PATHS)).flatmap(
    lambda dialect: st.tuples(
        st.just(dialect), st.lists(damaged_messages(EXAMPLES[dialect]), min_size=1, max_size=5), st.booleans()
    )
)
"""A dialect, what its client sends, and whether the first message is a true one, so that a session begins."""


def check_conversation(server: LiveServer, example: tuple[str, list[str | bytes], bool]) -> None:
    """Every message is accepted or explained, in JSON, and the connection ends in order."""
    dialect, messages, is_begun = example
    if is_begun:
        first = EXAMPLES[dialect][0]
        messages = [first if isinstance(first, str | bytes) else json.dumps(first), *messages]
    frames = [
        Frame(payload=message, opcode=OPCODE_BINARY)
        if isinstance(message, bytes)
        else Frame(payload=message.encode(errors="surrogatepass"), opcode=OPCODE_TEXT)
        for message in messages
    ]
    answer = check_answer(server, upgrade(PATHS[dialect]), b"".join(frame.encode() for frame in frames))
    assert answer.status == 101
    for text in answer.texts:
        assert isinstance(json.loads(text), dict)
