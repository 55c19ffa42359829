"""How captions look while they change: the position and colour of every word, frame by frame, in a real browser.

`exchange.json` has the events of the service for 54 s of noisy speech on a busy machine: tails that are revised, an
utterance of several segments, and one that begins before the one before it is final. Frames and screenshots are kept in
build/browser/.
"""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tutti
from tests.browser.chromium import Page, open_page
from tests.browser.fake_server import FakeServer, Message, final, interim, speech_started

pytestmark = pytest.mark.browser

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "build" / "browser"
EXCHANGE: list[Message] = json.loads((HERE / "exchange.json").read_text())

LOOKS = {
    "light": {"width": 1000, "height": 700, "dark": False},
    "phone-dark": {"width": 390, "height": 780, "dark": True, "scale": 2},
}
MOMENTS = {
    "first-words": 6,
    "revised": 55,
    "long-utterance": 88,
    "segments-while-next-opens": 112,
    "end": len(EXCHANGE) - 1,
}
SAME_PX = 0.51
"""A word has not moved if its position changes by less than this: browsers round positions."""
LEAST_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3: contrast (minimum), level AA."""
LEAST_DIFFERENCE = 2.0
"""The least difference between the contrasts of solid text and the tail, so that readers can see which is which."""

Frame = dict[str, Any]


@dataclass
class Recording:
    """Sends messages to the page, and records a frame after each."""

    page: Page
    server: FakeServer
    messages: list[Message] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    async def play(self, *messages: Message) -> Frame:
        """Send messages one by one, and wait until each has been drawn."""
        for message in messages:
            mark = len(self.messages)
            self.messages.append(message)
            await self.server.send(message, {"type": "warning", "code": "mark", "message": str(mark)})
            self.frames.append(await self.page.evaluate(f"recorder.drawn({mark})"))
        return self.frames[-1]

    async def shifts(self) -> list[dict[str, Any]]:
        """The layout shifts since the first message, as the browser measures them: movements without scrolling."""
        shifts: list[dict[str, Any]] = await self.page.evaluate("recorder.shifts")
        return shifts


@asynccontextmanager
async def recording(server: FakeServer, microphone: Path, profile: Path, look: str) -> AsyncIterator[Recording]:
    """A page with an open session and no text."""
    async with open_page(profile, microphone) as page:
        await page.show_as(**LOOKS[look])  # type: ignore[arg-type]  # sizes and flags, each of its kind
        await page.open(server.url)
        await page.evaluate((HERE / "recorder.js").read_text())
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'live'")
        await page.drawn()
        await page.evaluate("recorder.begin()")
        yield Recording(page, server)
        assert page.errors == []


def words(frame: Frame) -> dict[int, list[dict[str, Any]]]:
    """The words of each utterance."""
    return {line["utterance"]: line["words"] for line in frame["lines"]}


def kept(before: Frame, after: Frame) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of a word before and after, for the words of each utterance before the first one that has changed."""
    now = words(after)
    for utterance, was in words(before).items():
        for old, new in zip(was, now.get(utterance, []), strict=False):
            if old["text"] != new["text"]:
                break
            yield old, new


def jumps(frames: list[Frame]) -> list[str]:
    """The words that moved although they had not changed."""
    found = []
    for before, after in pairwise(frames):
        for old, new in kept(before, after):
            if abs(old["x"] - new["x"]) > SAME_PX or abs(old["y"] - new["y"]) > SAME_PX:
                moved = f"({old['x']:.1f}, {old['y']:.1f}) to ({new['x']:.1f}, {new['y']:.1f})"
                found.append(f"{after['mark']}: {old['text']} from {moved}")
    return found


