"""The page for the records of calls, in a real browser, beside a scripted server."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio
from starlette.responses import JSONResponse, PlainTextResponse

from tests.app.dialects.openai.test_files_endpoint import wav
from tests.browser.axe import violations
from tests.browser.chromium import OpenWindow, Page, write_wav
from tests.browser.fake_calls import JOB, RECORD, STRETCHES, FakeCalls, as_file, drop, said, texts_of, turn_texts
from tests.browser.fake_server import serve
from tutti_server.app.files.call_record import make_record
from tutti_server.app.files.call_rendering import as_cues, as_json
from tutti_server.app.files.subtitles import srt, vtt

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

RATE = 8000
LISTEN = """
    const connect = AudioNode.prototype.connect;
    AudioNode.prototype.connect = function (target, ...rest) {
      if (target instanceof AudioDestinationNode) {
        globalThis.analyser = new AnalyserNode(this.context, {fftSize: 256});
        connect.call(this, globalThis.analyser);
      }
      return connect.call(this, target, ...rest);
    };
"""
"""Taps what goes to the loudspeaker."""
HEARD = """new Promise((resolve) => {
    const audio = document.querySelector("#audio");
    const heard = [];
    const samples = new Float32Array(256);
    const look = () => {
        globalThis.analyser.getFloatTimeDomainData(samples);
        heard.push([audio.currentTime, Math.max(...samples.map(Math.abs))]);
        if (audio.currentTime < %f) requestAnimationFrame(look); else resolve(heard);
    };
    look();
})"""
"""How loud it was at each time of the recording, until a time."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(open_window: OpenWindow) -> AsyncIterator[Page]:
    async with open_window(None) as page:
        await page.run_before(LISTEN)
        yield page


@pytest_asyncio.fixture(loop_scope="module")
async def calls() -> AsyncIterator[FakeCalls]:
    """A server without keys."""
    async with serve(FakeCalls()) as calls:
        yield calls


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Page, calls: FakeCalls) -> AsyncIterator[Page]:
    """The page before a call is opened."""
    await browser.show_as(1200, 800)
    browser.errors.clear()
    await browser.open(f"{calls.url}/calls")
    yield browser
    assert browser.errors == []


def recording(folder: Path, seconds: float = 16.0) -> tuple[str, str, str]:
    """A tone."""
    samples = 0.5 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * RATE)) / RATE)
    path = write_wav(folder / "call.wav", samples.astype(np.float32), RATE)
    return "call.wav", "audio/wav", base64.b64encode(path.read_bytes()).decode()


async def open_record(page: Page, record: Any = RECORD, *more: tuple[str, str, str]) -> None:
    await drop(page, as_file(record), *more)
    await page.wait_for("document.body.dataset.state === 'open'")


async def press(page: Page, key: str, **more: Any) -> None:
    for kind in ("keyDown", "keyUp"):
        await page.command("Input.dispatchKeyEvent", type=kind, key=key, **more)


async def focused(page: Page) -> str:
    text: str = await page.evaluate("document.activeElement.innerText || document.activeElement.id")
    return text


async def pairs(page: Page, selector: str) -> list[str]:
    values: list[str] = await page.evaluate(texts_of(f"{selector} dd"))
    return values


