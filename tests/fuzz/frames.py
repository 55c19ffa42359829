"""Damaged WebSocket frames and damaged requests, sent to a live server."""

from hypothesis import strategies as st

from tests.fuzz.live_server import Frame, LiveServer, check_answer, upgrade
from tests.fuzz.messages import AUDIO, PATHS
from tests.fuzz.mutations import EDITS, Edit, damaged

PAYLOADS = st.sampled_from([b"", b'{"type":"start"}', b"\xff\xfe", AUDIO[:320], bytes(126), bytes(300)]) | st.binary(
    max_size=200
)
FRAMES = st.builds(
    Frame,
    payload=PAYLOADS,
    opcode=st.sampled_from([0, 1, 2, 8, 9, 10]) | st.integers(0, 15),
    is_last=st.booleans(),
    reserved_bits=st.just(0) | st.integers(0, 7),
    is_masked=st.sampled_from([True, True, True, False]),
    stated_length=st.none() | st.sampled_from([0, 125, 126, 65_535, 65_536, 2**31, 2**63 - 1, 2**64 - 1]),
)
STREAMS = st.tuples(st.sampled_from(sorted(PATHS.values())), st.lists(FRAMES, min_size=1, max_size=6))
"""An address, and the frames that are sent there."""

BOUNDARY = "b" * 16
FORM = (
    (
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--{BOUNDARY}\r\n'
        f'content-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    ).encode()
    + bytes(300)
    + f"\r\n--{BOUNDARY}--\r\n".encode()
)


def _request(start: str, body: bytes = b"", *headers: str) -> bytes:
    length = (f"content-length: {len(body)}",) if body else ()
    lines = (f"{start} HTTP/1.1", "host: localhost", "connection: close", *length, *headers, "", "")
    return "\r\n".join(lines).encode() + body


REQUESTS = (
    *(upgrade(path) for path in PATHS.values()),
    upgrade("/v1/stream", "sec-websocket-protocol: tutti.v1, bearer.k\r\n"),
    _request("GET /healthz"),
    _request("GET /v1/models/fake", b"", "accept: */*"),
    _request("GET /page/model", b"", "origin: http://localhost"),
    _request("POST /v1/audio/transcriptions", FORM, f"content-type: multipart/form-data; boundary={BOUNDARY}"),
    _request("POST /v1/listen?model=x&punctuate=true&keyterm=tutti", AUDIO[:320], "content-type: audio/wav"),
    _request("POST /v1/realtime/client_secrets", b'{"expires_after":{"anchor":"created_at","seconds":60}}'),
    _request("POST /v1/listen", b"", "transfer-encoding: chunked") + b"5\r\nabcde\r\n0\r\n\r\n",
)
"""What clients send first, to every kind of endpoint."""
DAMAGED_REQUESTS = st.tuples(st.sampled_from(REQUESTS), EDITS)


def check_stream(server: LiveServer, example: tuple[str, list[Frame]]) -> None:
    """Frames that break the protocol end the connection, and nothing else."""
    path, frames = example
    answer = check_answer(server, upgrade(path), b"".join(frame.encode() for frame in frames))
    assert answer.status == 101, answer


def check_request(server: LiveServer, example: tuple[bytes, list[Edit]]) -> None:
    """A damaged request is refused, or served as what it has become."""
    request, edits = example
    check_answer(server, damaged(request, edits))
