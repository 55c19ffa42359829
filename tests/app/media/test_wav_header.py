"""The header of a WAV that arrives in pieces."""

import struct

import pytest

from tests.app.media.test_joined_files import chunk, rf64
from tutti_server.app.media import wav_header
from tutti_server.app.media.wav_header import flowing

N_CHUNKS = 1000


def flowed(content: bytes, n_piece: int) -> bytes:
    pieces = iter([content[at : at + n_piece] for at in range(0, len(content), n_piece)])
    return b"".join(flowing(lambda: next(pieces, b"")))


def test_each_chunk_before_the_audio_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the stream is cut, or many small chunks would take the time of their square."""
    n_looks = 0
    bytes_at = wav_header._Source.bytes_at

    def counted(self: wav_header._Source, at: int, n: int) -> bytes:
        nonlocal n_looks
        n_looks += 1
        return bytes_at(self, at, n)

    monkeypatch.setattr(wav_header._Source, "bytes_at", counted)
    content = b"RIFF\xff\xff\xff\xffWAVE" + chunk(b"JUNK", b"") * N_CHUNKS + chunk(b"data", bytes(100))
    n_pieces = len(content) // 20
    assert len(flowed(content, 20)) == len(content)
    assert n_looks <= N_CHUNKS + n_pieces + 10


@pytest.mark.parametrize("n_piece", [1, 7, 20, 31, 100, 100_000])
def test_the_length_in_a_chunk_of_its_own_is_known_however_it_is_cut(n_piece: int) -> None:
    """What follows the audio is not taken for it."""
    content = rf64()
    header, audio = content[: content.index(b"data") + 8], content[content.index(b"data") + 8 :]
    whole = flowed(content + chunk(b"LIST", b"\x55" * 98), n_piece)
    assert whole.endswith(audio) and len(whole) == len(header) + len(audio)
    assert whole[:4] == b"RIFF" and struct.unpack("<I", whole[len(header) - 4 : len(header)]) == (0,)