async def test_a_record_is_read(page: Page) -> None:
    """Its figures are those of the file, and each turn has its time, its speaker, and its text.

    The timeline has a lane for each speaker, one for both, one for silence, and marks interruptions and redactions.
    """
    await open_record(page)
    assert await page.evaluate("document.title") == "monday · Call records · tutti"
    assert await page.evaluate("document.querySelector('#record-summary').innerText") == (
        "0:16 · agent, caller · 4 turns · 24 words"
    )
    assert await pairs(page, "#call-figures") == ["45 % · 7.2 s", "4.2 s", "0.8 s", "1", "1"]
    assert await pairs(page, ".speaker-card:nth-child(1)") == ["4.8 s", "150", "2", "2.7 s", "0"]
    assert await pairs(page, ".speaker-card:nth-child(2)") == ["4.8 s", "150", "2", "2.8 s", "1"]
    assert await page.evaluate(texts_of(".turn .starts")) == ["0:00", "0:02", "0:08", "0:12"]
    assert await page.evaluate(texts_of(".turn .name")) == ["agent", "caller", "agent", "caller"]
    said_ = "[...document.querySelectorAll('.said')].map((each) => each.textContent.replace('interrupts agent', ''))"
    assert await page.evaluate(said_) == turn_texts(RECORD)

    lanes = """[...document.querySelectorAll('.lane, .muted-spans')].map((lane) => [...lane.querySelectorAll('rect')]
        .map((rect) => [rect.x, rect.width].map(({baseVal}) => Math.round(10 * baseVal.value) / 10)))"""
    assert await page.evaluate(texts_of(".lane-name")) == ["agent", "caller", "Both", "Silence"]
    assert await page.evaluate(lanes) == [
        [[0.4, 2.4], [9, 2.4]],
        [[2, 2.8], [12, 2]],
        [[2, 0.8]],
        [[0, 0.4], [4.8, 4.2], [11.4, 0.6], [14, 2]],
        [[13.2, 0.4]],
    ]
    assert await page.evaluate("[...document.querySelectorAll('.cut-mark')].map((each) => each.title)") == [
        "0:02 caller interrupts agent"
    ]
    assert await page.evaluate(texts_of(".cut-in")) == ["interrupts agent"]
    assert await page.evaluate(texts_of(".silence-row")) == ["4.2 s of silence"]
    rows = "[...document.querySelectorAll('#turns > li')].map((each) => each.innerText.split('\\n')[0])"
    assert await page.evaluate(rows) == ["0:00", "0:02", "4.2 s of silence", "0:08", "0:12"]
    assert await page.evaluate(texts_of(".word.unsure")) == ["I", "see.", "Is", "it", "hoolly", "broken?"]

    # A bad file leaves the open call as it is, and an empty record is a call.
    await drop(page, as_file({}, "other.json"))
    assert "JSON of another kind" in await page.wait_for("document.querySelector('#notice').innerText")
    assert await page.evaluate("document.querySelector('#record-title').innerText") == "monday"
    await drop(page, as_file(as_json(make_record([], 0.0))))
    empty = "0:00 · no speakers · 0 turns · 0 words"
    await page.wait_for(f"document.querySelector('#record-summary').innerText === '{empty}'")


NO_RECORDS: list[tuple[Any, str]] = [
    ("{", "this is no JSON"),
    ("[]", "this is a list"),
    ({"text": "a", "segments": []}, "a transcript without a record. Ask for response_format=call_record"),
    ({"object": "job"}, "the state of a job, not its result"),
    ({"type": "message"}, 'of the type "message"'),
    (
        RECORD | {"version": 2},
        "reads version 1 of call records, and this record has 2. Open it on the page of a newer",
    ),
    (RECORD | {"duration_s": "x"}, 'duration_s: expected a number that is not negative, got "x"'),
    (RECORD | {"turns": [{"speaker": "bob"}]}, 'turns[0].speaker: expected one of "agent", "caller", got "bob"'),
    (RECORD | {"speakers": None}, "speakers: expected a list, got null"),
    (RECORD | {"turns": [1]}, "turns[0]: expected an object, got 1"),
]
NO_JOBS = [
    ("job_2", JSONResponse(RECORD), "The server answered: there is no such job."),
    (JOB, PlainTextResponse("1\n00:00"), "The result of this job is text/plain, not the JSON of a record."),
    (JOB, JSONResponse({"text": "hello"}), "a transcript without a record"),
]


async def test_turns_have_the_direction_of_their_text(page: Page) -> None:
    """Also the one that begins with an English mark, as it interrupts."""
    stretches = (said("agent", 0.4, "Good morning, is this you?"), said("caller", 1.9, "صباح الخير كيف حالك؟"))
    record = make_record(stretches, 4.0)
    await open_record(page, as_json(record))
    assert "interrupts agent" in await page.evaluate("document.querySelector('.turn:nth-child(2) .said').innerText")
    directions = "[...document.querySelectorAll('.said')].map((each) => getComputedStyle(each).direction)"
    assert await page.evaluate(directions) == ["ltr", "rtl"]


async def test_a_hit_is_marked_after_a_letter_whose_lower_case_is_longer(page: Page) -> None:
    """The Turkish İ has two characters in lower case: an i and a dot above."""
    await open_record(page, as_json(make_record((said("agent", 0.4, "İĞİRMİ İKİLİ iki ve üç"),), 4.0)))
    await press(page, "/")
    await page.type_text("ve")
    await page.wait_for("document.querySelector('#hits').innerText === '1 of 1'")
    assert await page.evaluate(texts_of(".word.hit")) == ["ve"]


