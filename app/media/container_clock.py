"""Places decoded frames on the clock of their container, and finds what is missing between them.

Recorders pause, streams begin late, and packets are lost. The samples alone do not say so; the times of packets do.
"""

from bisect import bisect_left

import av
from av.stream import Disposition

from tutti_server.app.media.joined_files import FilePart, Part
from tutti_server.app.media.notices import OnNotice, cut_off, is_cut_off, lost_audio
from tutti_server.app.media.wav_header import CHUNK

MIN_GAP_S = 0.05
"""The shortest gap that is filled with silence, in seconds. Containers round times, and recorders jitter."""
MAX_BACK_S = 1.0
"""Frames that come earlier than this, in seconds, have a new clock: of a recording that was joined to another one."""
MAX_STEP_BACK_S = 0.25
"""So have frames that come so much earlier than the one before, in seconds: after a recording that is very short."""
MAX_EARLY_S = 10.0
"""Audio before the beginning of the clock, in seconds, that is left out: an encoder's delay, or a cut beginning."""
MAX_GAP_S = 24 * 3600.0
"""A gap is a new clock as well where all gaps of the stream would be longer than this, in seconds.

So a small file that claims long gaps costs no more than a recording of a day.
"""
DAMAGED_SHARE = 0.25
"""A gap is of damaged data if the file has at least this share of the bytes that its streams would take.

FFmpeg passes over damaged data of most containers without an error. A recorder that pauses writes nothing.
"""
COUNTING = frozenset(("aac", "ac3", "dts", "eac3", "latm", "loas", "mp3"))
"""Formats without times. FFmpeg counts their packets, and one that holds a damaged stretch counts once."""
WITHOUT_PAUSES = frozenset(("flac",))
"""Formats with times that have gaps only where data is damaged. FFmpeg says not of each packet of FLAC where it is."""
TAGS = (b"ID3", b"APETAGEX", b"TAG")
"""What may stand between the packets of such formats without being audio."""
LONGEST_SKIP = 1 << 22
"""How far behind the last packet the next one is looked for, in bytes."""
_ZERO_BASED = frozenset(("matroska", "mov"))
"""Formats whose clocks begin at zero, if they state their length. Others, and live ones, begin at any time."""


def origin_s(container: av.container.InputContainer, is_live: bool) -> float | None:
    """The time at which the clock of a container begins, in seconds; `None` for that of the first frame."""
    if not is_live and container.duration and container.format.name.partition(",")[0] in _ZERO_BASED:
        return 0.0
    return None if container.start_time is None else container.start_time / av.time_base


