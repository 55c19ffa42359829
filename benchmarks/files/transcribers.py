"""Ways to transcribe clips: with the service over REST, with the service live, and with its peers."""

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
"""Samples in a chunk of a live session: 100 ms."""
GRACE_S = 300.0
"""A session that takes this many seconds longer than sending its audio has failed."""
REQUEST_TIMEOUT_S = 600.0
"""Timeout of a REST request, in seconds."""
ANSWER_TIMEOUT_S = 600.0
"""Longest time that a peer may take for loading and one clip, in seconds."""
MAX_LINE_BYTES = 2**24
"""The longest answer of a peer, in bytes: asyncio's own limit of 64 KiB is too small for long clips."""


class PeerDied(Exception):
    """A peer's process ended, or did not answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What every transcriber receives."""

    url: str
    """A running tutti server. Empty if no transcriber uses it."""
    folder: str
    """The checkpoint folder in the layout of transformers."""
    ct2_folder: str
    """The same checkpoint, converted for CTranslate2. Empty if faster-whisper does not run."""
    scratch: Path
    """A folder for temporary files."""
    n_threads: int = 2
    n_sessions: int = 4
    """Concurrent live sessions or uploads."""
    speed: float = 4.0
    """Speed of live audio, as a multiple of real time."""


@dataclass(frozen=True, slots=True, eq=False)
class ClipResult:
    """The transcript of a clip."""

    clip: Clip
    texts: tuple[str, ...]
    """One text for each channel. For a clip that failed, the text received until then."""
    n_interims: int = 0
    failure: str | None = None
    """Why the transcript is not complete."""


TranscribeClips = Callable[[Setup, Sequence[Clip], Callable[[ClipResult], None]], Coroutine[None, None, None]]
"""Transcribes all clips and passes each result to the callback as soon as it is ready, in any order."""


@dataclass(frozen=True, slots=True)
class ClipTranscriber:
    """A way to transcribe clips, as `benchmarks.accuracy` compares it with others."""

    title: str
    transcribe: TranscribeClips
    needs: str
    """The Python module without which it is left out."""
    is_service: bool = field(default=False, kw_only=True)
    """Whether it uses the server at `Setup.url`."""


async def transcribe_over_rest(
    setup: Setup, clips: Sequence[Clip], on_result: Callable[[ClipResult], None], *, falls_back: bool = True
) -> None:
    """Upload clips to tutti. The channels of a clip are uploaded separately, because REST mixes channels down.

    Args:
        setup: the server and the number of concurrent uploads.
        clips: the clips to transcribe.
        on_result: receives each result.
        falls_back: whether temperature fallback is on. Without it decoding is greedy.
    """
    fields = {} if falls_back else {"temperature_fallback": "false"}
    async with open_client(setup.url, api_key=None, n_at_once=setup.n_sessions, timeout_s=REQUEST_TIMEOUT_S) as client:
        endpoint = Endpoint(client, "whisper-1", fields)

        async def upload(clip: Clip) -> None:
            answers = [await endpoint.transcribe(to_wav(each), "clip.wav", clip.language) for each in clip.channels]
            failure = next((answer.failure for answer in answers if answer.failure), None)
            on_result(ClipResult(clip, tuple(answer.text for answer in answers), failure=failure))

        await side_by_side(clips, setup.n_sessions, upload)


async def transcribe_live(setup: Setup, clips: Sequence[Clip], on_result: Callable[[ClipResult], None]) -> None:
    """Stream clips to tutti with the Python client and interims, the longest clips first. The finals are joined."""

    async def stream(clip: Clip) -> None:
        on_result(await _stream(setup, clip))

    await side_by_side(sorted(clips, key=lambda clip: -clip.audio_s), setup.n_sessions, stream)


