"""A Discord bot that captions a voice channel: members' audio goes to tutti, captions go to a text channel.

Written against the documented interfaces of discord.py 2.7 and discord-ext-voice-recv 0.5, and NOT run against Discord:
see README.md, which also says why it hears nothing in calls with end-to-end encryption.
"""

import argparse
import asyncio
import os
import sys
import time

import discord
from discord.ext import voice_recv

import tutti
from captioner import Caption, Captioner

TICK_S = 0.1
MAX_MESSAGE = 2000
"""Characters of a message that Discord accepts."""


class TextChannel:
    """Posts captions as messages."""

    def __init__(self, channel: discord.abc.Messageable) -> None:
        self._channel = channel

    async def post(self, caption: Caption) -> None:
        """Send it. discord.py waits where Discord limits the rate of messages."""
        text = f"**{discord.utils.escape_markdown(caption.speaker)}**: {caption.text}"[:MAX_MESSAGE]
        try:
            # What is spoken must not notify everyone.
            await self._channel.send(text, allowed_mentions=discord.AllowedMentions.none())
        except discord.HTTPException as error:
            sys.stderr.write(f"a caption was not posted: {error}\n")


class Sink(voice_recv.AudioSink):
    """Receives the packets of all members on a thread of the extension, and passes them on to the event loop."""

    def __init__(self, captioner: Captioner, loop: asyncio.AbstractEventLoop, began_s: float) -> None:
        super().__init__()
        self._captioner = captioner
        self._loop = loop
        self._began_s = began_s
        self._members: dict[str, int] = {}
        """The member who has each name."""

    def wants_opus(self) -> bool:
        """Whether packets stay compressed: no, 48 kHz stereo PCM is wanted."""
        return False

    def write(self, user: discord.User | discord.Member | None, data: voice_recv.VoiceData) -> None:
        """Take a packet of 20 ms. Its user is unknown until Discord has told who speaks."""
        if user is not None and data.pcm:
            at_s, name = time.monotonic() - self._began_s, user.display_name
            if self._members.setdefault(name, user.id) != user.id:
                # Another member is called so, too. User names differ.
                name = f"{name} ({user.name})"
            self._loop.call_soon_threadsafe(self._captioner.packet, name, data.pcm, at_s)

    def cleanup(self) -> None:
        """Nothing is kept."""


class Bot(discord.Client):
    """Joins a voice channel, and captions it until the bot is closed."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(intents=discord.Intents.default())
        self._args = args

    async def caption(self) -> None:
        """Caption the voice channel once the bot is connected."""
        await self.wait_until_ready()
        voice_channel = await self.fetch_channel(self._args.voice_channel)
        text_channel = await self.fetch_channel(self._args.text_channel)
        if not isinstance(voice_channel, discord.VoiceChannel | discord.StageChannel):
            raise ValueError(f"voice_channel: expected a voice or stage channel, got {type(voice_channel).__name__}")
        if not isinstance(text_channel, discord.abc.Messageable):
            raise ValueError(f"text_channel: expected one that takes messages, got {type(text_channel).__name__}")
        began_s = time.monotonic()
        async with Captioner(self._args.url, TextChannel(text_channel), api_key=self._args.api_key) as captioner:
            client = await voice_channel.connect(cls=voice_recv.VoiceRecvClient)
            client.listen(Sink(captioner, asyncio.get_running_loop(), began_s))
            try:
                while client.is_connected():
                    await asyncio.sleep(TICK_S)
                    await captioner.tick(time.monotonic() - began_s)
            finally:
                await client.disconnect(force=True)


async def run(args: argparse.Namespace) -> None:
    """Log in, and caption until the call or the bot ends."""
    async with Bot(args) as bot:
        connecting = asyncio.create_task(bot.start(args.token))
        captioning = asyncio.create_task(bot.caption())
        done, _ = await asyncio.wait((connecting, captioning), return_when=asyncio.FIRST_COMPLETED)
        captioning.cancel()
        for task in done:
            task.result()


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("voice_channel", type=int, help="the id of the voice channel that is captioned")
    parser.add_argument("text_channel", type=int, help="the id of the channel that captions are posted to")
    parser.add_argument("--token", default=os.environ.get("DISCORD_TOKEN"), help="default: DISCORD_TOKEN")
    parser.add_argument("--url", default="ws://127.0.0.1:8000", help="the server (default: %(default)s)")
    parser.add_argument("--api-key", default=os.environ.get("TUTTI_API_KEY") or None, help="default: TUTTI_API_KEY")
    args = parser.parse_args()
    if not args.token:
        parser.error("--token: expected the token of a bot, got none; or set DISCORD_TOKEN")
    try:
        asyncio.run(run(args))
    except* (tutti.TuttiError, discord.DiscordException, ValueError, OSError) as errors:
        sys.exit(f"from_discord.py: {errors.exceptions[0]}")
    except* KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
