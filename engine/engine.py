"""The engine as the service sees it: a `CallbackTranscriber` whose work is done by one thread.

It is the only module of the engine that mixes threads with asyncio.
"""

import asyncio
import gc
import logging
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from functools import partial

from tutti_server.engine.api import EngineEvent, EngineStats, ModelInfo, Window
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.errors import EngineFailed, InvalidWindow
from tutti_server.engine.event_stream import Inbox
from tutti_server.engine.gpu_readings import GpuReadings, read_gpu
from tutti_server.engine.model_card import card_of
from tutti_server.engine.runner import Runner, load_runner
from tutti_server.engine.scheduling.request import Item, Request
from tutti_server.engine.scheduling.worker import Worker
from tutti_server.engine.validation import check_options, check_samples

logger = logging.getLogger(__name__)

HANGS_AFTER_S = 60.0
"""An engine that has windows in hand and has begun no step for this many seconds hangs, for example in a kernel.

A step on a GPU may first compile kernels, which takes seconds for each.
"""
SLOWEST_STEP = 10.0
"""A step has this many times what the largest encoder call should take in addition.

With a large model on a CPU, calls, prompts of many windows and their alignment take minutes; on a GPU it is a second.
"""
PROGRESS_CHECK_S = 1.0
"""How often that is looked at, in seconds."""
_SWITCH_INTERVAL_S = 0.00005
"""How long a thread may keep Python's interpreter while another thread waits for it, in seconds; the default is 5 ms.

Every tensor operation releases the interpreter, and the engine's thread would then wait this long for it.
"""


class EngineHangs(Exception):
    """The thread of the engine has begun no step for long."""


