"""The endpoint benchmark against a made-up endpoint on a loopback port."""

import asyncio
import json
import socket
import sys
import wave
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner, Result
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from benchmarks import asr
from benchmarks.files.audio_files import AudioFile
from benchmarks.files.endpoint import Answer

TEXTS = ("red green blue white", "left and right", "the end of the line", "over and out")
HALF_SECOND = 8000


def stream_of(text: str, said: str | None = None) -> Response:
    """A stream of OpenAI's events: a delta for each word, a comment, and the whole text, or what is `said` to be it."""
    deltas = [{"type": "transcript.text.delta", "delta": f"{word} "} for word in text.split()]
    events = [*deltas, {"type": "transcript.text.done", "text": text if said is None else said}]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return Response(": begun\n\n" + "".join(lines), media_type="text/event-stream")


class FakeEndpoint:
    """Answers with what is said in the file, unless told otherwise."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.answers: dict[str, Callable[[], Response]] = {}
        self.streams: dict[str, Response] = {}
        self.forms: list[dict[str, str]] = []
        self.keys: list[str | None] = []
        self.n_open = self.most_open = 0
        self.names: list[str] = []
        """In the order in which they were answered."""
        self.is_reversed = False
        """Whether a recording is answered only after the one behind it."""
        self.answered = [asyncio.Event() for _ in range(len(texts) + 1)]
        self.answered[-1].set()
        self.url = ""

    async def transcribe(self, request: Request) -> Response:
        async with request.form() as form:
            file = form["file"]
            assert isinstance(file, UploadFile)
            name = file.filename or ""
            self.forms.append({key: str(value) for key, value in form.items() if key != "file"})
            if form.get("stream") == "true":
                return self.streams.get(name) or stream_of(self.texts[name])
        self.keys.append(request.headers.get("authorization"))
        self.n_open += 1
        self.most_open = max(self.most_open, self.n_open)
        # The first request is the one that goes before.
        if self.is_reversed and len(self.forms) > 1:
            index = list(self.texts).index(name)
            await self.answered[index + 1].wait()
            self.answered[index].set()
        self.n_open -= 1
        self.names.append(name)
        return self.answers[name]() if name in self.answers else JSONResponse({"text": self.texts[name]})


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    fake = FakeEndpoint({f"{i}.wav": text for i, text in enumerate(TEXTS)})
    app = Starlette(routes=[Route("/v1/audio/transcriptions", fake.transcribe, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fake.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        # The socket listens already: whoever connects is served once the server runs.
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield fake
        server.should_exit = True
        thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Half a second of audio for each text, one file in which nobody speaks, and one that nobody has written down."""
    lines: list[dict[str, str | None]] = [
        {"file": f"{i}.wav", "text": text, "kind": "long" if len(text.split()) > 3 else "short"}
        for i, text in enumerate(TEXTS)
    ]
    lines += [{"file": "noise.wav", "text": "", "kind": "long"}, {"file": "other.wav", "text": None, "kind": "long"}]
    for line in lines:
        with wave.open(str(tmp_path / str(line["file"])), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(bytes(2 * HALF_SECOND))
    path = tmp_path / "manifest.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def run(*arguments: str, path: Path) -> tuple[Result, dict[str, Any]]:
    ran = CliRunner().invoke(asr.main, ["--concurrency", "1", "--json", str(path), *arguments])
    return ran, json.loads(path.read_text()) if path.exists() else {}


def test_every_recording_is_asked_for_once(endpoint: FakeEndpoint, manifest: Path, tmp_path: Path) -> None:
    """At each concurrency, after one request that is not measured; files without speech are left out."""
    arguments = ("--url", endpoint.url, "--manifest", str(manifest), "--concurrency", "1,2", "--api-key", "secret")
    ran, result = run(*arguments, "--field", "temperature=0", path=tmp_path / "a.json")
    assert ran.exit_code == 0, ran.output
    assert len(endpoint.forms) == 2 * (1 + len(TEXTS))
    assert endpoint.forms[0] == {
        "model": "whisper-1",
        "response_format": "json",
        "temperature": "0",
        "language": "en",
    }
    assert set(endpoint.keys) == {"Bearer secret"}
    assert endpoint.most_open <= 2
    for level, n in zip(result["levels"], (1, 2), strict=True):
        assert (level["concurrency"], level["answered"], level["failed"], level["wer"]) == (n, 4, 0, 0.0)
        assert level["latency_s"]["p95"] >= level["latency_s"]["median"] > 0
        assert level["audio_s_per_s"] == pytest.approx(2.0 / level["wall_s"])
        assert level["requests_per_s"] == pytest.approx(4 / level["wall_s"])
    assert "expected: red green blue white" in ran.output


def test_streamed_texts_are_those_of_whole_answers(endpoint: FakeEndpoint, manifest: Path, tmp_path: Path) -> None:
    arguments = ("--url", endpoint.url, "--manifest", str(manifest), "--stream")
    ran, result = run(*arguments, path=tmp_path / "a.json")
    assert ran.exit_code == 0, ran.output
    assert [form.get("stream") for form in endpoint.forms] == 5 * [None] + 5 * ["true"]
    (level,) = result["levels"]
    streamed = level["streamed"]
    assert (streamed["answered"], streamed["failures"], streamed["differences"]) == (4, [], [])
    assert 0 < streamed["first_delta_s"]["median"] <= streamed["latency_s"]["median"]
    assert "The same recordings streamed" in ran.output


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (
            lambda: stream_of("left or right"),
            "1.wav: expected 'left and right' as without a stream, got 'left or right'",
        ),
        (lambda: stream_of("left", "left and right"), "expected deltas that make up 'left and right', got 'left '"),
        (lambda: Response("data: {}\n\n"), "expected a transcript.text.done at the end of the stream, got none"),
        (lambda: Response("data: [1]\n\n"), "expected events with a JSON object, got '[1]'"),
        (lambda: Response('data: {"error": {"code": "engine_failed"}}\n\n'), "engine_failed"),
        (lambda: JSONResponse({"error": "no room"}, 503), "HTTP 503"),
    ],
)
def test_other_streamed_texts_fail_it(
    stream: Callable[[], Response], expected: str, endpoint: FakeEndpoint, manifest: Path, tmp_path: Path
) -> None:
    endpoint.streams["1.wav"] = stream()
    ran, _ = run("--url", endpoint.url, "--manifest", str(manifest), "--stream", path=tmp_path / "a.json")
    assert ran.exit_code == 1
    assert expected in ran.output


