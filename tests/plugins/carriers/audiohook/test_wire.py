"""AudioHook's messages: opening, numbering, pauses, transcripts and the close."""

import json
from typing import Any

import pytest

from tests.app.dialects.call_streams.sinks import FakeSink
from tests.app.dialects.made_events import interim
from tests.call_start import call_start
from tests.compat.conformance import refused, supported
from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.errors import BadMessage, BadStart, SessionError
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.plugins.carriers.audiohook.timeline import Timeline, write_duration
from tutti_server.plugins.carriers.audiohook.wire import PAUSE_ID, AudioHook, Client, choose_media

SESSION = "e160e428-53e2-487c-977d-96989bf5c99d"
ORGANIZATION = "d7934305-0972-4844-938e-9060eef73d05"
CONVERSATION = "090eaa2f-72fa-480a-83e0-8667ff89c0ec"
STARTED = events.Started("s_1", "m", events.Limits())


def media(*channels: str, format_: str = "PCMU") -> dict[str, Any]:
    return {"type": "audio", "format": format_, "channels": list(channels), "rate": 8000}


OPEN = {
    "organizationId": ORGANIZATION,
    "conversationId": CONVERSATION,
    "participant": {"id": "1", "ani": "+1-555-555-1234", "aniName": "John Doe", "dnis": "+1-800-555-6789"},
    "media": [media("external", "internal"), media("external"), media("internal")],
    "language": "en-US",
}


class Sender:
    """Numbers a client's messages."""

    def __init__(self, dialect: AudioHook) -> None:
        self.dialect = dialect
        self.seq = 0

    def __call__(self, kind: str, parameters: dict[str, Any] | None = None, **fields: Any) -> tuple[Any, ...]:
        self.seq += 1
        frame = {"version": "2", "id": SESSION, "type": kind, "seq": self.seq, "serverseq": 0, "position": "PT0S"}
        return tuple(
            self.dialect.read(json.dumps({**frame, "parameters": {} if parameters is None else parameters, **fields}))
        )


def languages_of(model: str | None) -> tuple[str, ...]:
    """The languages of the first model, and of another one."""
    return ("fr",) if model else ("en", "de")


def hook(sink: FakeSink | None = None, **parameters: str) -> Sender:
    client = Client(parameters=parameters, organization=ORGANIZATION, session=SESSION, languages_of=languages_of)
    return Sender(AudioHook(sink or FakeSink(), client))


def opened(sink: FakeSink | None = None, **parameters: str) -> Sender:
    send = hook(sink, **parameters)
    send("open", OPEN)
    return send


def hear(send: Sender, seconds: float) -> None:
    """Send as much audio of both channels."""
    send.dialect.read(b"\xff\xff" * round(8000 * seconds))


def place(send: Sender, start_s: float, end_s: float) -> tuple[str, str]:
    """The offset and the duration of a transcript."""
    event = interim("Hi", " you", start_s, end_s, channel=1)
    data = written(send, event)[0]["parameters"]["entities"][0]["data"]
    return data["offset"], data["duration"]


def written(send: Sender, event: events.Event) -> list[dict[str, Any]]:
    return [json.loads(text) for text in send.dialect.write(event)]


def made(item: Any) -> dict[str, Any]:
    """The message of an answer that is written when it is sent."""
    (text,) = item.make()
    message: dict[str, Any] = json.loads(text)
    return message


@supported("audiohook", "open, opened")
@supported("audiohook", "media PCMU, channels external and internal")
@supported("audiohook", "participant, conversationId")
def test_a_conversation_opens_with_both_channels() -> None:
    sink = FakeSink()
    send = hook(sink, agent="Ann")
    assert send("open", OPEN) == (call_start(audio=AudioFormat("mulaw", 8000, 2), language="en-US"),)
    people = {"ani": "+1-555-555-1234", "aniName": "John Doe", "dnis": "+1-800-555-6789"}
    assert sink.calls == [Call(CONVERSATION, SESSION, ("external", "internal"), {**people, "agent": "Ann"})]
    assert written(send, STARTED) == [
        {
            "version": "2",
            "type": "opened",
            "seq": 1,
            "clientseq": 1,
            "id": SESSION,
            "parameters": {"media": [OPEN["media"][0]], "startPaused": False},  # type: ignore[index]
        }
    ]
    assert tuple(send.dialect.read(b"\xff\xff")) == (commands.Audio(b"\xff\xff"),)