class ContainerClock:
    """Follows the packets and frames of one stream, in their order. Times are in seconds."""

    def __init__(
        self,
        container: av.container.InputContainer,
        stream: av.AudioStream,
        file: Part,
        is_live: bool,
        on_notice: OnNotice,
    ) -> None:
        """Begin the clock of a container. A live one, `is_live`, began before its first byte."""
        self.end_s = 0.0
        """The end of the audio that was placed, in seconds."""
        self.n_read = 0
        """The end of the last packet, in bytes of the file."""
        self.stated_s: float | None = None
        """Where the audio ends by what the file states; `None` if it states nothing."""
        self._origin_s = origin_s(container, is_live)
        name = container.format.name
        self._counts = name in COUNTING or (name == "wav" and stream.codec_context.name.startswith("mp3"))
        self._has_pauses = name not in WITHOUT_PAUSES
        self._on_notice = on_notice
        self._bytes = _Bytes()
        self._places = PacketPlaces(file) if self._counts and isinstance(file, FilePart) else None
        self._index = AviIndex(stream) if container.format.name == "avi" and not is_live else None
        is_numbered = name == "ogg" and stream.codec_context.name == "flac"
        self._numbers = FlacNumbers(stream.codec_context.extradata or b"") if is_numbered else None
        self._is_damaged = False
        """Whether data since the last frame was damaged."""
        self._n_zeros = 0
        """The zeros at the beginning of the last packet, which decoders of formats without times pass over."""
        self._until_s = 0.0
        """The time at which the audio would end if the damaged packets were whole."""
        self._silence_s = 0.0
        """The length of all gaps until now."""
        self._last_s = 0.0
        """The time of the last frame by the container."""

    def pass_over(self, packet: "av.Packet[av.stream.Stream]") -> None:
        """Note a packet of another stream, such as of the picture."""
        self.n_read = max(self.n_read, (packet.pos or 0) + packet.size)
        if not packet.stream.disposition & Disposition.attached_pic:
            self._bytes.pass_over(packet)

    def receive(self, packet: "av.Packet[av.AudioStream]") -> None:
        """Note a packet before it is decoded."""
        self.n_read = max(self.n_read, (packet.pos or 0) + packet.size)
        self._is_damaged |= packet.is_corrupt
        content = bytes(packet) if self._counts else b""
        self._n_zeros = len(content) - len(content.lstrip(b"\0"))
        if self._places and (n_skipped := self._places.n_skipped(content)):
            self._is_damaged = True
            self._origin_s = (self._origin_s or 0.0) - self._bytes.duration_s(n_skipped)
        if self._index and (lost_s := self._index.lost_s(packet)):
            self._is_damaged = True
            self._origin_s = (self._origin_s or 0.0) - lost_s
        if self._numbers and (newly_s := self._numbers.newly_late_s(packet)):
            self._is_damaged |= newly_s > 0
            self._origin_s = (self._origin_s or 0.0) - newly_s
        self._bytes.add(packet)

    def fail(self, packet: "av.Packet[av.AudioStream]") -> None:
        """Note that a packet could not be decoded."""
        self._n_zeros = 0
        self._bytes.n_damaged += packet.size
        if self._counts and any(tag in bytes(packet) for tag in TAGS):
            # Such as between recordings that were joined. Nothing is lost.
            return
        self._is_damaged = True
        duration_s = float((packet.duration or 0) * (packet.time_base or 0))
        if self._counts:
            # The times of all that follows are too early by what one packet cannot hold.
            excess_s = max(self._bytes.duration_s(packet.size) - duration_s, 0.0)
            self._origin_s = (self._origin_s or 0.0) - excess_s
        elif packet.pts is not None and packet.time_base:
            self._until_s = float(packet.pts * packet.time_base) - (self._origin_s or 0.0) + duration_s

    def go_on(self) -> None:
        """Note that damaged data ended the container, and that what follows of it comes as another one."""
        self._is_damaged = True
        self.n_read = 0

    def place(self, frame: av.AudioFrame) -> float:
        """The silence before a frame, in seconds; less than zero for the part of it that is before the beginning."""
        if self._n_zeros:
            self._pass_over_zeros()
        duration_s = frame.samples / frame.sample_rate
        missing_s = self._missing_s(frame.time)
        self._silence_s += max(missing_s, 0.0)
        self._bytes.duration_all_s += duration_s
        if missing_s > 0 and (self._is_damaged or (self.end_s and self._were_skipped(missing_s))):
            self._on_notice(lost_audio(self.end_s, self.end_s + missing_s))
        self.end_s = max(self.end_s + missing_s + duration_s, 0.0)
        self._is_damaged &= missing_s == 0
        return missing_s

    def _pass_over_zeros(self) -> None:
        self._bytes.n_damaged += self._n_zeros
        lost_s = self._bytes.duration_s(self._n_zeros)
        self._n_zeros = 0
        if lost_s >= MIN_GAP_S:
            self._is_damaged = True
            self._origin_s = (self._origin_s or 0.0) - lost_s

    def finish(self, n_file_bytes: int) -> float:
        """The silence after the last frame, in seconds, if the end is damaged. A length of 0 is not known."""
        until_s, stated_s = self._until_s, self.stated_s
        if stated_s and self._bytes.remain(n_file_bytes, stated_s - self.end_s):
            until_s = max(until_s, stated_s)
        missing_s = until_s - self.end_s
        if MIN_GAP_S <= missing_s <= MAX_GAP_S - self._silence_s:
            self._on_notice(lost_audio(self.end_s, until_s))
        else:
            missing_s = 0.0
        if stated_s and is_cut_off(self.end_s + missing_s, stated_s):
            self._on_notice(cut_off(self.end_s + missing_s, stated_s))
        return missing_s

    def _were_skipped(self, missing_s: float) -> bool:
        return not self._has_pauses or self._bytes.were_skipped(missing_s, self.end_s)

    def _missing_s(self, at_s: float | None) -> float:
        if at_s is None:
            return 0.0
        if self._origin_s is None:
            self._origin_s = at_s
        missing_s = at_s - self._origin_s - self.end_s
        is_first = self.end_s == 0
        has_gone_back = not is_first and at_s < self._last_s - MAX_STEP_BACK_S
        self._last_s = at_s
        if has_gone_back or not -(MAX_EARLY_S if is_first else MAX_BACK_S) <= missing_s <= MAX_GAP_S - self._silence_s:
            self._origin_s = at_s - self.end_s
            return 0.0
        # An encoder's delay is left out to the sample; later, clocks that run a little slow cost no audio.
        return missing_s if missing_s >= MIN_GAP_S or (is_first and missing_s < 0) else 0.0


