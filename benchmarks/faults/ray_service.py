"""The service on a Ray cluster of several nodes on this machine, and what can be killed of it.

Each node has the processes that a machine of its own would have. The proxies of all nodes share one port: the kernel
chooses the proxy of a new connection, and none that has died. The head may be killed where a Redis keeps what it knows.
"""

import asyncio
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import click
import httpx

from benchmarks import machine
from benchmarks.faults.campaign import Faults
from benchmarks.server import PROBE_S, free_port, running_process
from tutti_server.app.service.settings import Settings

APPLICATION = "tutti"
NODE_MEMORY = 100 << 20
"""The size of each node's object store, in bytes. Windows pass through it, at most 2 MB each."""
NODE_CPUS = 2
SYSTEM_CONFIG = {
    # A node that misses five checks, one a second, is dead.
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5,
    # A busy machine starts several nodes slowly.
    "agent_register_timeout_ms": 120_000,
}
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # The engines of all nodes share the cores of this machine.
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    # No messages of raylets about processes that were killed.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
SERVE_WORKERS = ("ray::ServeController", "ray::ServeReplica", "ray::ProxyActor")
"""The first characters of the commands of Serve's processes. A raylet ends with its agents, its other children."""
N_STARTS = 4
HEAD_AWAY_S = (0.5, 4.0)
"""Shortest and longest time without a head, in seconds."""
READY_TIMEOUT_S = 90.0
"""How long the service may take to be whole again after a fault, in seconds."""
MAX_WAITS = 4
"""How often a fault waits for a process that it can kill."""


