"""Ways to transcribe clips that are compared with one another: tutti with files and live, and its peers.

Each system runs in processes of its own, so that its processor time is known.
"""

import asyncio
import json
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import click
import httpx
import numpy as np

import tutti
from benchmarks.files.endpoint import MAX_ERROR_CHARS, PATH, open_client
from benchmarks.files.labelled_clips import Clip, Pcm, interleaved, to_wav
from benchmarks.live.client import CHUNK_SAMPLES
from benchmarks.peer_servers import file_engine
from benchmarks.server import ADMIT_ALL, RunningServer, running_server
from tutti_server.app.languages import NAMES
from tutti_server.engine.api import SAMPLE_RATE

GRACE_S = 300.0
"""A session that takes this many seconds longer than sending its audio has failed."""
ANSWER_TIMEOUT_S = 600.0
"""Longest time that a request or a peer may take for one channel, in seconds."""
MAX_LINE_BYTES = 2**24
"""The longest answer of a peer, in bytes: asyncio's own limit of 64 KiB is too small for long clips."""
MAX_AHEAD_S = 36_000
"""How far live audio may run ahead of the clock, in seconds: ten hours, so that the server slows no client down."""
CODES = {name: code for code, name in NAMES.items()}
"""Codes of languages by the names that OpenAI's API has for them."""
PROGRAM = Path(file_engine.__file__)
"""The program that runs a peer."""


class Unavailable(Exception):
    """A system cannot run here. The message says what is missing."""


class PeerDied(Exception):
    """A peer's process ended, or did not answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    folder: str
    """The checkpoint folder in the layout of transformers."""
    ct2_folder: Callable[[], str]
    """Returns the folder of the same checkpoint in the layout of CTranslate2, or raises `Unavailable`."""
    scratch: Path
    """A folder for temporary files."""
    is_multilingual: bool = True
    peer_python: str = sys.executable
    """The Python interpreter that runs faster-whisper."""
    n_threads: int = 2
    n_streams: int = 4
    """Live sessions that run at the same time."""
    pace: float = 1.0
    """Speed of live audio, as a multiple of real time."""
    hotwords: tuple[str, ...] = ()
    """The hotwords that tutti receives with every clip."""
    serve_arguments: tuple[str, ...] = ()
    """Further arguments for `tutti serve`."""


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word as a system wrote it, with its times in the clip."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class ChannelResult:
    text: str = ""
    language: str | None = field(default=None, kw_only=True)
    """The code of the language that the system detected; `None` if it was named or is not known."""
    words: tuple[TimedWord, ...] = field(default=(), kw_only=True)
    """Empty if the system was not to write times of words."""


@dataclass(frozen=True, slots=True, eq=False)
class ClipResult:
    clip: Clip
    channels: tuple[ChannelResult, ...]
    """For a clip that failed, the text received until then."""
    n_interims: int = field(default=0, kw_only=True)
    failure: str | None = field(default=None, kw_only=True)
    """Why the transcript is not complete."""


class RunningSystem(Protocol):
    @property
    def pid(self) -> int:
        """Its process, whose family's processor time is measured."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of its packages, where they are not those of this process."""
        ...

    async def transcribe(self, clips: Sequence[Clip]) -> list[ClipResult]:
        """Transcribe clips, in their order. Failures are part of the results."""
        ...


@dataclass(frozen=True, slots=True)
class System:
    """A system as `benchmarks.real_speech` compares it with others."""

    title: str
    open: Callable[[Setup], AbstractAsyncContextManager[RunningSystem]]
    """Starts the system. Raises `Unavailable`, or `ClickException` if it does not start."""
    is_ours: bool
    is_live: bool = field(default=False, kw_only=True)
    has_words: bool = field(default=False, kw_only=True)
    """Whether it writes times of words."""