async def test_what_is_no_record_gets_a_sentence(page: Page, calls: FakeCalls) -> None:
    """Files, and the results of jobs."""

    async def expect(name: str, sentence: str) -> None:
        beginning, text = json.dumps(f"{name}: "), json.dumps(sentence)
        is_shown = f"(shown) => shown.startsWith({beginning}) && shown.includes({text})"
        await page.wait_for(f"[document.querySelector('#message').innerText].some({is_shown})")
        assert await page.evaluate("document.querySelector('#record').hidden")

    for number, (content, sentence) in enumerate(NO_RECORDS):
        text = content if isinstance(content, str) else json.dumps(content)
        name = f"notes-{number}.json"
        await drop(page, (name, "application/json", base64.b64encode(text.encode()).decode()))
        await expect(name, sentence)
    for job, calls.result, sentence in NO_JOBS:
        await page.evaluate("document.querySelector('#job').select()")
        await page.type_text(job)
        await page.press_enter()
        await expect(job, sentence)


async def test_a_recording_becomes_a_record(page: Page, calls: FakeCalls, tmp_path: Path) -> None:
    """It is sent to this server with the names of its channels, and with a key once the server asks for one."""
    calls.api_key = "s3cret"
    await drop(page, recording(tmp_path))
    await page.wait_for("document.activeElement.id === 'channel-names'")
    await page.type_text("agent, caller")
    await page.press_enter()
    assert await page.wait_for(
        "document.activeElement.id === 'key' && document.querySelector('#message').innerText"
    ) == ("This server needs an API key.")
    assert await violations(page) == []
    await page.type_text("s3cret")
    await page.press_enter()
    await page.wait_for("document.body.dataset.state === 'open'")
    (fields,) = calls.uploads
    assert fields[:-1] == [
        ("model", "whisper-1"),
        ("response_format", "call_record"),
        ("channel_names[]", "agent"),
        ("channel_names[]", "caller"),
    ]
    assert fields[-1] == ("file", 16 * RATE * 2 + 44)
    assert await page.evaluate("document.querySelector('#audio').src.startsWith('blob:')")
    assert await page.evaluate("document.querySelector('#record-title').innerText") == "call"
    # The call stays while another one is looked for.
    await page.click("#another")
    assert await page.evaluate("document.querySelector('#record').hidden")
    await page.click("#return")
    assert await page.evaluate("!document.querySelector('#record').hidden")


def two_channels(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> tuple[str, str, str]:
    """A WAV file with these two channels."""
    content = wav(np.stack((left, right), axis=1), RATE, n_channels=2)
    return "call.wav", "audio/wav", base64.b64encode(content).decode()


async def test_two_different_channels_are_two_sides(page: Page, calls: FakeCalls) -> None:
    """The page fills in the names of the two sides without being asked. Equal channels are one side."""
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(4 * RATE) / RATE)
    turn = np.arange(len(tone)) < len(tone) / 2
    sides = two_channels(tone * turn + 0.01 * tone, tone * ~turn)
    stereo = two_channels(tone * turn + 0.6 * tone, tone * ~turn + 0.6 * tone * turn)
    for file, names in ((stereo, []), (sides, ["Side 1", "Side 2"])):
        await drop(page, file)
        await page.evaluate("document.querySelector('#transcribe-form').requestSubmit()")
        await page.wait_for("document.body.dataset.state === 'open'")
        assert [value for name, value in calls.uploads[-1] if name == "channel_names[]"] == names
        await page.click("#another")
    await drop(page, sides)
    await page.wait_for("!document.querySelector('#sides-note').hidden")
    assert await violations(page) == []
    await page.type_text("agent, caller")
    assert await page.evaluate("document.querySelector('#channel-names').value") == "agent, caller"


async def test_a_link_opens_the_result_of_a_job(page: Page, calls: FakeCalls) -> None:
    """With a key where the server needs one."""
    calls.api_key = "s3cret"
    await page.open(f"{calls.url}/calls?job={JOB}")
    await page.wait_for("document.activeElement.id === 'key'")
    await page.type_text("wrong")
    await page.press_enter()
    await page.wait_for("document.querySelector('#message').innerText === 'The server does not accept this API key.'")
    await page.evaluate("document.querySelector('#key').select()")
    await page.type_text("s3cret")
    await page.press_enter()
    await page.wait_for("document.body.dataset.state === 'open'")
    assert await page.evaluate("document.querySelector('#record-title').innerText") == JOB


