"""Starts an engine once, so that what it fetches and compiles is there when a server starts."""

import time
from dataclasses import replace

import numpy as np
from rich.console import Console

from tutti_server.app.cli.processes import loading_engine
from tutti_server.app.service.settings import Settings
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE


async def prepare_engines(settings: Settings, out: Console) -> None:
    """Start the engine of each model, transcribe a second of silence, and end it, one after another."""
    for model in settings.models:
        begin_s = time.monotonic()
        async with loading_engine(replace(settings, model=model)) as engine:
            ready_s = time.monotonic()
            window = api.Window(
                samples=np.zeros(SAMPLE_RATE, dtype=np.float32), session="warm", channel=0, priority=api.Priority.FILE
            )
            async with engine.submit(window) as events:
                async for _ in events:
                    pass
            answered_s = time.monotonic()
            info = engine.info
            out.print(
                f"{info.name} on {info.device} in {info.dtype}: ready after {ready_s - begin_s:.1f} s, "
                f"and a window of a second after {answered_s - ready_s:.2f} s more.",
                soft_wrap=True,
            )