@supported("audiohook", "supportedLanguages")
def test_the_languages_of_the_model_are_listed() -> None:
    send = hook()
    send("open", {**OPEN, "supportedLanguages": True})
    assert written(send, STARTED)[0]["parameters"]["supportedLanguages"] == ["en", "de"]


@supported("audiohook", "customConfig")
def test_the_configuration_of_the_integration_has_options_and_the_address_wins() -> None:
    """An empty text takes none away: a template of either gives one where it has no value."""
    config = {"silence_ms": "300", "words": "true", "language": "", "ani": ""}
    sink = FakeSink()
    (start,) = hook(sink, silence_ms="700", language=" ", words="")("open", {**OPEN, "customConfig": config})
    assert (start.endpointing.silence_ms, start.words, start.language) == (700, True, "en-US")
    assert sink.calls[0].parameters["ani"] == "+1-555-555-1234"


@supported("audiohook", "close, closed")
@supported("audiohook", "ping, pong")
def test_each_answer_names_the_message_that_it_answers() -> None:
    send = opened()
    assert written(send, STARTED)[0]["seq"] == 1
    (first,), (second,) = send("ping", {}), send("ping", {"rtt": "PT0.02S"})
    assert [(each["type"], each["seq"], each["clientseq"]) for each in (made(first), made(second))] == [
        ("pong", 2, 2),
        ("pong", 3, 3),
    ]
    assert send("close", {"reason": "end"}) == (commands.Stop(),)
    send("ping", {})
    (closed,) = written(send, events.Stopped(1.0, 0.5, 3))
    assert (closed["type"], closed["seq"], closed["clientseq"], closed["parameters"]) == ("closed", 4, 4, {})


@supported("audiohook", "disconnect")
def test_a_fatal_error_is_a_disconnect() -> None:
    send = hook()
    failure = events.Failure("bad_start", "media: expected", is_fatal=True)
    (message,) = written(send, failure)
    assert (message["type"], message["parameters"]) == ("disconnect", {"reason": "error", "info": "media: expected"})
    assert written(opened(), events.Failure("bad_message", "x", is_fatal=False)) == []


@supported("audiohook", "paused, resumed, discarded")
def test_text_does_not_go_on_over_a_pause_and_times_are_those_of_the_stream() -> None:
    send = opened(interim="true")
    hear(send, 4.0)
    assert send("paused") == (commands.Flush(PAUSE_ID),)
    assert send("resumed", {"start": "PT4S", "discarded": "PT30.5S"}) == ()
    assert place(send, 3.0, 5.0) == ("PT3S", "PT32.5S")


def test_text_that_ends_where_audio_was_left_out_ends_before_the_gap() -> None:
    """Also where the gap is known before the text. Text that begins there begins after the gap."""
    send = opened(interim="true")
    hear(send, 2.0)
    send("paused")
    send("discarded", {"start": "PT2S", "discarded": "PT50S"})
    send("resumed", {"start": "PT52S", "discarded": "PT10S"})
    assert place(send, 1.0, 2.0) == ("PT1S", "PT1S")
    assert place(send, 2.0, 3.0) == ("PT62S", "PT1S")
    assert place(send, 2.0, 2.0) == ("PT62S", "PT0S")


@supported("audiohook", "event: transcript")
def test_interims_are_transcripts_only_where_asked_for() -> None:
    """Genesys limits the rate of messages to it."""
    event = interim("Hi", " you")
    assert written(opened(), event) == []
    (message,) = written(opened(interim="true"), event)
    (entity,) = message["parameters"]["entities"]
    assert entity["type"] == "transcript"
    assert (entity["data"]["channel"], entity["data"]["isFinal"]) == ("external", False)
    assert entity["data"]["alternatives"][0]["interpretations"] == [{"type": "display", "transcript": "Hi you"}]
    assert written(opened(interim="true", transcripts="false"), event) == []