async def test_redacted_places_are_muted_and_spoken_words_marked(page: Page, tmp_path: Path) -> None:
    """Also at twice the speed. The mute holds at the loudspeaker, and around the place it is not silent."""
    await open_record(page, RECORD, recording(tmp_path))
    await page.evaluate("document.querySelector('#speed').value = '2'")
    await page.evaluate("document.querySelector('#speed').dispatchEvent(new Event('change'))")
    within: list[float] = []
    while not within:
        # "My card is": the word before the place that is redacted. A busy browser may draw no picture in the place.
        await page.click(".turn:last-child [data-word='0']")
        await page.wait_for("document.body.dataset.playing === ''")
        heard = await page.evaluate(HEARD % 14.4)
        within = [loud for at_s, loud in heard if 13.2 <= at_s <= 13.6]
    assert await page.evaluate("document.querySelector('.turn.current .name').innerText") == "caller"
    around = [loud for at_s, loud in heard if 12.4 <= at_s <= 12.8 or 14.0 <= at_s <= 14.3]
    assert max(within) < 0.001
    assert around and min(around) > 0.1
    await press(page, " ", code="Space")
    await page.wait_for("document.body.dataset.playing === undefined")
    # A jump into the place is silent, too, and says so.
    await page.evaluate("document.querySelector('#position').value = '13.4'")
    await page.evaluate("document.querySelector('#position').dispatchEvent(new Event('input'))")
    assert await page.evaluate("document.querySelector('#muted').innerText") == "Redacted: muted"
    assert await page.evaluate(texts_of(".word.now")) == ["[CARD_NUMBER]"]


NO_MUTE = """globalThis.make = AudioContext.prototype.createMediaElementSource;
    AudioContext.prototype.createMediaElementSource = () => { throw new Error('none'); };"""


async def test_what_a_recording_cannot_do_is_said(page: Page, tmp_path: Path) -> None:
    """Without a way to mute nothing is played that must be muted. Another length, or no sound, is noticed."""

    async def expect(beginning: str) -> None:
        await page.wait_for(f"document.querySelector('#notice').innerText.startsWith('{beginning}')")

    await page.evaluate(NO_MUTE)
    await open_record(page)
    for _ in range(2):
        await drop(page, recording(tmp_path))
        await expect("This browser cannot mute what was redacted")
        assert await page.evaluate(
            "document.querySelector('#controls').hidden && !document.querySelector('#audio').src"
        )
    await open_record(page, RECORD | {"redactions": []}, recording(tmp_path))
    await page.wait_for("!document.querySelector('#controls').hidden")

    await page.evaluate("void (AudioContext.prototype.createMediaElementSource = make)")
    await open_record(page, RECORD, recording(tmp_path, 3.0))
    await expect("This recording is 0:03 long, and the record is of one of 0:16.")
    await drop(page, ("call.g729", "audio/g729", base64.b64encode(b"no sound").decode()))
    await expect("This browser cannot play call.g729.")
    assert await page.evaluate("!document.querySelector('#add-recording').hidden")


async def test_the_keyboard_reaches_everything(page: Page, tmp_path: Path) -> None:
    """Turns and words by arrows, playing by Enter and Space, interruptions by a letter, the sheets by letters.

    Search finds text over the borders of words, in any case, and goes from hit to hit.
    """
    await open_record(page, RECORD, recording(tmp_path))
    await press(page, "/")
    await page.type_text("IS BROKEN")
    assert await page.wait_for("document.querySelector('#hits').innerText") == "1 of 1"
    assert await page.evaluate(texts_of(".word.hit")) == ["is", "broken"]
    await page.evaluate("document.querySelector('#search').select()")
    await page.type_text("broken")
    await page.wait_for("document.querySelector('#hits').innerText === '1 of 2'")
    await page.press_enter()
    assert await page.evaluate("document.querySelector('#hits').innerText") == "2 of 2"
    assert await page.evaluate(texts_of(".hit-now")) == ["broken?"]
    await page.click("#hit-after")
    assert await page.evaluate("document.querySelector('#hits').innerText") == "1 of 2"
    await page.evaluate("document.querySelector('#search').select()")
    await page.type_text("zebra")
    await page.wait_for("document.querySelector('#hits').innerText === 'No hit'")

    await page.evaluate("document.querySelector('.starts[tabindex=\"0\"]').focus()")
    await press(page, "ArrowDown")
    assert await focused(page) == "0:02"
    await press(page, "ArrowRight")
    await press(page, "ArrowRight")
    assert await focused(page) == "my"
    await page.press_enter()
    await page.wait_for("document.body.dataset.playing === ''")
    await page.evaluate("document.querySelector('#record-title').focus()")
    await press(page, " ", code="Space")
    await page.wait_for("document.body.dataset.playing === undefined")
    await press(page, "]")
    assert await page.evaluate("Number(document.querySelector('#position').value)") > 7
    await press(page, "i")
    assert await page.evaluate("document.querySelector('#position').value") == "2"
    assert await page.evaluate("document.querySelector('#position').ariaValueText ?? ''") == "0:02 agent and caller"
    await press(page, "?")
    assert await page.evaluate("document.querySelector('#keys-sheet').open")
    assert await violations(page) == []
    await page.evaluate(
        "document.querySelector('#use-shortcuts').click(); document.querySelector('#keys-sheet').close()"
    )
    await press(page, "d")
    assert not await page.evaluate("document.querySelector('#save-sheet').open")
    await page.evaluate("localStorage.clear()")