class FilesOverRest:
    """Uploads clips to tutti, one after the other. Channels go separately, because REST mixes them down."""

    versions: Mapping[str, str] = {}

    def __init__(self, setup: Setup, server: RunningServer, client: httpx.AsyncClient, *, has_words: bool) -> None:
        self.pid = server.pid
        self._setup, self._client, self._has_words = setup, client, has_words

    async def transcribe(self, clips: Sequence[Clip]) -> list[ClipResult]:
        return [await self._transcribe(clip) for clip in clips]

    async def _transcribe(self, clip: Clip) -> ClipResult:
        channels: list[ChannelResult] = []
        failure = None
        for channel in clip.channels:
            try:
                channels.append(await self._upload(channel, clip.named_language))
            except (httpx.HTTPError, ValueError, KeyError) as error:
                failure = f"{type(error).__name__}: {error}"
                channels.append(ChannelResult())
        return ClipResult(clip, tuple(channels), failure=failure)

    async def _upload(self, channel: Pcm, language: str | None) -> ChannelResult:
        fields = {"model": "whisper-1", "response_format": "json"} | ({"language": language} if language else {})
        if self._setup.hotwords:
            fields["hotwords"] = ",".join(self._setup.hotwords)
        if self._has_words:
            fields |= {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
        response = await self._client.post(PATH, data=fields, files={"file": ("clip.wav", to_wav(channel))})
        if not response.is_success:
            raise ValueError(f"HTTP {response.status_code}: {response.text[:MAX_ERROR_CHARS]}")
        body = response.json()
        # `verbose_json` has OpenAI's name of the language, `json` our codes.
        detected = [each["code"] for each in body.get("languages", ())] or [CODES.get(body.get("language", ""))]
        words = tuple(TimedWord(each["word"], each["start"], each["end"]) for each in body.get("words", ()))
        return ChannelResult(body["text"], language=None if language else detected[0], words=words)


class LiveSessions:
    """Streams clips to tutti with the Python client and interims, all of them at once. The finals are joined."""

    versions: Mapping[str, str] = {}

    def __init__(self, setup: Setup, server: RunningServer) -> None:
        self.pid = server.pid
        self._setup, self._url = setup, server.url

    async def transcribe(self, clips: Sequence[Clip]) -> list[ClipResult]:
        return list(await asyncio.gather(*(self._stream(clip) for clip in clips)))

    async def _stream(self, clip: Clip) -> ClipResult:
        finals: list[list[tutti.Utterance]] = [[] for _ in clip.channels]
        n_interims = 0
        failure: str | None = None
        try:
            async with (
                asyncio.timeout(clip.audio_s / self._setup.pace + GRACE_S),
                self._connect(clip) as session,
                aclosing(_paced(clip, self._setup.pace, session)) as audio,
                aclosing(session.stream(audio)) as events,
            ):
                async for event in events:
                    match event:
                        case tutti.Interim():
                            n_interims += 1
                        case tutti.Utterance():
                            finals[event.channel] += [event] if event.text else []
                        case tutti.ErrorEvent():
                            failure = f"{event.code}: {event.message}"
        except (tutti.TuttiError, TimeoutError) as error:
            failure = f"{type(error).__name__}: {error}"
        return ClipResult(clip, tuple(map(_joined, finals)), n_interims=n_interims, failure=failure)

    def _connect(self, clip: Clip) -> AbstractAsyncContextManager[tutti.Session]:
        return tutti.connect(
            self._url,
            sample_rate=SAMPLE_RATE,
            channels=len(clip.channels),
            language=clip.named_language,
            hotwords=self._setup.hotwords,
            proxy=None,
            # A loss is a failure of the run.
            resume_buffer_s=0,
        )


class PeerProcess:
    """A peer in a process of its own, one channel after the other. If the process ends, all later clips have failed."""

    def __init__(self, setup: Setup, process: asyncio.subprocess.Process, versions: Mapping[str, str]) -> None:
        self.pid = process.pid
        self.versions = versions
        self._setup, self._process = setup, process
        self._failure: str | None = None

    async def transcribe(self, clips: Sequence[Clip]) -> list[ClipResult]:
        return [await self._transcribe(clip) for clip in clips]

    async def _transcribe(self, clip: Clip) -> ClipResult:
        channels: list[ChannelResult] = []
        for channel in clip.channels:
            try:
                channels.append(await self._recognise(channel, clip.named_language))
            except PeerDied as error:
                self._failure = str(error)
                channels.append(ChannelResult())
        return ClipResult(clip, tuple(channels), failure=self._failure)

    async def _recognise(self, channel: Pcm, language: str | None) -> ChannelResult:
        if self._failure:
            raise PeerDied(self._failure)
        audio = self._setup.scratch / f"{self.pid}.npy"
        np.save(audio, channel)
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"audio": str(audio), "language": language}).encode() + b"\n")
        answer = await _read_line(self._process)
        words = tuple(TimedWord(*each) for each in answer["words"])
        return ChannelResult(answer["text"], language=None if language else answer["language"], words=words)


@asynccontextmanager
async def open_files(setup: Setup, dtype: str, *, has_words: bool = False) -> AsyncIterator[RunningSystem]:
    """Tutti over REST, with a server of its own."""
    with running_server(_server_arguments(setup, dtype)) as server:
        async with open_client(server.url, n_at_once=1, timeout_s=ANSWER_TIMEOUT_S) as client:
            yield FilesOverRest(setup, server, client, has_words=has_words)


@asynccontextmanager
async def open_live(setup: Setup, dtype: str) -> AsyncIterator[RunningSystem]:
    with running_server(_server_arguments(setup, dtype)) as server:
        yield LiveSessions(setup, server)


