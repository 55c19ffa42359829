"""Times are those of the container's own clock: late beginnings, gaps and damage take as long as they took.

`test_corpus.py` shows the plain cases in all formats.
"""

import io
import struct
from contextlib import aclosing
from tempfile import TemporaryFile

import numpy as np
import pytest

from tests.app.media.test_file_decoder import encode
from tests.app.media.test_stream_decoder import decoded_in_pieces
from tests.made_files import Track, damaged, heard, loud_stretches, made_file, tone
from tutti_server.app.media import container_clock
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.media.file_decoder import decode_file, decode_pieces
from tutti_server.app.media.notices import Notice
from tutti_server.app.media.pcm import Samples
from tutti_server.app.media.stream_decoder import ContainerDecoder
from tutti_server.engine.api import SAMPLE_RATE

EXACT_S = 0.05
"""Codecs delay their audio, and containers round times."""
MATROSKA, WEBM, MP4, MOV = (
    ("matroska", "aac", 44_100),
    ("webm", "libopus", 48_000),
    ("mp4", "aac", 48_000),
    ("mov", "aac", 48_000),
)
TS, OGG, FLV = ("mpegts", "aac", 48_000), ("ogg", "libopus", 48_000), ("flv", "libmp3lame", 44_100)
ASF = ("asf", "libmp3lame", 44_100)
MP3, ADTS, FLAC = ("mp3", "libmp3lame", 44_100), ("adts", "aac", 44_100), ("flac", "flac", 44_100)
AC3, ALAC, AVI = ("ac3", "ac3", 48_000), ("ipod", "alac", 44_100), ("avi", "libmp3lame", 44_100)
MP2, WAV, OGA = ("mp2", "mp2", 16_000), ("wav", "libmp3lame", 44_100), ("ogg", "flac", 44_100)
Kind = tuple[str, str, int]
NOISE = b"\xa5\x17\x3c"
"""Bytes of damage that no format takes for its own."""


async def decoded_live(content: bytes) -> tuple[Samples, list[Notice]]:
    """As `heard`, from a container that arrives in messages of 1000 bytes."""
    notices: list[Notice] = []
    return await decoded_in_pieces(ContainerDecoder(on_notice=notices.append), content, 1000), notices


def stretches(*expected: tuple[float, float]) -> list[object]:
    return [pytest.approx(each, abs=EXACT_S) for each in expected]


def test_a_track_of_avi_begins_where_its_header_says() -> None:
    """Its packets have no times. FFmpeg writes no such beginning, so the header is changed."""
    content = bytearray(made_file("avi", "libmp3lame", 44_100, [Track(samples=tone(2.0))], picture_s=8))
    header = content.index(b"auds")
    scale, rate = struct.unpack_from("<2I", content, header + 20)
    struct.pack_into("<I", content, header + 28, round(4.9 * rate / scale))
    assert loud_stretches(heard(bytes(content))[0]) == stretches((4.9, 6.9))


async def test_an_avi_that_was_written_to_a_pipe_states_no_length() -> None:
    """FFmpeg leaves a number in its header: years of MP3."""
    content = bytearray(made_file("avi", "libmp3lame", 16_000, [Track(samples=tone(2.0))]))
    struct.pack_into("<I", content, content.index(b"auds") + 32, 1 << 30)
    for samples, notices in heard(bytes(content)), await decoded_live(bytes(content)):
        assert len(samples) == pytest.approx(2 * SAMPLE_RATE, rel=0.05) and notices == []


@pytest.mark.parametrize("kind", [WEBM, MP4, TS])
async def test_a_track_is_late_beside_its_picture(kind: Kind) -> None:
    """Also where the clock begins at any time, and where the container arrives bit by bit."""
    content = made_file(*kind, [Track(samples=tone(2.0), offset_s=4.9)], picture_s=8)
    assert loud_stretches(heard(content)[0]) == stretches((4.9, 6.9))
    if kind != MP4:
        assert loud_stretches((await decoded_live(content))[0]) == stretches((4.9, 6.9))


