"""examples/meeting_bot: speakers who come and go and talk at once are captioned in order of time."""

import argparse
import asyncio
import base64
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

import tutti
from tests.compat.conftest import Running
from tests.examples.conftest import EXAMPLES, run
from tests.recordings import TEXTS

PROGRAM = "meeting_bot/from_file.py"
CAPTIONS = [
    f"Ada: {TEXTS['hello']}",
    f"Ben: {TEXTS['train']}",
    "Ada: Good afternoon, thank you for calling.",
]
TIMES_S = [1.0, 3.0, 9.0]

pytestmark = pytest.mark.timeout(300)


def test_speakers_are_captioned_in_order_of_time(server: Running, recordings: Path) -> None:
    """Ben begins before Ada has finished. Ada's second sentence has its time in the meeting, without her pause."""
    done = run(PROGRAM, recordings / "meeting.jsonl", "--url", server.ws, "--speed", 10)
    assert (done.stderr, done.returncode) == ("", 0)
    lines = [line.split("  ", 1) for line in done.stdout.splitlines()]
    assert [text for _, text in lines] == CAPTIONS
    assert [float(at.removeprefix("00:")) for at, _ in lines] == pytest.approx(TIMES_S, abs=0.3)


def test_a_file_without_packets_is_explained(tmp_path: Path) -> None:
    (tmp_path / "packets").write_text('{"at_s": 0, "speaker": "Ada"}\n')
    done = run(PROGRAM, tmp_path / "packets")
    assert done.returncode == 1
    assert f"{tmp_path}/packets:1: expected a JSON object with at_s, speaker and pcm" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def bot_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a module of the example."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(EXAMPLES / "meeting_bot")
    yield importlib.import_module
    for name in {"captioner", "from_discord"} - before:
        sys.modules.pop(name, None)


def packets(recordings: Path) -> Iterator[tuple[float, str, bytes]]:
    for line in (recordings / "meeting.jsonl").read_text().splitlines():
        packet = json.loads(line)
        yield packet["at_s"], packet["speaker"], base64.b64decode(packet["pcm"])


async def test_packets_wait_for_a_server_that_is_full(
    server: Running, recordings: Path, bot_modules: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its third answer is a session, and nothing is lost."""
    captioner = bot_modules("captioner")
    monkeypatch.setattr(captioner, "RETRY_S", 0.01)
    connect, refusals = tutti.connect, [tutti.Overloaded(server.ws, 503, {}, "", None) for _ in range(2)]

    def connect_later(url: str, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return connect(url, **options)

    monkeypatch.setattr(tutti, "connect", connect_later)
    channel = AsyncMock()
    async with asyncio.timeout(60), captioner.Captioner(server.ws, channel) as bot:
        for at_s, speaker, pcm in packets(recordings):
            if speaker == "Ben":
                bot.packet(speaker, pcm, at_s)
    assert [call.args[0].text for call in channel.post.await_args_list] == [TEXTS["train"]]
    assert refusals == [] and not bot.has_failed


async def test_an_empty_packet_is_no_pause(bot_modules: Callable[[str], Any]) -> None:
    """Voice services send one in place of a packet that was lost."""
    speaker, session = bot_modules("captioner").Speaker("Ada"), AsyncMock()
    for pcm in (bytes(3840), b""):
        speaker.packet(pcm, 0.0)
    await speaker.leave()
    assert [len(audio) async for audio in speaker.audio(session)] == [1920]
    assert not session.flush.called


def member(user_name: str, display_name: str = "") -> Any:
    return SimpleNamespace(id=user_name, name=user_name, display_name=display_name or user_name)


def test_members_with_one_name_are_told_apart(bot_modules: Callable[[str], Any]) -> None:
    """Their packets would be mixed in one session."""
    pytest.importorskip("discord")
    voice_recv = pytest.importorskip("discord.ext.voice_recv")
    loop = MagicMock()
    sink = bot_modules("from_discord").Sink(MagicMock(), loop, 0.0)
    for each in (member("ada"), member("ben", "ada"), member("ada")):
        sink.write(each, voice_recv.VoiceData(None, None, pcm=bytes(3840)))
    assert [call.args[1] for call in loop.call_soon_threadsafe.call_args_list] == ["ada", "ada (ben)", "ada"]


async def test_the_discord_adapter_posts_what_members_say(
    server: Running, recordings: Path, bot_modules: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own code runs, with the libraries' classes; Discord is a stand-in, so this says nothing about Discord."""
    discord = pytest.importorskip("discord")
    voice_recv = pytest.importorskip("discord.ext.voice_recv")
    from_discord = bot_modules("from_discord")
    client = MagicMock(disconnect=AsyncMock(), is_connected=MagicMock(side_effect=[True, False]))
    voice, text = MagicMock(spec=discord.VoiceChannel), MagicMock(spec=discord.TextChannel)
    voice.connect.return_value = client
    args = argparse.Namespace(voice_channel=1, text_channel=2, url=server.ws, api_key=None)
    async with asyncio.timeout(60), from_discord.Bot(args) as bot:
        monkeypatch.setattr(bot, "wait_until_ready", AsyncMock())
        monkeypatch.setattr(bot, "fetch_channel", AsyncMock(side_effect=[voice, text]))

        def play(sink: Any) -> None:
            members = {name: member(name) for name in ("Ada", "Ben")}
            sink.write(None, voice_recv.VoiceData(None, None, pcm=bytes(3840)))
            for at_s, speaker, pcm in packets(recordings):
                clock.return_value = at_s
                sink.write(members[speaker], voice_recv.VoiceData(None, None, pcm=pcm))

        def listen(sink: Any) -> None:
            thread = threading.Thread(target=play, args=(sink,))
            thread.start()
            thread.join()

        clock = MagicMock(return_value=0.0)
        monkeypatch.setattr(from_discord, "time", SimpleNamespace(monotonic=clock))
        client.listen.side_effect = listen
        await bot.caption()
    sent = [call.args[0].replace("**", "") for call in text.send.await_args_list]
    assert sent == CAPTIONS
    client.disconnect.assert_awaited_once()
