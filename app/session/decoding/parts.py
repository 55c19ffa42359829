"""The parts of a channel that its hypotheses need."""

from dataclasses import dataclass

from tutti_server.app.media.pcm import SampleBuffer
from tutti_server.app.session.core.options import ChannelOptions
from tutti_server.app.session.core.port import SessionPort
from tutti_server.app.session.decoding.finals import Finals
from tutti_server.app.session.speech.endpointing import Endpointer


@dataclass(slots=True)
class ChannelParts:
    """What interims, speculative finals and turns of a channel share."""

    options: ChannelOptions
    """Those in force; the client may change them."""
    port: SessionPort
    """Where requests and events go."""
    finals: Finals
    """The ended windows of the channel; they are decoded first, and their text is the context."""
    endpointer: Endpointer
    """It knows how far the channel's audio has come, and how far its speech."""
    buffer: SampleBuffer
    """The channel's audio."""
