"""A server whose fake engine writes sentences, so that it can be told from the text whether a speaker has finished."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.session.session import SessionConfig
from engine import api
from tests.compat.exchange import Server
from tests.fakes import LevelDetector, decode


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
                stop = "." if is_closed and at == n_segments else ""
                words = [replace(word, text=_translated(word.text)) for word in segment.words or ()]
                if words:
                    words[-1] = replace(words[-1], text=words[-1].text + stop)
                yield replace(
                    event, segment=replace(segment, text=_translated(segment.text) + stop, words=tuple(words))
                )
            case api.DoneEvent():
                last = max((at for at, piece in enumerate(event.pieces) if piece.text), default=-1)
                pieces = [replace(piece, text=_translated(piece.text)) for piece in event.pieces]
                if last >= 0 and is_closed:
                    pieces[last] = replace(pieces[last], text=f"{pieces[last].text}.")
                yield replace(event, text="".join(piece.text for piece in pieces), pieces=tuple(pieces))
            case _:
                yield event


def _translated(text: str) -> str:
    return re.sub(r"w(\d+)", lambda word: spoken(int(word[1])), text)


SENTENCES = Server(SessionConfig(make_detector=LevelDetector, speculates=True), decode_sentence)