class PacketPlaces:
    """Finds the packets of a format without times in its file.

    FFmpeg passes over damaged bytes between two packets, and counts on as if there were none.
    """

    def __init__(self, file: FilePart) -> None:
        self._file = file
        self._at = 0
        """The position at which the next packet begins, if nothing is between it and the last one."""
        self._is_first = True
        self._is_lost = False
        """Whether a packet was not found. What follows cannot be found then."""

    def n_skipped(self, packet: bytes) -> int:
        """The bytes between this packet and the last one; 0 where they are a tag, or before the first packet."""
        if self._is_lost or not packet:
            return 0
        before = self._at
        if self._file.bytes_at(before, len(packet)) != packet:
            found = self._file.bytes_at(before, LONGEST_SKIP).find(packet)
            self._is_lost = found < 0
            self._at += max(found, 0)
        self._at += len(packet)
        n_skipped = self._at - len(packet) - before
        is_first, self._is_first = self._is_first, False
        if is_first or not n_skipped or any(tag in self._file.bytes_at(before, n_skipped) for tag in TAGS):
            return 0
        return n_skipped


class AviIndex:
    """The times of packets by the index of an AVI. FFmpeg counts its packets, also after it has passed over some."""

    def __init__(self, stream: av.AudioStream) -> None:
        # Older releases of PyAV, which may be installed, do not give it.
        self._entries = getattr(stream, "index_entries", ())
        self._lost_s = 0.0
        """The time by which packets are later than FFmpeg counts, until now."""

    def lost_s(self, packet: "av.Packet[av.AudioStream]") -> float:
        """By how much more this packet is later than FFmpeg counts than the one before, in seconds."""
        entries = self._entries
        if packet.pos is None or packet.pts is None or not (packet.time_base and packet.duration and packet.size):
            return 0.0
        at = bisect_left(range(len(entries)), packet.pos - CHUNK.size, key=lambda number: entries[number].pos)
        if at == len(entries) or entries[at].pos != packet.pos - CHUNK.size:
            return 0.0
        # Of packets that are all equally long, the index counts the bytes.
        counts_bytes = at > 0 and entries[at].timestamp - entries[at - 1].timestamp == entries[at - 1].size
        n_later = entries[at].timestamp * (packet.duration / packet.size if counts_bytes else 1) - packet.pts
        newly_s = max(float(n_later * packet.time_base) - self._lost_s, 0.0)
        if newly_s < MIN_GAP_S:
            return 0.0
        self._lost_s += newly_s
        return newly_s


