"""Chooses the endpoints of a Service that a node uses: by traffic policies, hints and states. Pure.

Ready endpoints, and if there are none those that serve while they terminate; each policy decides this for itself.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podwire.proxy.values import READY, SERVING, TERMINATING, Endpoint


class Place(NamedTuple):
    """The node that decides."""

    node: str
    zone: str = ""


class Chosen(NamedTuple):
    """The endpoints for the traffic policies Cluster and Local; each is empty if no endpoint is left."""

    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()

    @property
    def exist(self) -> bool:
        """Whether somebody, somewhere in the cluster, could be reached."""
        return bool(self.cluster)


def choose(endpoints: Sequence[Endpoint], place: Place) -> Chosen:
    ready = [endpoint for endpoint in endpoints if endpoint.state & READY]
    cluster = _hinted(ready, place) if ready else _ending(endpoints)
    here = [endpoint for endpoint in ready if endpoint.node == place.node]
    local = here or [endpoint for endpoint in _ending(endpoints) if endpoint.node == place.node]
    return Chosen(tuple(cluster), tuple(local))


def _ending(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Returns the endpoints that still serve and will end."""
    both = SERVING | TERMINATING
    return [endpoint for endpoint in endpoints if not endpoint.state & READY and endpoint.state & both == both]


def _hinted(ready: Sequence[Endpoint], place: Place) -> Sequence[Endpoint]:
    """Returns the endpoints that are meant for this node, else for its zone, else all.

    Hints count only if each endpoint has one, and one of them is for us: their author knew all endpoints.
    """
    if all(endpoint.nodes for endpoint in ready):
        near = [endpoint for endpoint in ready if place.node in endpoint.nodes]
        if near:
            return near
    if all(endpoint.zones for endpoint in ready):
        near = [endpoint for endpoint in ready if place.zone in endpoint.zones]
        if near:
            return near
    return ready