@asynccontextmanager
async def open_peer(setup: Setup, engine: str, **options: Any) -> AsyncIterator[RunningSystem]:
    """A peer in a process of its own.

    Raises:
        Unavailable: it did not start. Its output is on the error stream.
    """
    is_ct2 = engine == "faster-whisper"
    chosen = file_engine.Options(
        engine=engine,
        folder=setup.ct2_folder() if is_ct2 else setup.folder,
        threads=setup.n_threads,
        is_multilingual=setup.is_multilingual,
        **options,
    )
    process = await _start(setup.peer_python if is_ct2 else sys.executable, chosen)
    try:
        try:
            versions = (await _read_line(process))["versions"]
        except PeerDied as error:
            raise Unavailable(f"{engine} did not start: {error}") from error
        yield PeerProcess(setup, process, versions)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


_FILES = re.compile(r"tutti-(auto|float32|bfloat16|float16|int8)(-words)?")
_FASTER_WHISPER = re.compile(r"faster-whisper-(float32|int8|int8_float32|bfloat16)-(\d+)(-words)?")
FORMS = "tutti-DTYPE[-words], tutti-live[-DTYPE], faster-whisper-DTYPE-BEAM[-words], transformers"
"""The names of systems, for messages."""
DEFAULT_SYSTEMS = (
    *("tutti-float32", "tutti-int8", "tutti-live"),
    *("faster-whisper-float32-1", "faster-whisper-float32-5", "faster-whisper-int8-1", "faster-whisper-int8-5"),
    *("transformers", "tutti-float32-words", "faster-whisper-float32-1-words"),
)


def parse_system(name: str) -> System:
    """The system of a name, such as `faster-whisper-int8-5`.

    Raises:
        BadParameter: there is no such system.
    """
    if name == "transformers":
        return System("transformers float32", partial(open_peer, engine="transformers"), is_ours=False)
    if name == "tutti-live" or name.startswith("tutti-live-"):
        dtype = name.removeprefix("tutti-live").removeprefix("-") or "auto"
        if _FILES.fullmatch(f"tutti-{dtype}") and not dtype.endswith("-words"):
            return System(f"tutti live {dtype}", partial(open_live, dtype=dtype), is_ours=True, is_live=True)
    elif found := _FILES.fullmatch(name):
        has_words = bool(found[2])
        opened = partial(open_files, dtype=found[1], has_words=has_words)
        return System(f"tutti {found[1]}{_with(has_words)}", opened, is_ours=True, has_words=has_words)
    elif found := _FASTER_WHISPER.fullmatch(name):
        beam, has_words = int(found[2]), bool(found[3])
        opened = partial(open_peer, engine="faster-whisper", compute_type=found[1], beam_size=beam, has_words=has_words)
        title = f"faster-whisper {found[1]} {beam} {'beam' if beam == 1 else 'beams'}{_with(has_words)}"
        return System(title, opened, is_ours=False, has_words=has_words)
    raise click.BadParameter(f"expected {FORMS}, got {name}", param_hint="--systems")


def _with(has_words: bool) -> str:
    return ", words" if has_words else ""


def _server_arguments(setup: Setup, dtype: str) -> list[str]:
    own = ["--model", setup.folder, "--dtype", dtype, "--threads", str(setup.n_threads)]
    # Twice the number: the server frees a session a moment after its client has started the next one.
    own += ["--max-sessions", str(2 * setup.n_streams), "--max-ahead-s", str(MAX_AHEAD_S), *ADMIT_ALL]
    return [*own, *setup.serve_arguments]


def _joined(finals: Sequence[tutti.Utterance]) -> ChannelResult:
    """The text of a channel, and the language of most of its utterances."""
    languages = Counter(each.language for each in finals if each.language)
    language = languages.most_common(1)[0][0] if languages else None
    return ChannelResult(" ".join(each.text for each in finals), language=language)


def _paced(clip: Clip, pace: float, session: tutti.Session) -> AsyncGenerator[bytes, None]:
    format = tutti.AudioFormat("pcm_s16le", SAMPLE_RATE, len(clip.channels))
    return tutti.paced(_chunks(clip), format, tutti.Pace(pace, session.started.limits.max_ahead_s))


async def _chunks(clip: Clip) -> AsyncGenerator[bytes, None]:
    for begin in range(0, len(clip.channels[0]), CHUNK_SAMPLES):
        yield interleaved([channel[begin : begin + CHUNK_SAMPLES] for channel in clip.channels])


async def _start(python: str, options: file_engine.Options) -> asyncio.subprocess.Process:
    n = str(options.threads)
    variables = {"OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n}
    # A thread that spins while it waits takes a core from other programs.
    variables["OMP_WAIT_POLICY"] = "passive"
    try:
        return await asyncio.create_subprocess_exec(
            python,
            str(PROGRAM),
            json.dumps(asdict(options)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            env={**os.environ, **variables, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        )
    except OSError as error:
        raise Unavailable(f"--peer-python {python}: {error.strerror}") from error


async def _read_line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise PeerDied(f"no answer in {ANSWER_TIMEOUT_S:g} s") from None
    if not line:
        raise PeerDied("its process ended; its output is on the error stream")
    return dict(json.loads(line))