class FlacNumbers:
    """The times of packets of FLAC in Ogg by the numbers in them. FFmpeg counts the packets until a page states a time.

    Source of the format: RFC 9639, section 9.1.
    """

    def __init__(self, stream_info: bytes) -> None:
        """Use the first bytes of a stream, which say how many samples a packet has."""
        self._n_samples = int.from_bytes(stream_info[2:4])
        self._number = 0
        """Of the last packet."""
        self._first_at: float | None = None
        """The time of a packet with the number 0 by FFmpeg, as it was at the beginning."""
        self._late_s = 0.0
        """By how much packets are later than FFmpeg counts."""

    def newly_late_s(self, packet: "av.Packet[av.AudioStream]") -> float:
        """By how much more this packet is later than FFmpeg counts than the one before, in seconds; may be negative."""
        number = self._sample_number(bytes(packet)[:11])
        if number is None or packet.pts is None or not packet.time_base:
            return 0.0
        # The time base of a stream of Ogg is a sample.
        at_s = float((packet.pts - number) * packet.time_base)
        has_begun_again, self._number = number < self._number, number
        if self._first_at is None or has_begun_again:
            self._first_at, self._late_s = at_s, 0.0
        # A recorder that pauses does not number its pause.
        self._first_at = max(self._first_at, at_s)
        before_s, self._late_s = self._late_s, self._first_at - at_s
        return self._late_s - before_s

    def _sample_number(self, head: bytes) -> int | None:
        """The number of the first sample of a packet; `None` for bytes that begin none."""
        if len(head) < 5 or head[0] != 0xFF or head[1] & 0xFE != 0xF8:
            return None
        n_more = max(8 - (head[4] ^ 0xFF).bit_length() - 1, 0)
        number = head[4] & (0x7F >> n_more)
        for each in head[5 : 5 + n_more]:
            number = number << 6 | each & 0x3F
        has_fixed_size = head[1] == 0xF8
        return number * self._n_samples if has_fixed_size else number


class _Bytes:
    """Counts the bytes of packets, and those between them that no packet has."""

    def __init__(self) -> None:
        self.duration_all_s = 0.0
        """The length of all that was decoded."""
        self.n_damaged = 0
        """The bytes of packets that could not be decoded."""
        self._n_bytes = 0
        self._n_others = 0
        """The bytes of the packets of other streams."""
        self._n_beside = 0
        """The most bytes before a packet that are of no packet. They grow by a header now and then."""
        self._before = (0, 0)
        """`_n_beside` before the last two packets. A packet of Ogg may end after a damaged page."""

    def add(self, packet: "av.Packet[av.AudioStream]") -> None:
        self._before = (self._before[1], self._n_beside)
        self._count_beside(packet.pos)
        self._n_bytes += packet.size

    def pass_over(self, packet: "av.Packet[av.stream.Stream]") -> None:
        self._count_beside(packet.pos)
        self._n_others += packet.size

    def _count_beside(self, pos: int | None) -> None:
        self._n_beside = max((pos or 0) - self._n_bytes - self._n_others, self._n_beside)

    def duration_s(self, n_bytes: float) -> float:
        """How long the audio in these bytes may last, by what was decoded until now."""
        n_decoded = self._n_bytes - self.n_damaged
        return n_bytes * self.duration_all_s / n_decoded if n_decoded else 0.0

    def were_skipped(self, missing_s: float, until_s: float) -> bool:
        """Whether a gap of `missing_s`, after `until_s` of audio, has bytes in the file but no packets."""
        # Beside a picture there are more headers than a gap in the audio would have bytes.
        n_missing = self._n_others * missing_s / until_s
        n_skipped = self._n_beside - self._before[0]
        return self.duration_s(n_skipped - n_missing * DAMAGED_SHARE) >= missing_s * DAMAGED_SHARE

    def remain(self, n_file_bytes: int, missing_s: float) -> bool:
        """Whether there are bytes after the last packet that may be this much audio."""
        n_left = n_file_bytes - self._n_bytes - self._n_others - self._n_beside
        return missing_s > 0 and self.duration_s(n_left) >= missing_s * DAMAGED_SHARE
