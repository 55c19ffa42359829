"""WAV files are read in encodings that the server accepts; audio is sent within its limits."""

import asyncio
import struct
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti.audio import Pace, WavFile, paced
from tutti.errors import AudioError, BadOption
from tutti.messages import AudioFormat, Encoding

SUBTYPE_REST = bytes.fromhex("000000001000800000aa00389b71")


def make_wav(
    tag: int,
    bits: int,
    data: bytes,
    *,
    rate: int = 16000,
    channels: int = 1,
    extensible: bool = False,
    size: int | None = None,
    extra: bytes = b"",
) -> bytes:
    frame_bytes = channels * bits // 8
    outer_tag = 0xFFFE if extensible else tag
    chunk = struct.pack("<HHIIHH", outer_tag, channels, rate, rate * frame_bytes & 0xFFFFFFFF, frame_bytes, bits)
    if extensible:
        chunk += struct.pack("<HHIH", 22, bits, 0, tag) + SUBTYPE_REST
    size = len(data) if size is None else size
    body = b"WAVE" + extra + b"fmt " + struct.pack("<I", len(chunk)) + chunk + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def read_wav(path: Path, content: bytes, n_frames: int = 1000) -> tuple[AudioFormat, bytes]:
    """Read a file, which is as long as it says that it is."""
    path.write_bytes(content)
    with WavFile(path) as wav:
        audio = b"".join(iter(lambda: wav.read(n_frames), b""))
        assert wav.duration_s == len(audio) / wav.format.bytes_per_s
        return wav.format, audio


def s16(*samples: int) -> bytes:
    return struct.pack(f"<{len(samples)}h", *samples)


@pytest.mark.parametrize(
    ("tag", "bits", "data", "encoding", "expected"),
    [
        (1, 16, s16(0, 1, -32768, 32767), "pcm_s16le", s16(0, 1, -32768, 32767)),
        (1, 8, bytes([0, 128, 255]), "pcm_s16le", s16(-32768, 0, 127 << 8)),
        (1, 24, b"\x99\x34\x12\x99\xff\xff\x00\x00\x80", "pcm_s16le", s16(0x1234, -1, -32768)),
        (1, 32, b"\x99\x99\x34\x12\x00\x00\xff\xff", "pcm_s16le", s16(0x1234, -1)),
        (3, 32, struct.pack("<2f", 0.5, -1.0), "pcm_f32le", struct.pack("<2f", 0.5, -1.0)),
        (6, 8, b"\xd5\x55", "alaw", b"\xd5\x55"),
        (7, 8, b"\xff\x7f", "mulaw", b"\xff\x7f"),
    ],
)
@pytest.mark.parametrize("extensible", [False, True])
def test_formats_are_read(
    tmp_path: Path, tag: int, bits: int, data: bytes, encoding: Encoding, expected: bytes, extensible: bool
) -> None:
    """Each format of WAV that the server can take is read, in the plain and the extensible form."""
    format, audio = read_wav(tmp_path / "a.wav", make_wav(tag, bits, data, extensible=extensible))
    assert format == AudioFormat(encoding, 16000, 1)
    assert audio == expected


def test_other_chunks_around_the_audio_are_skipped(tmp_path: Path) -> None:
    """Chunks before the format (padded to an even size) and after the audio are skipped."""
    content = make_wav(1, 16, s16(1, 2), extra=b"LIST\x03\x00\x00\x00abc\x00") + b"LIST\x02\x00\x00\x00zz"
    assert read_wav(tmp_path / "a.wav", content)[1] == s16(1, 2)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_a_file_written_to_a_pipe_is_read_to_its_end(tmp_path: Path, size: int) -> None:
    """If the size was never filled in, the audio ends with the file."""
    assert read_wav(tmp_path / "a.wav", make_wav(1, 16, s16(1, 2, 3), size=size))[1] == s16(1, 2, 3)


