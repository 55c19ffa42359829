"""A server whose fake engine writes sentences, so that it can be told from the text whether a speaker has finished."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.compat.exchange import Server
from tests.fakes import LevelDetector, decode
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.engine import api


def spoken(number: int) -> str:
    """A word for a number. The fake engine's own words look like codes, after which a speaker mostly goes on."""
    return f"col{chr(97 + number // 26)}{chr(97 + number % 26)}"


def decode_sentence(window: api.Window) -> Iterator[api.EngineEvent]:
    """The fake engine's events for a window, with such words, and with a full stop if the window ends in silence."""
    is_loud = np.abs(window.samples) > 0.001
    is_closed = bool(is_loud.any()) and not is_loud[-1]
    found = decode(window)
    n_segments = sum(isinstance(event, api.SegmentEvent) for event in found)
    for at, event in enumerate(found):
        match event:
            case api.SegmentEvent(segment):
                yield replace(event, segment=_sentence(segment, is_closed and at == n_segments))
            case api.DoneEvent():
                segments = [_sentence(each, False) for each in event.segments[:-1]]
                segments += [_sentence(each, is_closed) for each in event.segments[-1:]]
                last = max((at for at, piece in enumerate(event.pieces) if piece.text), default=-1)
                pieces = [replace(piece, text=_translated(piece.text)) for piece in event.pieces]
                if last >= 0 and is_closed:
                    pieces[last] = replace(pieces[last], text=f"{pieces[last].text}.")
                text = "".join(piece.text for piece in pieces)
                yield replace(event, text=text, pieces=tuple(pieces), segments=tuple(segments))
            case _:
                yield event


def _sentence(segment: api.Segment, is_closed: bool) -> api.Segment:
    stop = "." if is_closed else ""
    words = [replace(word, text=_translated(word.text)) for word in segment.words or ()]
    if words:
        words[-1] = replace(words[-1], text=words[-1].text + stop)
    return replace(segment, text=_translated(segment.text) + stop, words=tuple(words) if segment.words else None)


def _translated(text: str) -> str:
    return re.sub(r"w(\d+)", lambda word: spoken(int(word[1])), text)


SENTENCES = Server(SessionConfig(make_detector=LevelDetector, speculates=True), decode_sentence)