def luminance(color: str) -> float:
    """Relative luminance of `rgb(…)`. Source: WCAG 2.2, "relative luminance"."""
    channels = [int(part) / 255 for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def in_color(frame: Frame, utterance: int) -> dict[str, str]:
    """The text of an utterance in each colour, without its spaces."""
    texts: dict[str, str] = {}
    for word in words(frame).get(utterance, []):
        for piece in word["pieces"]:
            texts[piece["color"]] = texts.get(piece["color"], "") + piece["text"]
    return texts


def bare(text: str) -> str:
    return "".join(text.split())


@pytest.mark.nightly
@pytest.mark.parametrize("look", ["light", "phone-dark"])
async def test_a_session_is_shown_without_jumping(
    page_server: FakeServer, microphone: Path, tmp_path: Path, look: str
) -> None:
    """Stable text is solid, the tail lighter; unchanged words do not move; the newest words are in view."""
    KEPT.mkdir(parents=True, exist_ok=True)
    async with recording(page_server, microphone, tmp_path / "profile", look) as record:
        for index, event in enumerate(EXCHANGE):
            await record.play(event)
            for moment in (name for name, at in MOMENTS.items() if at == index):
                await record.page.screenshot(KEPT / f"{look}-{moment}.png")
        shifts = await record.shifts()
        (KEPT / f"{look}.json").write_text(json.dumps({"frames": record.frames, "shifts": shifts}))

    assert jumps(record.frames) == []
    assert shifts == []

    solid, tail = "", ""
    transcript = tutti.Transcript()
    n_tails = 0
    for event, frame in zip(EXCHANGE, record.frames, strict=True):
        transcript.add(tutti.parse_event(json.dumps(event)))
        expected = {each.utterance: (bare(each.text), "") for each in transcript.utterances()}
        expected |= {
            each.utterance: (bare(each.final + each.stable), bare(each.tail)) for each in transcript.open_captions()
        }
        for utterance, (fixed, moving) in expected.items():
            shown = in_color(frame, utterance)
            if not solid and fixed and moving:
                # The first utterance defines the two colours; all others must have the same.
                solid, tail = shown
            assert shown == {color: text for color, text in ((solid, fixed), (tail, moving)) if text} or not solid, (
                f"{event} is shown as {shown}"
            )
            n_tails += bool(moving)
    assert n_tails > 50
    ground = record.frames[-1]["ground"]
    assert contrast(solid, ground) >= contrast(tail, ground) + LEAST_DIFFERENCE
    assert contrast(tail, ground) >= LEAST_CONTRAST

    for frame in record.frames:
        assert frame["below"] < 1
        newest = [word["bottom"] for line in frame["lines"] for word in line["words"]]
        assert max(newest, default=0) <= frame["bottom"], "the newest words are out of view"


@pytest.mark.nightly
async def test_movements_are_detected(page_server: FakeServer, microphone: Path, tmp_path: Path) -> None:
    """By the recorder and by the browser. Otherwise no test here could fail."""
    async with recording(page_server, microphone, tmp_path / "profile", "light") as record:
        await record.play(speech_started(), interim("Hello", " there"))
        await record.page.evaluate("document.querySelector('#transcript').style.paddingTop = '100px'")
        await record.play(interim("Hello", " there you"))
        assert jumps(record.frames) != []
        assert await record.shifts() != []


def many_lines(n: int) -> list[Message]:
    """More lines than fit on the page."""
    return [event for index in range(n) for event in final(f"Line {index}.", utterance=index, start_s=float(index))]


def place(frame: Frame, utterance: int) -> float:
    """The position of the line of an utterance, from the top of the text."""
    y: float = next(line["y"] for line in frame["lines"] if line["utterance"] == utterance)
    return y


@pytest.mark.nightly
@pytest.mark.parametrize("look", ["light", "phone-dark"])
async def test_a_tail_that_gets_shorter_moves_nothing(
    page_server: FakeServer, microphone: Path, tmp_path: Path, look: str
) -> None:
    """Neither the words before it nor the line below it."""
    async with recording(page_server, microphone, tmp_path / "profile", look) as record:
        await record.play(
            speech_started(0),
            interim("So", " it goes" * 30),
            speech_started(1),
            interim("And", " then", utterance=1),
        )
        before = record.frames[-1]
        after = await record.play(interim("So", " it"), interim("So it", " is, and that is all there is to it"))
        assert place(after, 1) == pytest.approx(place(before, 1), abs=SAME_PX)
        assert jumps(record.frames) == []
        assert await record.shifts() == []


@pytest.mark.nightly
async def test_a_final_text_that_is_shorter_moves_nothing(
    page_server: FakeServer, microphone: Path, tmp_path: Path
) -> None:
    """The line that is open below it stays where it is."""
    async with recording(page_server, microphone, tmp_path / "profile", "phone-dark") as record:
        before = await record.play(
            speech_started(0),
            interim("It was", " a very long way to go, or so it seemed"),
            speech_started(1),
            interim("And", " then", utterance=1),
        )
        after = await record.play(*final("It was."))
        assert [line["isFinal"] for line in after["lines"]] == [True, False]
        assert place(after, 1) == pytest.approx(place(before, 1), abs=SAME_PX)
        assert jumps(record.frames) == []
        assert await record.shifts() == []
        # The free space disappears when the window has another width.
        await record.page.show_as(1000, 700)
        after = await record.play(interim("And then", " what", utterance=1))
        assert place(after, 1) - place(after, 0) < 60


@pytest.mark.nightly
async def test_text_after_a_wrong_tail_stays(page_server: FakeServer, microphone: Path, tmp_path: Path) -> None:
    """A segment that differs from the tail leaves the words after it, which would only come back."""
    async with recording(page_server, microphone, tmp_path / "profile", "light") as record:
        await record.play(speech_started(), interim("Hello", " their, my frend. How are you today"))
        segment, utterance = final("Hello there, my friend.")
        frame = await record.play(segment)
        assert [word["text"] for word in words(frame)[0]] == "Hello there, my friend. How are you today".split()
        await record.play({**segment, "id": 1, "text": " How are you today?"})
        frame = await record.play({**utterance, "text": "Hello there, my friend. How are you today?"})
        assert len(in_color(frame, 0)) == 1


@pytest.mark.nightly
async def test_the_reader_may_scroll_up_a_little(page_server: FakeServer, microphone: Path, tmp_path: Path) -> None:
    """Also by less than a line: new text moves nothing until the reader scrolls back to the end."""
    async with recording(page_server, microphone, tmp_path / "profile", "light") as record:
        before = await record.play(*many_lines(30), speech_started(30), interim("So", " it", utterance=30))
        assert before["below"] < 1
        await record.page.turn_wheel("#transcript", -20)
        await record.page.wait_for("!document.querySelector('#latest').hidden")
        reading = await record.play(interim("So it", " goes", utterance=30))
        scrolled = reading["scrollTop"]
        assert 1 < before["scrollTop"] - scrolled <= 20
        for n_words in range(4, 60, 8):
            reading = await record.play(interim("So it goes", " on" * n_words, utterance=30))
            assert reading["scrollTop"] == scrolled
        reading = await record.play(*final("So it goes on.", utterance=30), speech_started(31))
        reading = await record.play(*final("And on.", utterance=31))
        assert reading["scrollTop"] == scrolled
        assert jumps(record.frames) == []

        await record.page.turn_wheel("#transcript", 1000)
        await record.page.wait_for("document.querySelector('#latest').hidden")
        frame = await record.play(*final("And on and on.", utterance=32))
        assert frame["below"] < 1 and frame["scrollTop"] > scrolled


@pytest.mark.nightly
async def test_a_message_does_not_hide_the_newest_words(
    page_server: FakeServer, microphone: Path, tmp_path: Path
) -> None:
    """When the controls grow to show a message, the text moves up with them."""
    async with recording(page_server, microphone, tmp_path / "profile", "phone-dark") as record:
        await record.play(*many_lines(30))
        await page_server.close(1008)
        await record.page.wait_for("!document.querySelector('#message').hidden")
        await record.page.drawn()
        frame = await record.page.evaluate("recorder.frame()")
        assert frame["below"] < 1
        assert frame["lines"][-1]["words"][-1]["bottom"] <= frame["bottom"]