@pytest.mark.parametrize("kind", [TS, OGG, FLV, ASF])
def test_a_clock_that_began_before_the_recording_begins_with_it(kind: Kind) -> None:
    """A broadcast was on for hours, which the recording does not lack."""
    samples, notices = heard(made_file(*kind, [Track(samples=tone(2.0), offset_s=7200.0)]))
    assert loud_stretches(samples) == stretches((0.0, 2.0))
    assert notices == []


async def test_a_live_container_that_is_joined_late_begins_with_its_first_packet() -> None:
    samples, _ = await decoded_live(made_file(*WEBM, [Track(samples=tone(2.0), offset_s=7200.0)]))
    assert loud_stretches(samples) == stretches((0.0, 2.0))


def test_a_gap_beside_another_track_is_no_damage_and_damage_is() -> None:
    """What the others have in the time of a gap is no audio that was lost."""
    for gap, expected in (((2.0, 5.0), set[str]()), ((0.0, 0.0), {"lost_audio"})):
        content = made_file(*TS, [Track(samples=tone(4.0), gap=gap), Track(samples=tone(9.0))])
        if expected:
            content = damaged(content, 0.05, 0.05)
        samples, notices = heard(content, "0")
        assert loud_stretches(samples)[-1][1] == pytest.approx(4.0 + gap[1], abs=0.2)
        assert {each.code for each in notices} == expected


def test_fragments_behind_damaged_ones_are_heard() -> None:
    """FFmpeg stops at a damaged header of a fragment. Here two stretches are damaged."""
    options = {"movflags": "empty_moov+default_base_moof+delay_moov", "frag_duration": "500000"}
    content = bytearray(encode("mp4", "aac", 48_000, tone(13.0), options=options))
    for share in (0.3, 0.7):
        start, n = int(len(content) * share), len(content) // 10
        content[start : start + n] = (NOISE * n)[:n]
    samples, notices = heard(bytes(content))
    assert len(samples) / SAMPLE_RATE == pytest.approx(13.0, abs=0.1)
    (_, first), (begin, end), (last, _) = loud_stretches(samples)
    assert (first, begin) == pytest.approx((3.6, 5.7), abs=0.6)
    assert (end, last) == pytest.approx((8.8, 10.9), abs=0.6)
    assert [each.lost for each in notices] == stretches((first, begin), (end, last))