async def test_a_record_is_downloaded(page: Page) -> None:
    """The subtitles are the server's, where nothing must be cut."""
    made = make_record((*STRETCHES, said("agent", 14.4, "So ---> there.")), 16.0)
    record, cues = as_json(made) | {"later": {"field": 1}}, as_cues(made)
    await open_record(page, record)
    await page.evaluate("""(() => { const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => { globalThis.saved = blob.text(); return make(blob); }; })()""")
    saved = {}
    for ending in ("json", "txt", "srt", "vtt"):
        await page.click("#save")
        await page.click(f"[data-format={ending}]")
        await page.wait_for(f"document.querySelector('#toast-text').innerText === 'Saved as monday.{ending}'")
        saved[ending] = await page.evaluate("globalThis.saved")
    assert json.loads(saved["json"]) == record
    assert saved["txt"].splitlines()[1] == "[0:02] caller: Hello, my heating is broken & cold."
    assert (saved["srt"], saved["vtt"]) == (srt(cues), vtt(cues))


async def test_long_turns_become_several_subtitles(page: Page) -> None:
    """None has more than two lines of 42 characters or lasts longer than 7 s, and no word is lost."""
    long = " ".join(f"word{n}" for n in range(60))
    record = as_json(make_record([said("A", 0, long)], 30))
    cues = """import('/static/calls/exports.js').then(async ({toSrt}) => {
        const {parseRecord} = await import('/static/calls/record.js');
        return toSrt(parseRecord(TEXT)).trim().split('\\n\\n').map((cue) => cue.split('\\n').slice(1));
    })"""
    made = await page.evaluate(cues.replace("TEXT", json.dumps(json.dumps(record))))
    assert " ".join(text.removeprefix("A: ") for _, text in made) == long
    assert all(len(text) <= 84 + 3 for _, text in made)
    ends = [[float(time[6:].replace(",", ".")) for time in times.split(" --> ")] for times, _ in made]
    assert all(until_s - from_s <= 7 for from_s, until_s in ends)
    whole = as_json(make_record([said("A", 0, long)], 30))
    whole["turns"][0]["words"] = []
    assert len(await page.evaluate(cues.replace("TEXT", json.dumps(json.dumps(whole))))) > 3


@pytest.mark.node
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "look",
    [
        "desktop",
        *(pytest.param(look, marks=pytest.mark.nightly) for look in ("desktop-dark", "phone-dark", "phone-large")),
    ],
)
async def test_axe_finds_nothing_wrong_and_nothing_is_wider_than_the_window(
    page: Page, calls: FakeCalls, tmp_path: Path, look: str
) -> None:
    """Before a call is opened, with a recording to send, and with an open call; also with text of 200 %."""
    width, height = (195, 400) if "large" in look else (390, 780) if "phone" in look else (1200, 800)
    await page.show_as(width, height, dark="dark" in look, scale=2 if "phone" in look else 1)
    await page.open(f"{calls.url}/calls")
    found = {"empty": await violations(page)}
    narrow = {"empty": await page.evaluate("document.querySelector('main').scrollWidth <= innerWidth")}
    await drop(page, recording(tmp_path))
    found["form"] = await violations(page)
    narrow["form"] = await page.evaluate("document.querySelector('main').scrollWidth <= innerWidth")
    await open_record(page)
    await page.evaluate("document.querySelector('#search').value = 'broken'")
    await page.evaluate("document.querySelector('#search').dispatchEvent(new Event('input'))")
    found["open"] = await violations(page)
    wide = (
        "[...document.querySelectorAll('header, main, footer')].filter((each) => each.scrollWidth > innerWidth).length"
    )
    narrow["open"] = await page.evaluate(wide) == 0
    assert found == {each: [] for each in found}
    assert narrow == dict.fromkeys(narrow, True)
