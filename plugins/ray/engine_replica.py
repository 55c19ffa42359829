"""An engine as a replica of a Serve deployment: decodes the windows of all gateways."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from ray import serve

from tutti_server.app.cli.processes import set_up_logging, start_engine
from tutti_server.app.service.settings import Settings
from tutti_server.cluster.engine_pool import EngineGone
from tutti_server.engine.api import EngineEvent, Transcriber, Window
from tutti_server.engine.errors import EngineError, EngineFailed
from tutti_server.engine.process_environment import prepare_environment
from tutti_server.plugins.ray.autoscaling import WorkMeter
from tutti_server.plugins.ray.engine_link import REPORT_PERIOD_S, REPORTS_PER_CALL, Report


class EngineReplica:
    """One engine, in a process of its own. Serve starts it, and another one if it fails.

    Every call names its replica in the argument `replica`, which only the router reads (`request_routers.py`).
    """

    def __init__(self, settings: Settings) -> None:
        prepare_environment()
        set_up_logging(settings)
        self._settings = settings
        self._name = serve.get_replica_context().replica_id.unique_id
        self._readers: dict[str, asyncio.Task[None]] = {}
        """The tasks that read the events of open windows, by the ids of the windows."""
        self._stack = AsyncExitStack()
        self._load = WorkMeter()
        # Serve takes the replica for started when it has passed its first health check.
        self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> Transcriber:
        return await self._stack.enter_async_context(start_engine(self._settings))

    async def check_health(self) -> None:
        """Wait until the engine has started. Called by Serve, which replaces a replica for which this raises.

        Raises:
            EngineError: the engine cannot start, or has died.
        """
        engine = await asyncio.shield(self._starting)
        if not engine.is_alive:
            raise EngineFailed("the engine has died")

    async def decode(self, id: str, window: Window, replica: str) -> AsyncIterator[EngineEvent | EngineError]:
        """Decode a window, and yield its events. The last item is a terminal event or an error, unless it is cancelled.

        The error is `EngineGone` if another engine must decode the window.
        """
        if replica != self._name:
            yield EngineGone(f"the engine {replica} has left", had_window=False)
            return
        engine = await asyncio.shield(self._starting)
        items = asyncio.Queue[EngineEvent | EngineError | None]()
        self._readers[id] = asyncio.create_task(_read(engine, window, items))
        try:
            while (item := await items.get()) is not None:
                yield item
        finally:
            self._readers.pop(id).cancel()

    async def cancel(self, id: str, replica: str) -> None:
        """Drop a window. Without effect if it has ended."""
        if reader := self._readers.get(id):
            reader.cancel()

    async def reports(self, replica: str) -> AsyncIterator[Report]:
        """Yield some reports, one every `REPORT_PERIOD_S`.

        Raises:
            EngineFailed: the engine has died, or has left and this is another one.
        """
        engine = await asyncio.shield(self._starting)
        for _ in range(REPORTS_PER_CALL):
            if replica != self._name or not engine.is_alive:
                raise EngineFailed(f"the engine {replica} has ended")
            yield Report(engine.info, engine.stats())
            await asyncio.sleep(REPORT_PERIOD_S)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The measures by which `autoscaling.py` chooses the number of engines. Called by Serve."""
        engine = await asyncio.shield(self._starting)
        return self._load.measure(engine.stats())


async def _read(engine: Transcriber, window: Window, items: "asyncio.Queue[EngineEvent | EngineError | None]") -> None:
    """Put the events of a window into a queue, then its error if there is one, and then `None`."""
    try:
        async with engine.submit(window) as events:
            async for event in events:
                items.put_nowait(event)
    except EngineError as error:
        is_gone = isinstance(error, EngineFailed) and not engine.is_alive
        items.put_nowait(EngineGone(str(error)) if is_gone else error)
    finally:
        items.put_nowait(None)