class Engine:
    """Transcribes windows with one model on one device. `Engine.start` makes it; one event loop uses it."""

    def __init__(
        self, runner: Runner, config: EngineConfig, loop: asyncio.AbstractEventLoop, ended: asyncio.Event
    ) -> None:
        """Warm the runner up. The thread that will use it must call this, and sets `ended` when it is done."""
        self._checkpoint = runner.checkpoint
        self._info = _describe(runner, config)
        self._loop = loop
        self._ended = ended
        speed = runner.warm_up().shared(config.gpu_share)
        self._thread_id = threading.get_ident()
        self.hangs = False
        """Whether the engine was given up because its thread hangs."""
        worker = Worker(runner, config, speed, self._deliver)
        self._queue = worker.queue
        self._worker: Worker | None = worker
        """It holds the model and the slots; `None` once it has ended."""
        self._last_stats = worker.snapshot()
        """The counters at its end."""
        # After the warm-up, as another thread must not disturb the capture of graphs.
        self._gpu = GpuReadings(partial(read_gpu, runner.device)) if runner.device.type == "cuda" else None

    @classmethod
    @asynccontextmanager
    async def start(
        cls, config: EngineConfig, load: Callable[[EngineConfig], Runner] = load_runner
    ) -> AsyncIterator["Engine"]:
        """Load the model and serve until the context is left; open windows then fail with `EngineFailed`.

        Loading happens in the engine's thread, so the event loop goes on. It cannot be interrupted: if this is
        cancelled in the meantime, it waits for the loading to end.

        Raises:
            CheckpointError: the model cannot be loaded.
        """
        loop = asyncio.get_running_loop()
        loaded: asyncio.Future[Engine] = loop.create_future()
        ended = asyncio.Event()

        def main() -> None:
            try:
                runner = load(config)
                # Python searches old objects for garbage when their number has grown by a quarter: beside those of
                # PyTorch only after thousands of sessions, each of which leaves buffers of 30 kB.
                gc.freeze()
                engine = cls(runner, config, loop, ended)
                if engine.info.device == "cuda":
                    _prepare_interpreter()
            except BaseException as error:  # such as a panic of a library in Rust: who starts the engine waits for it
                _post(loop, loaded.set_exception, error)
            else:
                if _post(loop, loaded.set_result, engine):
                    engine._run()
            finally:
                _post(loop, ended.set)

        # A daemon does not delay the exit of an interpreter that leaves the context open.
        thread = threading.Thread(target=main, name="tutti-engine", daemon=True)
        thread.start()
        watch: asyncio.Task[None] | None = None
        try:
            engine = await asyncio.shield(loaded)
            watch = asyncio.create_task(engine._watch())
            yield engine
        finally:
            loaded.add_done_callback(_close)
            await ended.wait()
            if watch:
                watch.cancel()
            # A thread that hangs ends with the process; the device may wait for it, too.
            if not (watch and engine.hangs):
                thread.join()
                gc.unfreeze()
                if loaded.exception() is None and loaded.result().info.device == "cuda":
                    _return_device_memory()

    @property
    def info(self) -> ModelInfo:
        """The model that is loaded."""
        return self._info

    @property
    def is_alive(self) -> bool:
        """Whether the engine runs: false once it has failed or was closed."""
        return not self._queue.is_closed

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of other engines: none, as this is the only one."""
        return ()

    @property
    def is_lost(self) -> bool:
        """Whether the engine does not run any more, which is final."""
        return not self.is_alive

    async def ended(self) -> EngineFailed:
        """Wait until the engine has died or was closed. Returns the error with which all windows fail after that."""
        await self._ended.wait()
        return self._queue.closed_error()

    def stats(self) -> EngineStats:
        """Return the engine's counters."""
        worker = self._worker
        stats = worker.snapshot() if worker else self._last_stats
        return replace(stats, gpu=self._gpu.latest) if self._gpu and self.is_alive else stats

    @asynccontextmanager
    async def submit(self, window: Window) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        """See `Transcriber.submit`."""
        check_samples(window)
        events = Inbox()
        cancel = self.begin(window, events.put)
        try:
            yield events
        finally:
            cancel()

    def begin(self, window: Window, put: Callable[[Item], None]) -> Callable[[], None]:
        """See `CallbackTranscriber.begin`."""
        request = Request(window=window, max_tokens=check_options(window.options, self._checkpoint), put=put)
        if request.n_slots > self._info.n_slots:
            beam_size = window.options.sampling.beam_size
            raise InvalidWindow("beam_size", f"at most {self._info.n_slots}, the slots of this engine", beam_size)
        worker = self._worker
        if worker is None:
            raise self._queue.closed_error()
        worker.submit(request)
        return partial(worker.cancel, request)

    def _run(self) -> None:
        """Work until closed, then let go of the model and the slots. The engine itself may live on."""
        worker = self._worker
        assert worker
        try:
            worker.run()
        finally:
            if self._gpu:
                self._gpu.close()
        self._last_stats, self._worker = worker.snapshot(), None

    async def _watch(self) -> None:
        """Give the engine up when its thread hangs. Without that, windows would wait and nothing would replace it."""
        before, still_s, call_s = None, 0.0, 0.0
        while still_s < HANGS_AFTER_S + SLOWEST_STEP * call_s:
            # What counts is how often it was looked at, as the whole process may stand still for a while.
            await asyncio.sleep(PROGRESS_CHECK_S)
            progress, call_s = self._worker.progress if self._worker else (None, 0.0)
            still_s = still_s + PROGRESS_CHECK_S if progress is not None and progress == before else 0.0
            before = progress
        self.hangs = True
        frame = sys._current_frames().get(self._thread_id)
        place = "".join(traceback.format_stack(frame)) if frame else ""
        logger.error("the engine has begun no step for %.0f s, and is given up; its thread is at\n%s", still_s, place)
        if self._worker:
            self._worker.fail_open_requests(EngineHangs())
        self._ended.set()

    def _deliver(self, items: list[tuple[Request, Item]]) -> None:
        _post(self._loop, _dispatch, items)


def _prepare_interpreter() -> None:
    """Keep Python's own pauses short beside a GPU.

    The garbage collector does not search the graphs either, and a busy event loop releases the interpreter sooner.
    """
    gc.freeze()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def _return_device_memory() -> None:
    """Give the memory of a GPU back that nothing uses any more, so that others find it free."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def _dispatch(items: list[tuple[Request, Item]]) -> None:
    for request, item in items:
        request.put(item)


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> bool:
    """Schedule a callback on the loop, from this thread. Returns false where the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True


def _close(loaded: "asyncio.Future[Engine]") -> None:
    if loaded.exception() is None:
        loaded.result()._queue.close()


def _describe(runner: Runner, config: EngineConfig) -> ModelInfo:
    card = card_of(runner.checkpoint, config.served_names)
    return ModelInfo(
        **{each.name: getattr(card, each.name) for each in fields(card)},
        device=runner.device.type,
        dtype=runner.dtype,
        n_parameters=runner.n_parameters,
        n_slots=runner.slots.n_free,
        max_encode_batch=config.max_encode_batch,
    )
