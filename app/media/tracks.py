"""Chooses one of the audio tracks of a file, and names the others."""

from collections.abc import Sequence

import av
from av.stream import Disposition

from tutti_server.app.errors import MediaError
from tutti_server.app.languages import code_of
from tutti_server.app.media.notices import Notice, OnNotice

MAX_NAMED = 10
"""The most tracks that a message names."""


def choose_track(streams: Sequence[av.AudioStream], track: str | None, on_notice: OnNotice) -> av.AudioStream:
    """The track that is wanted.

    Args:
        streams: the audio tracks of a file, at least one.
        track: a number from 0, or a language; `None` for the one that the file marks as its default, else the first.
        on_notice: receives the names of the other tracks, if `track` is `None`.

    Raises:
        MediaError: there is no such track.
    """
    if track is None:
        chosen = next((each for each in streams if each.disposition & Disposition.default), streams[0])
        if len(streams) > 1:
            on_notice(_other_tracks(streams, chosen))
        return chosen
    if track.isascii() and track.isdecimal() and int(track[:9]) < len(streams):
        return streams[int(track[:9])]
    wanted = code_of(track)
    for each in streams:
        if each.language and code_of(each.language) == wanted:
            return each
    raise MediaError(f"track: expected one of {_names(streams)}, got {track[:80]!r}")


def _other_tracks(streams: Sequence[av.AudioStream], chosen: av.AudioStream) -> Notice:
    others = [each for each in streams if each is not chosen]
    got = f"{len(streams)}: {_name(streams, chosen)} is transcribed, and not {_names(streams, others)}"
    return Notice("other_tracks", f"file: expected one audio track, or track to choose one, got {got}")


def _names(streams: Sequence[av.AudioStream], named: Sequence[av.AudioStream] | None = None) -> str:
    names = [_name(streams, each) for each in (streams if named is None else named)]
    return ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")


def language_of(stream: av.AudioStream) -> str | None:
    """The language that the file names for a track, as it writes it; `None` where it names none."""
    return stream.language if stream.language not in (None, "und") else None


def _name(streams: Sequence[av.AudioStream], stream: av.AudioStream) -> str:
    language = language_of(stream)
    return f"{streams.index(stream)}" + (f" ({language})" if language else "")
