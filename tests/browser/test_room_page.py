"""The page for the readers of a room, in a real browser, beside a scripted server."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.browser.axe import violations
from tests.browser.chromium import OpenWindow, Page
from tests.browser.fake_room import INSIDE, FakeRoom, lines, wait_inside
from tests.browser.fake_server import final, interim, serve, translation

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

STATUS = f"{INSIDE}.querySelector('.status').innerText"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(open_window: OpenWindow) -> AsyncIterator[Page]:
    async with open_window(None) as page:
        yield page


@pytest_asyncio.fixture(loop_scope="module")
async def room() -> AsyncIterator[FakeRoom]:
    """A room with a speaker who has said nothing."""
    async with serve(FakeRoom()) as room:
        yield room


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Page, room: FakeRoom) -> AsyncIterator[Page]:
    await browser.show_as(1000, 700)
    browser.errors.clear()
    yield browser
    assert browser.errors == []
    # It must not ask the server any more, which ends now.
    await browser.open("about:blank")


async def read(page: Page, room: FakeRoom, options: str = "") -> None:
    await page.open(f"{room.url}/captions/choir{options}")


async def test_a_reader_gets_what_was_said_and_then_what_is_said(page: Page, room: FakeRoom) -> None:
    """The history is shown and not spoken; what is said from then on is both, also what a lost connection has missed.

    Text that is decoded again is taken away first. A server that has forgotten the reader sends everything again, and
    its text takes the place of what was there: it may be another room of the same name.
    """
    said = [f"Line {n}." for n in range(5)]
    room.history = [event for n, text in enumerate(said) for event in final(text, n)]
    await read(page, room)
    await wait_inside(page, "part('finals').includes('Line 4.')")
    assert await page.evaluate("document.title") == "Sunday · Live captions"
    assert await page.evaluate("document.querySelector('h1').innerText") == "Sunday"
    assert await page.evaluate(STATUS) == "Live"
    assert await page.evaluate(f"{INSIDE}.querySelector('.spoken').childElementCount") == 0
    # What comes soon after the beginning of the connection is history.
    await page.evaluate("((now) => { performance.now = () => now() + 2000; })(performance.now.bind(performance))")
    room.publish(interim("One", " now", 5))
    await wait_inside(page, "part('open').includes('One now')")
    room.publish(*final("One.", 5), interim("Two", " thr", 6))
    await wait_inside(page, "part('spoken') === 'One.' && part('open').includes('Two')")

    room.history += final("Three.", 7)
    room.drop_readers()
    await wait_inside(page, "part('spoken').includes('Three.')")
    await wait_inside(page, f"{STATUS} === 'Live'")
    room.publish({"type": "retract", "utterance": 5}, {"type": "retract", "utterance": 6})
    room.publish(interim("", "Too", 9), *final("Won.", 8), *final("Two three.", 9))
    await wait_inside(page, "part('finals').includes('Two three.')")
    assert await lines(page) == [*said, "Three.", "Won.", "Two three."]
    assert room.last_ids == [None, "12"]

    room.history, room.is_forgetful = [*final("Uno.", 0), *final("Due.", 1)], True
    room.drop_readers()
    await wait_inside(page, "part('finals').includes('Uno.') && part('finals').includes('Due.')")
    assert await lines(page) == ["Uno.", "Due."]


async def test_the_page_waits_for_the_speaker_and_says_when_it_is_over(page: Page, room: FakeRoom) -> None:
    """A room that does not exist yet; one without a speaker; the end, after which there is no connection."""
    room.is_open = False
    await read(page, room)
    await wait_inside(page, f"{STATUS} === 'Waiting for the speaker…'")
    room.is_open, room.is_live = True, False
    await page.wait_for("document.querySelector('h1').textContent === 'Sunday'")
    assert await page.evaluate(STATUS) == "Waiting for the speaker…"
    room.is_live = True
    room.publish({"type": "room", "name": "choir", "title": "Sunday", "live": True}, *final("Hello.", 0))
    await wait_inside(page, "part('finals').includes('Hello.')")
    assert await page.evaluate(STATUS) == "Live"
    room.publish({"type": "ended"})
    await wait_inside(page, f"{STATUS} === 'The captions have ended.'")
    assert await lines(page) == ["Hello."]
    room.drop_readers()


async def test_readers_choose_a_translation_and_the_size(page: Page, room: FakeRoom) -> None:
    """The languages are those of the translations that came. The size is kept on the device."""
    room.history = [*final("Hello."), translation("Hallo.")]
    await read(page, room)
    await page.wait_for("!document.querySelector('#language-choice').hidden")
    assert await lines(page) == ["Hello."]
    options = "[...document.querySelector('#language').options].map((option) => option.label)"
    assert await page.evaluate(options) == ["As spoken", "German"]
    await page.evaluate("""(() => { const select = document.querySelector('#language'); select.value = 'de';
        select.dispatchEvent(new Event('change')); })()""")
    assert await lines(page) == ["Hallo."]

    size = f"Number.parseFloat(getComputedStyle({INSIDE}.querySelector('.text')).fontSize)"
    before = await page.evaluate(size)
    await page.click("#larger")
    await page.click("#larger")
    after = await page.evaluate(size)
    assert after > 1.2 * before
    await read(page, room, "?language=de&show=both")
    await wait_inside(page, "part('finals').includes('Hallo.')")
    assert await lines(page) == ["Hello.\nHallo."]
    assert await page.evaluate(size) == after
    await page.evaluate("localStorage.clear()")
    # An address whose size is none does not break the buttons, now and later.
    await read(page, room, "?size=large")
    await wait_inside(page, "part('finals').includes('Hello.')")
    await page.click("#larger")
    assert await page.evaluate(size) > before
    await page.evaluate("localStorage.clear()")


async def test_obs_shows_two_rows_on_a_transparent_ground(page: Page, room: FakeRoom) -> None:
    """Nothing until the room opens, as a scene is set up before, and then nothing but the captions.

    There is no header, no status, and no colour behind the text.
    """
    await page.show_as(1280, 240)
    await page.command("Emulation.setDefaultBackgroundColorOverride", color={"r": 0, "g": 0, "b": 0, "a": 0})
    room.is_open = False
    await read(page, room, "?obs=1&lines=2&size=48")
    await wait_inside(page, "captions.state === 'waiting'")
    shown = "[...document.querySelectorAll('body *'), ...root.querySelectorAll('*')]"
    texts = f"{shown}.filter((e) => e.checkVisibility() && e.childElementCount === 0).map((e) => e.innerText).join('')"
    assert await page.evaluate(f"((root) => {texts})({INSIDE})") == ""
    room.is_open = True
    await wait_inside(page, "captions.state === 'live'")
    room.publish(*final("Good morning.", 0), interim("The words of the speaker appear over the picture", " of", 1))
    await wait_inside(page, "part('open').includes(' of')")
    await page.drawn()
    grounds = "[document.documentElement, document.body, captions].map((e) => getComputedStyle(e).backgroundColor)"
    assert set(await page.evaluate(grounds)) == {"rgba(0, 0, 0, 0)"}
    shown = "[document.querySelector('header'), root.querySelector('.status')].some((e) => e.getClientRects().length)"
    assert not await page.evaluate(f"((root) => {shown})({INSIDE})")
    text, height = await page.evaluate(f"""[getComputedStyle({INSIDE}.querySelector('.text')).fontSize,
        captions.getBoundingClientRect().height]""")
    assert text == "48px" and height == pytest.approx(2 * 48 * 1.4, abs=1)
    await page.command("Emulation.setDefaultBackgroundColorOverride")


@pytest.mark.node
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "look",
    [
        "phone-dark",
        *(pytest.param(look, marks=pytest.mark.nightly) for look in ("desktop", "contrast", "phone-large")),
    ],
)
async def test_axe_finds_nothing_wrong_and_nothing_is_wider_than_the_window(
    page: Page, room: FakeRoom, look: str
) -> None:
    """Also with text of 200 %: what is 390 pixels wide is 195 then."""
    room.history = [event for n in range(30) for event in final(f"This is what was said in line {n}.", n)]
    room.history.append(translation("Das wurde gesagt."))
    width, height = (195, 400) if "large" in look else (390, 780) if "phone" in look else (1000, 700)
    await page.show_as(width, height, dark="dark" in look, scale=2 if "phone" in look else 1)
    await read(page, room, "?theme=contrast" if look == "contrast" else "")
    await wait_inside(page, "part('finals').includes('line 29')")
    room.publish(interim("And this is what is said", " just now", 30))
    await wait_inside(page, "part('open').includes('just now')")
    await page.drawn()
    assert await violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    word = f"{INSIDE}.querySelector('.open .changing').getBoundingClientRect().bottom"
    assert await page.evaluate(f"{word} <= innerHeight")