def test_all_gaps_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may claim many long gaps. A late beginning is one of them."""
    monkeypatch.setattr(container_clock, "MAX_GAP_S", 10.0)
    content = made_file(*MATROSKA, [Track(samples=tone(4.0), offset_s=6.0, gap=(2.0, 6.0))])
    samples, _ = heard(content)
    assert loud_stretches(samples) == stretches((6.0, 10.0))


async def test_each_channel_has_the_silence_of_a_gap() -> None:
    content = made_file(*MATROSKA, [Track(samples=tone(4.0), gap=(2.0, 15.0))])
    samples = np.concatenate(list(decode_pieces(io.BytesIO(content), 1)))
    assert len(samples) == pytest.approx(19.0 * 16_000, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "filling"), [*((kind, NOISE) for kind in (ADTS, ALAC, MP2, WAV, OGA, MP3, MP4)), (MP2, b"\0")]
)
def test_damaged_data_takes_its_time_and_is_named(kind: Kind, filling: bytes) -> None:
    """Other formats and fillings than those of the corpus."""
    content = made_file(*kind, [Track(samples=tone(13.0))])
    start, n = len(content) // 2, len(content) // 10
    content = content[:start] + (filling * n)[:n] + content[start + n :]
    samples, notices = heard(content)
    assert loud_stretches(samples)[-1][1] == pytest.approx(13.0, abs=0.2)
    lost = [each.lost for each in notices if each.lost]
    # A damaged cluster of Matroska is lost as a whole.
    assert 0.8 < sum(end_s - start_s for start_s, end_s in lost) < 5.0
    assert all(5.0 < start_s < end_s < 10.5 for start_s, end_s in lost)


def test_damage_of_many_bytes_does_not_end_a_recording() -> None:
    """FFmpeg gives up after 64 kB without a page or a packet."""
    content = made_file(*OGG, [Track(samples=tone(40.0))])
    samples, notices = heard(damaged(content, 0.5, max(0.2, 100_000 / len(content))))
    (_, begin), (end, last) = loud_stretches(samples)
    assert last == pytest.approx(40.0, abs=EXACT_S)
    assert [each.lost for each in notices] == stretches((begin, end))


def test_the_numbers_of_flac_in_ogg_go_on_over_a_pause() -> None:
    content = made_file(*OGA, [Track(samples=tone(8.0), gap=(4.0, 15.0))])
    samples, notices = heard(content)
    assert loud_stretches(samples)[-1][1] == pytest.approx(23.0, abs=EXACT_S)
    assert notices == []
    lost = [each.lost for each in heard(damaged(content, 0.2, 0.1))[1] if each.lost]
    assert len(lost) == 1 and lost[0][1] - lost[0][0] == pytest.approx(2.09, abs=0.1)


@pytest.mark.parametrize("kind", [MATROSKA, MP4, ADTS])
def test_recordings_that_were_joined_follow_each_other(kind: Kind) -> None:
    """The clock of each begins anew, and nothing is lost between them."""
    one = made_file(*kind, [Track(samples=tone(3.0))])
    samples, notices = heard(one * 3)
    assert len(samples) / 16_000 == pytest.approx(9.0, abs=0.3)
    assert notices == []


@pytest.mark.parametrize(
    ("first", "second"),
    [(OGG, OGA), (OGA, ("ogg", "flac", 16_000)), (FLAC, ("flac", "flac", 48_000)), (WEBM, MATROSKA)],
)
async def test_recordings_that_were_joined_may_have_any_format(first: Kind, second: Kind) -> None:
    """Also another layout of the channels."""
    ones = [
        made_file(*kind, [Track(samples=tone(2.0))], layout=layout)
        for kind, layout in ((first, "mono"), (second, "stereo"), (second, "mono"), (first, "stereo"))
    ]
    for samples, notices in (heard(b"".join(ones)), await decoded_live(b"".join(ones))):
        assert loud_stretches(samples) == stretches((0.0, 8.0))
        assert notices == []


def test_the_streams_of_an_ogg_are_not_parted() -> None:
    """Each begins with a page of its own."""
    one = made_file(*OGG, [Track(samples=tone(2.0)), Track(samples=tone(2.0, 880.0))])
    samples, _ = heard(one * 3, "1")
    assert loud_stretches(samples) == stretches((0.0, 6.0))
    assert np.argmax(np.abs(np.fft.rfft(samples[:SAMPLE_RATE]))) == 880


@pytest.mark.parametrize("kind", [OGG, WEBM, MATROSKA, TS])
async def test_a_gap_after_a_short_recording_is_as_long_as_it_was(kind: Kind) -> None:
    """The clock of the second one begins anew although the first one has less than a second."""
    short = made_file(*kind, [Track(samples=tone(0.6))])
    content = short + made_file(*kind, [Track(samples=tone(4.0), gap=(2.0, 15.0))])
    for samples, notices in (heard(content), await decoded_live(content)):
        # Encoders add a little to each recording.
        assert loud_stretches(samples)[-1] == pytest.approx((17.6, 19.6), abs=0.1)
        assert notices == []


def test_a_tag_between_packets_is_no_damage() -> None:
    """Formats without times may have one anywhere, as radio has."""
    one = made_file(*ADTS, [Track(samples=tone(3.0))])
    tag = b"ID3\x04\0\0\0\0\x02\0" + bytes(256)
    samples, notices = heard(one + tag + one)
    assert len(samples) / 16_000 == pytest.approx(6.0, abs=0.15)
    assert notices == []


async def test_other_processes_and_threads_report_what_was_lost(decoders: Decoders) -> None:
    content = bytearray(made_file(*WEBM, [Track(samples=tone(6.0))]))
    content[len(content) // 2 : len(content) * 3 // 4] = bytes(len(content) * 3 // 4 - len(content) // 2)
    expected = heard(bytes(content))
    assert expected[1]
    notices: list[Notice] = []
    for decode in (decode_file, decoders.decode):
        notices.clear()
        with TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            async with aclosing(decode(file, None, notices.append)) as pieces:
                samples = np.concatenate([piece async for piece in pieces])
        assert np.array_equal(samples, expected[0])
        assert notices == expected[1]