class RayService:
    """The service: an engine and a gateway on each node."""

    def __init__(self, cluster: Any, settings: Settings, n_nodes: int) -> None:
        self._cluster = cluster
        self._settings = settings
        self.n_nodes = n_nodes
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.n_added_nodes = 0
        """How often a node was added because Ray did not find room for a replica."""

    def launch(self) -> None:
        from ray import serve

        serve.start(proxy_location="EveryNode", http_options={"host": "127.0.0.1", "port": self._port})
        self._deploy(num_replicas=self.n_nodes)
        if not self._wait_until_ready(self.n_nodes):
            raise RuntimeError(f"the service on Ray is not whole after {READY_TIMEOUT_S:g} s: {self.n_running()}")

    async def start(self) -> None:
        """Not needed: no fault of this module ends the service."""
        raise AssertionError("the service runs")

    def is_running(self) -> bool:
        """Whether the service runs. No fault of this module ends it: a head that is killed is started again."""
        return True

    async def wait_until_ready(self) -> bool:
        """Wait until there is an engine and a gateway for each node, and connections are served.

        Returns whether they are. A node is added first where Ray finds no room, as in `scale`.
        """
        return await self._have_room(self.n_nodes)

    def engines(self) -> list[int]:
        return self._replicas("Engines")

    def gateways(self) -> list[int]:
        return self._replicas("Gateways")

    def proxies(self) -> list[int]:
        return self._workers("ray::ProxyActor")

    async def scale(self, n_replicas: int) -> None:
        """Let Serve start or drain engines and gateways, until there is this number of each.

        After a head was killed, Ray may count a replica that has ended as one that still has its place, and then it
        waits for room without end. Another node gives it that, as an operator would.
        """
        await asyncio.to_thread(self._deploy, num_replicas=n_replicas)
        await self._have_room(n_replicas)

    async def _have_room(self, n_replicas: int) -> bool:
        """Wait for this number of engines and of gateways; add a node if they do not come. Returns whether they do."""
        if await asyncio.to_thread(self._wait_until_ready, n_replicas):
            return True
        await self.add_node()
        self.n_added_nodes += 1
        return await asyncio.to_thread(self._wait_until_ready, n_replicas)

    async def replace_node(self, number: int) -> None:
        """Kill all processes of a node at once, as a power cut would, and start another node."""
        await self.kill_node(number)
        await self.add_node()

    async def kill_node(self, number: int) -> None:
        """Kill all processes of a node at once. Nodes are numbered from 0; the head has no number."""
        node = sorted(self._cluster.worker_nodes, key=lambda each: each.node_id)[number]
        workers = self._children(node)
        await asyncio.to_thread(self._cluster.remove_node, node, allow_graceful=False)
        machine.send(workers, signal.SIGKILL)

    async def kill_head(self, away_s: float) -> None:
        """Kill the head, and start it again after this many seconds. It needs Redis, where it finds the cluster.

        All of it but its raylet, through which this process is connected to the cluster, and the raylet's agents.
        """
        head = self._cluster.head_node
        workers = [pid for pid in self._children(head) if machine.command(pid).startswith(SERVE_WORKERS)]
        await asyncio.to_thread(head.kill_gcs_server)
        # Serve's controller, and the engine, the gateway and the proxy of this node.
        machine.send(workers, signal.SIGKILL)
        await asyncio.sleep(away_s)
        # In this thread: the kernel kills the process when the thread that has started it ends.
        head.start_gcs_server()

    async def add_node(self) -> None:
        await asyncio.to_thread(_with_patience, lambda: self._cluster.add_node(**_node()))

    def _deploy(self, **options: Any) -> None:
        """Deploy engines and gateways with these options of `bind`. Does not wait until they run."""
        from ray import serve

        from tutti_server.plugins.ray.application import bind

        application = bind(self._settings, max_replicas_per_node=1, **options)
        target = serve.RunTarget(application, name=APPLICATION, route_prefix="/")
        serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)

    def _wait_until_ready(self, n_replicas: int) -> bool:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            # While Serve's controller is away, Ray raises no narrower error.
            with suppress(Exception):
                is_whole = self.n_running() == (n_replicas, n_replicas)
                if is_whole and httpx.get(f"{self.url}/readyz", timeout=5.0).status_code == 200:
                    return True
            time.sleep(PROBE_S)
        return False

    def n_running(self) -> tuple[int, int]:
        """How many engines and gateways serve."""
        from ray import serve

        deployments = serve.status().applications[APPLICATION].deployments
        states = [deployments[name].replica_states for name in ("Engines", "Gateways")]
        engines, gateways = (sum(n for state, n in each.items() if state == "RUNNING") for each in states)
        return engines, gateways

    def _replicas(self, deployment: str) -> list[int]:
        return self._workers(f"ray::ServeReplica:{APPLICATION}:{deployment}")

    def _workers(self, title: str) -> list[int]:
        pids = [pid for node in self._cluster.list_all_nodes() for pid in self._children(node)]
        return [pid for pid in pids if machine.command(pid).startswith(title)]

    @staticmethod
    def _children(node: Any) -> list[int]:
        return machine.children(node.all_processes["raylet"][0].process.pid)


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a Redis without persistence until the block is left. Yields its address as Ray wants it."""
    if shutil.which("redis-server") is None:
        raise click.ClickException(
            "expected redis-server, which keeps what the head knows, or --no-head; it is missing"
        )
    port = free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "save": ""}
    command = ["redis-server", *(part for name, value in options.items() for part in (f"--{name}", value))]
    with running_process(command, port, ready_path=""):
        yield f"127.0.0.1:{port}"


@contextmanager
def ray_nodes(n_nodes: int, *, can_lose_head: bool = False) -> Iterator[Any]:
    """Run a Ray cluster of this many nodes, the head among them, until the block is left. Called in the main thread."""
    os.environ.update(ENVIRONMENT)
    # Short, because the path of a Unix socket has at most 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="ray_", dir="/tmp", ignore_cleanup_errors=True) as folder,
        redis_server(Path(folder)) if can_lose_head else nullcontext() as redis,
    ):
        if redis:
            os.environ["RAY_REDIS_ADDRESS"] = redis
        # Ray reads it when it is imported.
        os.environ["RAY_TMPDIR"] = folder
        # Serve sets the level of its log when it is imported.
        import ray.serve
        from ray.cluster_utils import Cluster

        for name in ("ray", "ray.serve"):
            logging.getLogger(name).setLevel(logging.ERROR)
        head = {**_node(), "include_dashboard": False, "_system_config": SYSTEM_CONFIG}
        cluster = _with_patience(lambda: Cluster(initialize_head=True, head_node_args=head))
        try:
            for _ in range(n_nodes - 1):
                _with_patience(lambda: cluster.add_node(**_node()))
            # Later nodes are started in a thread, where no signal handler can be set. They end with the head.
            cluster._shutdown_at_exit = False
            ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


@contextmanager
def ray_service(settings: Settings, n_nodes: int, *, can_lose_head: bool = False) -> Iterator[RayService]:
    """Run the service on a new cluster of this many nodes until the block is left. See `ray_nodes`."""
    with ray_nodes(n_nodes, can_lose_head=can_lose_head) as cluster:
        service = RayService(cluster, settings, n_nodes)
        service.launch()
        yield service


async def kill_one(find: Callable[[RayService], list[int]], service: RayService, random: Random) -> None:
    """One of these processes is killed; Serve starts another. Where there is none, Serve gets time for it."""
    for _ in range(MAX_WAITS):
        if found := find(service):
            machine.send([random.choice(found)], signal.SIGKILL)
            return
        await service.wait_until_ready()
    raise RuntimeError(f"expected a process to kill, got none after {MAX_WAITS} waits of {READY_TIMEOUT_S:g} s")


async def kill_node(service: RayService, random: Random) -> None:
    """A node is killed, with its engine, its gateway and its proxy; another one is started."""
    await service.replace_node(random.randrange(service.n_nodes - 1))


async def kill_head(service: RayService, random: Random) -> None:
    """The head is killed, with Serve's controller and its engine, gateway and proxy; later it is started again."""
    await service.kill_head(random.uniform(*HEAD_AWAY_S))


async def roll_out(service: RayService, random: Random) -> None:
    """Serve drains all engines and gateways one after another, and starts others: a new version with fewer of them."""
    await service.scale(service.n_nodes - 1)
    await service.scale(service.n_nodes)


RAY_FAULTS: Faults[RayService] = {
    "engine killed": (partial(kill_one, RayService.engines), 3.0),
    "gateway killed": (partial(kill_one, RayService.gateways), 3.0),
    "proxy killed": (partial(kill_one, RayService.proxies), 1.0),
    "node killed": (kill_node, 2.0),
    "rolled out": (roll_out, 1.0),
}
HEAD_FAULTS: Faults[RayService] = {"head killed": (kill_head, 1.0)}
"""Faults that a cluster with Redis behind its head survives."""


def _node() -> dict[str, Any]:
    return {"num_cpus": NODE_CPUS, "num_gpus": 0, "object_store_memory": NODE_MEMORY}


def _with_patience(start: Callable[[], Any]) -> Any:
    """What `start` starts. Ray gives a node 30 s, which is not enough on a machine with much other work."""
    for _ in range(N_STARTS - 1):
        # Ray raises no narrower error.
        with suppress(Exception):
            return start()
    return start()