@supported("audiohook", "update, updated")
def test_the_language_can_change() -> None:
    change, answer = opened()("update", {"language": "de-DE"})
    assert isinstance(change, commands.Configure)
    assert change.language == "de-DE"
    assert made(answer)["type"] == "updated"


def test_a_language_that_the_model_does_not_know_is_refused() -> None:
    """The language stays, so there is no `updated`."""
    with pytest.raises(BadMessage, match=r"expected one of the model's languages \(en, de\) as language, got 'xx-YY'"):
        opened()("update", {"language": "xx-YY"})
    send = hook(model="other")
    send("open", {**OPEN, "language": "fr"})
    with pytest.raises(BadMessage, match=r"\(fr\)"):
        send("update", {"language": "de-DE"})
    change, _ = send("update", {"language": "fr-CA"})
    assert change.language == "fr-CA"


@supported("audiohook", "error")
def test_an_error_of_the_client_is_a_warning() -> None:
    assert opened()("error", {"code": 429, "message": "too many"}) == (
        events.Notice("carrier_error", "Genesys says: too many"),
    )


@supported("audiohook", "seq, serverseq, id")
@pytest.mark.parametrize(
    "fields",
    [
        *({"seq": each} for each in (0, 1, 3, True, None)),
        *({"serverseq": each} for each in (-1, 1, None)),
        *({"id": each} for each in ("other", None)),
        *({"version": "1"}, {"parameters": []}, {"type": 1}),
    ],
)
def test_a_message_out_of_order_is_fatal(fields: dict[str, Any]) -> None:
    with pytest.raises(SessionError) as error:
        opened()("ping", **{"parameters": {}, **fields})
    assert error.value.is_fatal


@refused("audiohook", "media L16", how="where nothing else is offered: disconnect, with the format that is decoded")
def test_media_that_is_not_decoded_is_refused() -> None:
    for offered in ([media("external", format_="L16")], [], None, [media()], [media("external", "external")], ["x"]):
        with pytest.raises(BadStart, match="media: expected audio in PCMU at 8000 Hz"):
            choose_media(offered)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"organizationId": "other"}, "organizationId: expected that of the header"),
        ({"conversationId": 1}, "conversationId: expected"),
        (
            {"customConfig": {"a": 1, "b": None, "token": "k"}},
            "customConfig: expected an object with values of text, got 'other values of a, b'$",
        ),
        ({"customConfig": "k"}, "customConfig: expected an object with values of text, got 'str'$"),
        ({"customConfig": {"transcripts": "x"}}, "transcripts: expected true or false"),
    ],
)
def test_a_bad_opening_is_fatal(changed: dict[str, Any], expected: str) -> None:
    with pytest.raises(SessionError, match=expected) as error:
        hook()("open", {**OPEN, **changed})
    assert error.value.is_fatal


def test_what_does_not_belong_there_is_refused() -> None:
    for kind, parameters in (("news", {}), ("discarded", {"start": 4}), ("update", {}), ("open", OPEN)):
        with pytest.raises(SessionError):
            opened()(kind, parameters)
    with pytest.raises(SessionError) as error:
        hook()("paused")
    assert error.value.is_fatal
    with pytest.raises(SessionError):
        hook().dialect.read(b"\xff")
    with pytest.raises(BadMessage):
        opened()("resumed", {"start": "4 s", "discarded": "PT1S"})


def test_the_timeline_never_runs_backwards() -> None:
    timeline = Timeline()
    timeline.skip(4.0, 1.0)
    assert timeline.at(5.0) == 5.0
    timeline.skip(6.0, 10.0)
    assert (timeline.at(5.5), timeline.at(6.0), timeline.at(7.0)) == (5.5, 10.0, 11.0)
    assert [write_duration(each) for each in (0.0, 1.5, 2.0004, 0.1)] == ["PT0S", "PT1.5S", "PT2S", "PT0.1S"]