def test_the_key_is_not_kept(
    endpoint: FakeEndpoint, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the JSON nor in the line under the table, which names the command."""
    arguments = ["--url", endpoint.url, "--manifest", str(manifest), "--api-key", "secret"]
    monkeypatch.setattr(sys, "argv", ["asr", *arguments])
    ran, result = run(*arguments, path=tmp_path / "a.json")
    assert "--api-key KEY" in result["command"]
    assert "secret" not in ran.output + (tmp_path / "a.json").read_text() + (tmp_path / "a.md").read_text()


def test_answers_out_of_order_are_scored_with_their_own_recordings(
    endpoint: FakeEndpoint, manifest: Path, tmp_path: Path
) -> None:
    """All four are under way before the last one is answered, first."""
    endpoint.is_reversed = True
    endpoint.texts["1.wav"] = "left or right"
    ran, result = run(
        "--url", endpoint.url, "--manifest", str(manifest), "--concurrency", "4", path=tmp_path / "a.json"
    )
    assert ran.exit_code == 0, ran.output
    (level,) = result["levels"]
    assert endpoint.names == ["0.wav", "3.wav", "2.wav", "1.wav", "0.wav"]
    assert [each["text"] for each in level["texts"]] == [TEXTS[0], "left or right", *TEXTS[2:]]
    assert level["words"] == {"substituted": 1, "missing": 0, "inserted": 0, "words": 15}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda: JSONResponse({"error": {"message": "no room"}}, 503), 'HTTP 503: {"error":{"message":"no room"}}'),
        (lambda: PlainTextResponse("hello"), "expected JSON with a text, got 'hello'"),
        (lambda: JSONResponse({"text": None}), "expected JSON with a text, got '{\"text\":null}'"),
        (lambda: JSONResponse(["text"]), "expected JSON with a text, got '[\"text\"]'"),
    ],
)
def test_a_request_that_fails_is_counted_and_shown(
    answer: Callable[[], Response], expected: str, endpoint: FakeEndpoint, manifest: Path, tmp_path: Path
) -> None:
    """The others are measured; the benchmark fails."""
    endpoint.answers["1.wav"] = answer
    ran, result = run("--url", endpoint.url, "--manifest", str(manifest), path=tmp_path / "a.json")
    assert ran.exit_code == 1
    (level,) = result["levels"]
    assert (level["answered"], level["failed"], level["wer"]) == (3, 1, 0.0)
    assert level["failures"] == {expected: 1}
    assert f"1 at a time: 1 failed: {expected}" in ran.output
    assert len(endpoint.forms) == 1 + len(TEXTS)


def test_an_endpoint_that_is_not_there_fails_every_request(manifest: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ran, result = run("--url", f"http://127.0.0.1:{port}", "--manifest", str(manifest), path=tmp_path / "a.json")
    assert ran.exit_code == 1
    assert (result["levels"][0]["answered"], result["levels"][0]["wer"]) == (0, None)
    assert "ConnectError" in ran.output
    assert "all 4" in ran.output


def test_kinds_limit_and_length_choose_the_recordings(endpoint: FakeEndpoint, manifest: Path, tmp_path: Path) -> None:
    arguments = ("--url", endpoint.url, "--manifest", str(manifest))
    _, result = run(*arguments, "--kinds", "long", "--limit", "2", path=tmp_path / "a.json")
    assert [each["name"] for each in result["levels"][0]["texts"]] == ["0.wav", "2.wav"]
    ran, _ = run(*arguments, "--max-seconds", "0.5", path=tmp_path / "b.json")
    assert "none that is short enough" in ran.output
    ran, _ = run(*arguments, "--kinds", "lost", path=tmp_path / "b.json")
    assert "kinds in the manifest: long, short; got lost" in ran.output


def answers(latencies_s: Sequence[float], text: str = "one two", n_tokens: int | None = None) -> list[Answer]:
    return [Answer(text, latency_s, n_tokens) for latency_s in latencies_s]


def sample(text: str = "one two") -> AudioFile:
    return AudioFile("a.wav", b"", text, 3.0)


def test_figures_are_exact() -> None:
    """Median and p95 of 1 to 20 seconds; what failed is in none of the figures."""
    heard = [*answers([float(each) for each in range(1, 21)]), Answer("", 600.0, failure="HTTP 500: ")]
    level = asr.level_result(8, 10.0, [sample()] * 21, heard, "en", None)
    assert level["latency_s"] == {"mean": 10.5, "median": 10.5, "p95": 19.0, "max": 20.0}
    assert (level["requests_per_s"], level["audio_s_per_s"], level["output_per_s"]) == (2.0, 6.0, 4.0)
    assert (level["answered"], level["failed"], level["output_unit"]) == (20, 1, "words")


def test_word_errors_are_of_the_corpus() -> None:
    """Errors and words are added up first: 1 of 8, not the mean of 50 % and 0 %."""
    heard = [*answers([1.0], "red"), *answers([1.0], "a b c d e f")]
    level = asr.level_result(1, 1.0, [sample("red green"), sample("A B, C D, E F.")], heard, "en", None)
    assert level["wer"] == 1 / 8


def test_spellings_of_the_tokenizer_are_no_errors() -> None:
    tokenizer = asr.Tokenizer(len, {"colour": "color"})
    rates = [
        asr.level_result(1, 1.0, [sample("the colour")], answers([1.0], "the color"), "en", each)["wer"]
        for each in (None, tokenizer)
    ]
    assert rates == [0.5, 0.0]


def test_other_languages_lose_only_case_and_punctuation() -> None:
    """An English normaliser would make numbers of words."""
    level = asr.level_result(1, 1.0, [sample("Am One-Tag!")], answers([1.0], "am one tag"), "de", None)
    assert level["wer"] == 0.0


@pytest.mark.parametrize(
    ("counts", "tokenizer", "expected"),
    [
        ((5, 7), None, ("tokens", 12)),
        ((5, None), None, ("words", 4)),
        ((None, None), None, ("words", 4)),
        ((5, 7), asr.Tokenizer(len, {}), ("tokens", 14)),
    ],
)
def test_output_is_counted_by_whoever_knows(
    counts: tuple[int | None, ...], tokenizer: asr.Tokenizer | None, expected: tuple[str, int]
) -> None:
    """The tokenizer if one is named, else the endpoint if it tells for every answer, else words."""
    heard = [Answer("one two", 1.0, count) for count in counts]
    assert asr.count_output(heard, tokenizer) == expected


def test_tokens_are_read_from_usage(endpoint: FakeEndpoint, manifest: Path, tmp_path: Path) -> None:
    for i, text in enumerate(TEXTS):
        body = {"text": text, "usage": {"type": "tokens", "output_tokens": 10}}
        endpoint.answers[f"{i}.wav"] = partial(JSONResponse, body)
    ran, result = run("--url", endpoint.url, "--manifest", str(manifest), path=tmp_path / "a.json")
    (level,) = result["levels"]
    assert level["output_unit"] == "tokens"
    assert level["output_per_s"] == pytest.approx(40 / level["wall_s"])
    assert "tokens" in ran.output


class FakeDataset:
    """As much of a `datasets.Dataset` as is used."""

    column_names = ("audio", "sentence")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cast_column(self, column: str, feature: object) -> list[dict[str, Any]]:
        assert (column, feature) == ("audio", "undecoded")
        first = (self.folder / "0.wav").read_bytes()
        return [
            {"audio": {"bytes": first, "path": "0.wav"}, "sentence": TEXTS[0]},
            {"audio": {"bytes": None, "path": str(self.folder / "1.wav")}, "sentence": TEXTS[1]},
            {"audio": {"bytes": first, "path": None}, "sentence": " "},
        ]


def test_a_data_set_is_sent_as_it_is(
    endpoint: FakeEndpoint, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are not decoded and written again; a column that is not there is told."""
    asked: list[tuple[str, str | None, str]] = []

    def load_dataset(name: str, config: str | None, *, split: str) -> FakeDataset:
        asked.append((name, config, split))
        return FakeDataset(manifest.parent)

    fake = SimpleNamespace(load_dataset=load_dataset, Audio=lambda decode: "decoded" if decode else "undecoded")
    monkeypatch.setitem(sys.modules, "datasets", fake)
    arguments = ("--url", endpoint.url, "--dataset", "some/speech", "--split", "dev")
    ran, result = run(*arguments, "--text-column", "sentence", path=tmp_path / "a.json")
    assert ran.exit_code == 0, ran.output
    assert asked == [("some/speech", None, "dev")]
    assert [each["name"] for each in result["levels"][0]["texts"]] == ["0.wav", "1.wav"]
    assert result["levels"][0]["wer"] == 0.0
    ran, _ = run(*arguments, path=tmp_path / "b.json")
    assert "columns of some/speech: audio, sentence; got text" in ran.output


def test_a_data_set_without_its_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    ran, _ = run("--url", "http://nowhere", "--dataset", "some/speech", path=tmp_path / "a.json")
    assert ran.exit_code == 1
    assert "pip install datasets" in ran.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "expected one of --manifest and --dataset"),
        (("--manifest", "a", "--dataset", "b"), "expected one of --manifest and --dataset"),
        (("--manifest", "nowhere.jsonl"), "expected a manifest at nowhere.jsonl"),
        (("--manifest", "a", "--field", "temperature"), "expected NAME=VALUE"),
        (("--manifest", "a", "--concurrency", "0"), "expected numbers such as 1,2,4"),
    ],
)
def test_what_makes_no_sense_is_told(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    ran, _ = run("--url", "http://nowhere", *arguments, path=tmp_path / "a.json")
    assert ran.exit_code != 0
    assert expected in ran.output
