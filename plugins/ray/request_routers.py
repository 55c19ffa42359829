"""How calls find their replica. Serve makes one of these objects for each handle of a deployment.

Serve sends the code of this module to every process that calls a deployment, so each of them has a module of its own:
what the routers learn is in `membership.py`, which all code of a process shares.
"""

import random
import time

from ray.serve.request_router import LocalityMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica

from tutti_server.plugins.ray import membership

N_CHOICES = 2
"""How many replicas, chosen at random, are compared by the calls that they have."""

AVOIDED_S = 1.0
"""How long no call is sent to an engine that has not answered, in seconds."""


class _PublishingRouter(RequestRouter):
    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Note the replicas that serve now. Called by Serve at the start, and after each change."""
        super().update_replicas(replicas)
        members = tuple(membership.Member(each.replica_id.unique_id, each.node_id) for each in replicas)
        membership.of_process.publish(self._deployment_id.name, members)


class EngineRouter(_PublishingRouter):
    """Sends a call to the replica that the argument `replica` names: the caller has chosen it (`ray_transcriber.py`).

    If that replica does not serve any more, or did not answer lately, the call goes to another one, which refuses it.
    """

    def initialize_state(self, **kwargs: object) -> None:
        """Called by Serve after the constructor."""
        self._avoided_until: dict[ReplicaID, float] = {}
        """The replicas that have not answered, and the time until which no call waits for them, in seconds."""

    def on_replica_actor_unavailable(self, replica_id: ReplicaID) -> None:
        """Let no call wait for a replica that has not answered: the calls after it would wait, too. Called by Serve."""
        super().on_replica_actor_unavailable(replica_id)
        self._avoided_until[replica_id] = time.monotonic() + AVOIDED_S

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the only replica that may serve the call."""
        name = pending_request.kwargs["replica"] if pending_request is not None else None
        now_s = time.monotonic()
        usable = [each for each in candidate_replicas if self._avoided_until.get(each.replica_id, 0.0) < now_s]
        named = [each for each in usable if each.replica_id.unique_id == name]
        return [named or usable[:1]]


class GatewayRouter(LocalityMixin, _PublishingRouter):
    """Sends a connection to a gateway of the proxy's own node, and to another one if these are full.

    Of two gateways it takes the one with fewer connections.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return two gateways, of which Serve takes the one with fewer connections."""
        nearest = self.apply_locality_routing(pending_request)
        candidates = [each for each in candidate_replicas if each.replica_id in nearest]
        return [random.sample(candidates, min(N_CHOICES, len(candidates)))]