def test_a_file_cut_short_is_read_to_its_last_whole_frame(tmp_path: Path) -> None:
    """Half a sample at the end is left out."""
    content = make_wav(1, 16, s16(1, 2, 3))[:-1]
    assert read_wav(tmp_path / "a.wav", content)[1] == s16(1, 2)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"ID3 not a wav", "not a WAV file"),
        (b"", "not a WAV file"),
        (make_wav(1, 16, b"")[:20], "ends before its audio"),
        (make_wav(1, 64, b""), "0x0001 of 64 bits"),
        (make_wav(2, 4, b""), "0x0002 of 4 bits"),
        (make_wav(3, 64, b""), "0x0003 of 64 bits"),
        (make_wav(1, 16, b"", rate=96000), "8000 to 48000, got 96000"),
        (make_wav(1, 16, b"", channels=9), "1 to 8 channels, got 9"),
        (b"RIFF\x00\x00\x00\x00WAVEdata\x00\x00\x00\x00", "no format before its audio"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    """The error names the file, what was expected and what it is."""
    with pytest.raises(AudioError, match=reason) as caught:
        read_wav(tmp_path / "a.wav", content)
    assert str(tmp_path / "a.wav") in str(caught.value)


def test_a_chunk_that_states_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    with pytest.raises(AudioError, match="ends before its audio"):
        read_wav(tmp_path / "a.wav", make_wav(1, 16, b"", extra=b"LIST\xff\xff\xff\x7f"))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 1 << 20


@given(
    speed=st.none() | st.floats(0.1, 1000),
    max_ahead_s=st.floats(0, 100),
    chunks_s=st.lists(st.floats(0.001, 5), max_size=50),
)
def test_audio_never_runs_too_far_ahead(speed: float | None, max_ahead_s: float, chunks_s: list[float]) -> None:
    """At any speed, audio is at most 80 % of the limit ahead; and due times never run backwards."""
    pace = Pace(speed, max_ahead_s)
    end_s = before_s = 0.0
    for chunk_s in chunks_s:
        end_s += chunk_s
        due_s = pace.due_s(end_s)
        assert end_s - due_s <= 0.8 * max_ahead_s + 1e-9
        assert due_s >= before_s
        if speed is not None:
            assert due_s >= end_s / speed
        elif end_s <= 0.8 * max_ahead_s:
            assert due_s == 0
        before_s = due_s


@pytest.mark.parametrize("speed", [0, -1, float("nan")])
def test_a_speed_is_above_zero(speed: float) -> None:
    """Zero, negative numbers and NaN are refused at once."""
    with pytest.raises(BadOption, match="speed"):
        Pace(speed, 60)


async def test_the_clock_starts_with_the_first_chunk() -> None:
    """A source that begins late may not send faster because of it, and a fast source waits."""

    async def source() -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        for _ in range(3):
            yield bytes(320)

    loop = asyncio.get_running_loop()
    began = loop.time()
    times = [loop.time() - began async for _ in paced(source(), AudioFormat(), Pace(1.0, 60))]
    # Chunks of 10 ms, each sent when its last sample would have been spoken.
    assert all(time >= due for time, due in zip(times, [0.01, 0.02, 0.03], strict=True))


@pytest.mark.parametrize("speed", [None, 0.5, 1.0, 3.0])
async def test_a_pause_of_the_source_gives_no_allowance(speed: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes at once after it is never too far ahead, as the server counts, and is sent as fast as is allowed."""
    from tutti_server.app.live.audio_receiver import Pace as ServerPace

    now_s = 0.0

    async def sleep(wait_s: float) -> None:
        nonlocal now_s
        now_s += wait_s

    async def source() -> AsyncIterator[bytes]:
        nonlocal now_s
        for n_chunks in (20, 2000):
            for _ in range(n_chunks):
                yield bytes(3200)
            now_s += 300

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    server, ahead_s, sent_s = ServerPace(), 0.0, 0.0
    async for chunk in paced(source(), AudioFormat(), Pace(speed, 60.0)):
        ahead_s, sent_s = max(ahead_s, server.add(len(chunk) / 32000, now_s)), now_s
    assert ahead_s <= 0.8 * 60 + 1e-6
    # 202 s of audio: 2 s before the pause, and after it 48 s at once and 152 s at the pace of speech.
    assert sent_s == pytest.approx((2 / speed if speed else 0) + 300 + 152)
