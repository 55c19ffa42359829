"""The audio of a started session on its way in: bytes are decoded, and each channel gets its samples."""

from collections.abc import Sequence

from tutti_server.app.media.pcm import AudioDecoder, AudioFormat, Samples
from tutti_server.app.session.channel import Channel
from tutti_server.app.session.core.options import ChannelOptions
from tutti_server.app.session.core.port import SessionPort
from tutti_server.app.session.messages import events
from tutti_server.app.session.speech.endpointing import UpcomingFrames
from tutti_server.engine.api import SAMPLE_RATE

LAG_SAMPLES = 2 * SAMPLE_RATE
"""A lag of the text of at least this many samples is reported to the client (2 s)."""
LAG_INTERVAL_SAMPLES = SAMPLE_RATE
"""The least audio between two such reports, in samples (1 s)."""


class AudioIntake:
    """Decodes the session's audio and feeds its channels."""

    def __init__(self, audio_format: AudioFormat, channels: Sequence[Channel], port: SessionPort) -> None:
        self.channels = channels
        self.audio_format = audio_format
        self._decoder = AudioDecoder(audio_format, port.send)
        self._port = port
        self._next_lag = 0

    @property
    def bytes_per_s(self) -> int:
        """Bytes that make a second of the client's audio."""
        return self._decoder.bytes_per_s

    @property
    def position(self) -> int:
        """Position after the last frame that the channels have processed."""
        return self.channels[0].position

    def feed(self, data: bytes) -> None:
        """Process bytes of audio, cut anywhere."""
        self._feed_channels(self._decoder.decode(data))

    def decode_ahead(self, data: bytes) -> list[UpcomingFrames]:
        """Decode bytes that the next `feed` or `drain` processes. Returns what the channels' detectors get then."""
        samples = self._decoder.decode(data)
        return [channel.hold(each) for channel, each in zip(self.channels, samples, strict=True)]

    def drain(self) -> None:
        """Process the samples that the resamplers hold back, so that the last sound belongs to the open utterance."""
        self._feed_channels(self._decoder.drain())

    def configure(self, audio_format: AudioFormat, options: ChannelOptions) -> None:
        """The audio after this call may come in another format, with as many channels as before, and other options."""
        if audio_format != self.audio_format:
            self._end_format()
            self.audio_format, self._decoder = audio_format, AudioDecoder(audio_format, self._port.send)
        for channel in self.channels:
            channel.configure(options)

    def finish(self) -> None:
        """End the open utterances, because the session gets no more audio."""
        self._end_format()
        for channel in self.channels:
            channel.finish()

    def _end_format(self) -> None:
        """Process the last audio of the present format; report bytes that do not make a sample of every channel."""
        if self._decoder.n_rest_bytes:
            n_rest = self._decoder.n_rest_bytes
            message = f"audio: expected whole samples of every channel, got {n_rest} bytes more at the end; left out"
            self._port.send(events.Failure("incomplete_sample", message, is_fatal=False))
        self.drain()

    def _feed_channels(self, samples: list[Samples]) -> None:
        for channel, channel_samples in zip(self.channels, samples, strict=True):
            channel.feed(channel_samples)
        self._report_lag()

    def _report_lag(self) -> None:
        lag = max(channel.lag_samples for channel in self.channels)
        if lag >= LAG_SAMPLES and self.position >= self._next_lag:
            self._next_lag = self.position + LAG_INTERVAL_SAMPLES
            self._port.send(events.Lag(round(lag / SAMPLE_RATE, 3)))