async def transcribe_with_peer(
    setup: Setup, clips: Sequence[Clip], on_result: Callable[[ClipResult], None], *, peer: str
) -> None:
    """Transcribe clips with a peer in its own process, one channel after the other.

    If the process ends early, the clip that it was working on and all clips after it have failed.
    """
    audio, task_file = setup.scratch / f"{peer}.npz", setup.scratch / f"{peer}.json"
    channels: dict[str, Pcm] = {}
    rows: list[tuple[Clip, list[str]]] = []
    for i, clip in enumerate(sorted(clips, key=lambda clip: clip.language)):
        names = [f"{i}.{j}" for j in range(len(clip.channels))]
        channels |= zip(names, clip.channels, strict=True)
        rows.append((clip, names))
    np.savez(audio, **channels)  # type: ignore[arg-type]  # numpy's stubs take the names of arrays for options
    listed = tuple((name, clip.language) for clip, names in rows for name in names)
    task = Task(
        peer=peer,
        n_threads=setup.n_threads,
        folder=setup.folder,
        ct2_folder=setup.ct2_folder,
        audio=str(audio),
        clips=listed,
    )
    task_file.write_text(json.dumps(asdict(task)))
    process = await _start_peer(task_file, setup.n_threads)
    assert process.stdout
    try:
        failure: str | None = None
        for clip, names in rows:
            texts = [""] * len(names)
            if failure is None:
                try:
                    texts = [await _receive_text(process.stdout) for _ in names]
                except PeerDied as error:
                    failure = str(error)
            on_result(ClipResult(clip, tuple(texts), failure=failure))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        audio.unlink()


TRANSCRIBERS = {
    "rest": ClipTranscriber("tutti REST", transcribe_over_rest, "httpx", is_service=True),
    "rest-greedy": ClipTranscriber(
        "tutti REST, greedy", partial(transcribe_over_rest, falls_back=False), "httpx", is_service=True
    ),
    "live": ClipTranscriber("tutti live", transcribe_live, "tutti", is_service=True),
    "transformers-chunked": ClipTranscriber(
        "transformers chunked", partial(transcribe_with_peer, peer="transformers-chunked"), "transformers"
    ),
    "transformers-long": ClipTranscriber(
        "transformers long-form", partial(transcribe_with_peer, peer="transformers-long"), "transformers"
    ),
    "fw": ClipTranscriber("faster-whisper", partial(transcribe_with_peer, peer="fw"), "faster_whisper"),
    "fw-batched": ClipTranscriber(
        "faster-whisper batched", partial(transcribe_with_peer, peer="fw-batched"), "faster_whisper"
    ),
}


async def _stream(setup: Setup, clip: Clip) -> ClipResult:
    texts: list[list[str]] = [[] for _ in clip.channels]
    n_interims = 0
    failure: str | None = None
    format = tutti.AudioFormat("pcm_s16le", SAMPLE_RATE, len(clip.channels))
    try:
        async with (
            asyncio.timeout(clip.audio_s / setup.speed + GRACE_S),
            tutti.connect(
                setup.url,
                sample_rate=SAMPLE_RATE,
                channels=format.channels,
                language=clip.language,
                # With a fixed silence the same audio ends in the same places, however late the engine answers.
                endpointing="vad",
                proxy=None,
                # A loss is a failure of the run.
                resume_buffer_s=0,
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
                        texts[event.channel] += [event.text] if event.text else []
                    case tutti.ErrorEvent():
                        failure = f"{event.code}: {event.message}"
    except (tutti.TuttiError, TimeoutError) as error:
        failure = f"{type(error).__name__}: {error}"
    return ClipResult(clip, tuple(" ".join(each) for each in texts), n_interims, failure)


async def _chunks(clip: Clip) -> AsyncGenerator[bytes, None]:
    for begin in range(0, len(clip.channels[0]), CHUNK_SAMPLES):
        yield interleaved([channel[begin : begin + CHUNK_SAMPLES] for channel in clip.channels])


async def _start_peer(task_file: Path, n_threads: int) -> asyncio.subprocess.Process:
    n = str(n_threads)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.peers.file_engines",
        str(task_file),
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


async def _receive_text(output: asyncio.StreamReader) -> str:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            line = await output.readline()
    except TimeoutError:
        raise PeerDied(f"no answer in {ANSWER_TIMEOUT_S:g} s") from None
    if not line:
        raise PeerDied("its process ended; its output is on the error stream")
    return str(json.loads(line)["text"])
