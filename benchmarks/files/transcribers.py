"""Ways to have a clip transcribed: through the service's two doors, and by its peers, on the same checkpoint."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

import tutti
from benchmarks.files.endpoint import Endpoint, open_client, side_by_side
from benchmarks.files.labelled_clips import Clip, Pcm, interleaved, to_wav
from benchmarks.peers.file_engines import Task
from engine.api import SAMPLE_RATE

CHUNK_SAMPLES = SAMPLE_RATE // 10
GRACE_S = 300.0
"""A session that takes so much longer than its audio was sent for has failed."""
REQUEST_TIMEOUT_S = 600.0
ANSWER_TIMEOUT_S = 600.0
"""For loading and one clip; a peer that takes longer has failed."""
MAX_LINE_BYTES = 2**24


class PeerDied(Exception):
    """A peer's process ended, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all of them are given."""

    url: str
    """A running tutti; empty if it is not asked."""
    folder: str
    """The checkpoint as transformers has it."""
    ct2_folder: str
    """Converted for CTranslate2; empty if faster-whisper is not asked."""
    scratch: Path
    n_threads: int = 2
    n_sessions: int = 4
    """Live sessions or uploads at the same time."""
    speed: float = 4.0
    """How fast live audio is sent, in times real time."""


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    clip: Clip
    texts: tuple[str, ...]
    """One for each channel; what came until then of a clip that failed."""
    n_interims: int = 0
    failure: str | None = None


Listen = Callable[[Setup, Sequence[Clip], Callable[[Heard], None]], Coroutine[None, None, None]]
"""Transcribe all clips, and hand each one over as soon as it is done, in any order."""


@dataclass(frozen=True, slots=True)
class Listener:
    title: str
    listen: Listen
    needs: str
    """The module without which it is left out."""
    is_service: bool = field(default=False, kw_only=True)
    """Whether it asks the server at `Setup.url`."""


async def listen_by_rest(
    setup: Setup, clips: Sequence[Clip], note: Callable[[Heard], None], *, falls_back: bool = True
) -> None:
    """Uploads; of a clip with several channels each one by itself, as REST mixes them down."""
    fields = {} if falls_back else {"temperature_fallback": "false"}
    async with open_client(setup.url, api_key=None, n_at_once=setup.n_sessions, timeout_s=REQUEST_TIMEOUT_S) as client:
        endpoint = Endpoint(client, "whisper-1", fields)

        async def hear(clip: Clip) -> None:
            answers = [await endpoint.transcribe(to_wav(each), "clip.wav", clip.language) for each in clip.channels]
            failure = next((answer.failure for answer in answers if answer.failure), None)
            note(Heard(clip, tuple(answer.text for answer in answers), failure=failure))

        await side_by_side(clips, setup.n_sessions, hear)


async def listen_live(setup: Setup, clips: Sequence[Clip], note: Callable[[Heard], None]) -> None:
    """Sessions of the Python client with interims, the longest clips first. What is heard is the finals, joined."""

    async def hear(clip: Clip) -> None:
        note(await _live(setup, clip))

    await side_by_side(sorted(clips, key=lambda clip: -clip.audio_s), setup.n_sessions, hear)


async def listen_by_peer(setup: Setup, clips: Sequence[Clip], note: Callable[[Heard], None], *, peer: str) -> None:
    """A process of its own, one channel after the other. A clip that it ends at has failed, and all behind it."""
    audio, described = setup.scratch / f"{peer}.npz", setup.scratch / f"{peer}.json"
    channels: dict[str, Pcm] = {}
    rows: list[tuple[Clip, list[str]]] = []
    for i, clip in enumerate(sorted(clips, key=lambda clip: clip.language)):
        names = [f"{i}.{j}" for j in range(len(clip.channels))]
        channels |= zip(names, clip.channels, strict=True)
        rows.append((clip, names))
    # numpy's stubs take the names of arrays for options.
    np.savez(audio, **channels)  # type: ignore[arg-type]
    asked = tuple((name, clip.language) for clip, names in rows for name in names)
    task = Task(peer, setup.n_threads, setup.folder, setup.ct2_folder, str(audio), asked)
    described.write_text(json.dumps(asdict(task)))
    process = await _start_peer(described, setup.n_threads)
    assert process.stdout
    try:
        failure: str | None = None
        for clip, names in rows:
            texts = [""] * len(names)
            if failure is None:
                try:
                    texts = [await _answer(process.stdout) for _ in names]
                except PeerDied as died:
                    failure = str(died)
            note(Heard(clip, tuple(texts), failure=failure))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        audio.unlink()


LISTENERS = {
    "rest": Listener("tutti REST", listen_by_rest, "httpx", is_service=True),
    "rest-greedy": Listener("tutti REST, greedy", partial(listen_by_rest, falls_back=False), "httpx", is_service=True),
    "live": Listener("tutti live", listen_live, "tutti", is_service=True),
    "transformers-chunked": Listener(
        "transformers chunked", partial(listen_by_peer, peer="transformers-chunked"), "transformers"
    ),
    "transformers-long": Listener(
        "transformers long-form", partial(listen_by_peer, peer="transformers-long"), "transformers"
    ),
    "fw": Listener("faster-whisper", partial(listen_by_peer, peer="fw"), "faster_whisper"),
    "fw-batched": Listener("faster-whisper batched", partial(listen_by_peer, peer="fw-batched"), "faster_whisper"),
}


async def _live(setup: Setup, clip: Clip) -> Heard:
    said: list[list[str]] = [[] for _ in clip.channels]
    n_interims = 0
    failure: str | None = None
    format = tutti.AudioFormat("pcm_s16le", SAMPLE_RATE, len(clip.channels))
    try:
        async with (
            asyncio.timeout(clip.audio_s / setup.speed + GRACE_S),
            tutti.connect(
                setup.url, sample_rate=SAMPLE_RATE, channels=format.channels, language=clip.language, proxy=None
            ) as session,
            aclosing(_chunks(clip)) as chunks,
            aclosing(tutti.paced(chunks, format, tutti.Pace(setup.speed, session.started.limits.max_ahead_s))) as audio,
            aclosing(session.stream(audio)) as events,
        ):
            async for event in events:
                match event:
                    case tutti.Interim():
                        n_interims += 1
                    case tutti.Utterance():
                        said[event.channel] += [event.text] if event.text else []
                    case tutti.ErrorEvent():
                        failure = f"{event.code}: {event.message}"
    except (tutti.TuttiError, TimeoutError) as error:
        failure = f"{type(error).__name__}: {error}"
    return Heard(clip, tuple(" ".join(each) for each in said), n_interims, failure)


async def _chunks(clip: Clip) -> AsyncGenerator[bytes, None]:
    for begin in range(0, len(clip.channels[0]), CHUNK_SAMPLES):
        yield interleaved([channel[begin : begin + CHUNK_SAMPLES] for channel in clip.channels])


async def _start_peer(task: Path, n_threads: int) -> asyncio.subprocess.Process:
    n = str(n_threads)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.peers.file_engines",
        str(task),
        stdout=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
        env={
            **os.environ,
            "OMP_NUM_THREADS": n,
            "MKL_NUM_THREADS": n,
            "OPENBLAS_NUM_THREADS": n,
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
        },
    )


async def _answer(output: asyncio.StreamReader) -> str:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            line = await output.readline()
    except TimeoutError:
        raise PeerDied(f"no answer in {ANSWER_TIMEOUT_S:g} s") from None
    if not line:
        raise PeerDied("its process ended; its output is on the error stream")
    return str(json.loads(line)["text"])
