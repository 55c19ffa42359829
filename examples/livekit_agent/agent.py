"""A LiveKit agent that hears with tutti: it prints what the user says and where each turn ends.

    agent.py file speech.wav     a call that is played from a WAV file, without a LiveKit server
    agent.py dev                 LiveKit's own commands (console, dev, start), with a LiveKit server

TUTTI_URL is the server (default: http://127.0.0.1:8000) and TUTTI_API_KEY its key, if it has keys.
"""

import argparse
import asyncio
import os
import signal
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from livekit import rtc
from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    ErrorEvent,
    JobContext,
    UserInputTranscribedEvent,
    cli,
    llm,
    stt,
)
from livekit.agents.voice.io import AudioInput
from livekit.plugins import deepgram

URL = os.environ.get("TUTTI_URL", "http://127.0.0.1:8000")
API_KEY = os.environ.get("TUTTI_API_KEY") or "any"
FRAME_S = 0.05


class Listener(Agent):
    """Prints each turn of the user when it is complete."""

    def __init__(self) -> None:
        super().__init__(instructions="You listen.")

    async def on_user_turn_completed(self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage) -> None:
        """Print the turn. An agent with an `llm` and a `tts` answers after this."""
        print(f"turn: {new_message.text_content}", flush=True)


def make_session(http: aiohttp.ClientSession | None = None) -> AgentSession[None]:
    """A session whose ears are tutti. Pass your `llm` and `tts` here as well."""
    # Flux, as it ends turns by what was said; `deepgram.STT` and `openai.STT(use_realtime=True)` work too.
    ears = deepgram.STTv2(base_url=f"{URL}/v2/listen", api_key=API_KEY, http_session=http)
    session: AgentSession[None] = AgentSession(stt=ears, turn_handling={"turn_detection": "stt"})

    @session.on("user_input_transcribed")
    def show(event: UserInputTranscribedEvent) -> None:
        print(f"{'final' if event.is_final else '     '}  {event.transcript}", flush=True)

    return session


server = AgentServer()


@server.rtc_session()
async def entrypoint(ctx: JobContext) -> None:
    """Listen in a room of a LiveKit server."""
    await make_session().start(agent=Listener(), room=ctx.room)


class FileCall(AudioInput):
    """A caller who plays a WAV file, stays silent for a while, and hangs up."""

    def __init__(self, path: Path, speed: float, silence_s: float) -> None:
        super().__init__(label=path.name)
        self.has_ended = asyncio.Event()
        with wave.open(str(path), "rb") as reader:
            if (reader.getnchannels(), reader.getsampwidth()) != (1, 2):
                raise ValueError(
                    f"{path}: expected a mono WAV file of 16 bits; ffmpeg -i {path} -ac 1 out.wav makes one"
                )
            self._rate = reader.getframerate()
            self._audio = reader.readframes(reader.getnframes())
        self._speed = speed
        self._silence_s = silence_s
        self._frames = self._play()

    async def __anext__(self) -> rtc.AudioFrame:
        return await anext(self._frames)

    async def _play(self) -> AsyncIterator[rtc.AudioFrame]:
        n_bytes = 2 * round(self._rate * FRAME_S)
        for begin in range(0, len(self._audio) - n_bytes + 1, n_bytes):
            yield rtc.AudioFrame(self._audio[begin : begin + n_bytes], self._rate, 1, n_bytes // 2)
            await asyncio.sleep(FRAME_S / self._speed)
        for _ in range(round(self._silence_s / FRAME_S)):
            yield rtc.AudioFrame(bytes(n_bytes), self._rate, 1, n_bytes // 2)
            await asyncio.sleep(FRAME_S)
        self.has_ended.set()


async def call(args: argparse.Namespace) -> None:
    """Let the agent hear a file."""
    caller = FileCall(args.recording, args.speed, args.silence)
    async with aiohttp.ClientSession() as http:
        session = make_session(http)
        problems: list[str] = []

        @session.on("error")
        def end(event: ErrorEvent) -> None:
            # LiveKit has tried several times; in a room it goes on trying.
            if isinstance(event.error, stt.STTError) and not event.error.recoverable:
                problems.append(str(event.error.error))
                caller.has_ended.set()

        # Ctrl-C hangs up, so that LiveKit ends in order.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, caller.has_ended.set)
        session.input.audio = caller
        await session.start(agent=Listener())
        await caller.has_ended.wait()
        await session.aclose()
    if problems:
        raise ValueError(problems[0])


def main() -> None:
    """Play a file, or leave the arguments to LiveKit."""
    if sys.argv[1:2] != ["file"]:
        cli.run_app(server)
        return
    parser = argparse.ArgumentParser(prog="agent.py file", description="Play a WAV file to the agent.")
    parser.add_argument("recording", type=Path, help="a mono WAV file of 16 bits")
    parser.add_argument("--speed", type=float, default=1.0, help="1 plays it in real time")
    parser.add_argument("--silence", type=float, default=5.0, help="seconds until the caller hangs up afterwards")
    args = parser.parse_args(sys.argv[2:])
    if not args.speed > 0:
        parser.error(f"--speed: expected a number above 0, got {args.speed:g}")
    try:
        asyncio.run(call(args))
    except (ValueError, wave.Error, OSError) as error:
        sys.exit(f"agent.py: {error}")


if __name__ == "__main__":
    main()
