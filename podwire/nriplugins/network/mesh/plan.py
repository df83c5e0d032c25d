"""Plans the mesh of a pod: the oldest PodMesh for each direction. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from podwire.nriplugins.network.mesh.resource import KIND, Direction, PodMesh, Proxy
from podwire.nriplugins.network.resources import (
    MESH,
    Broken,
    Head,
    Pod,
    Problem,
    Why,
    broken,
    concerning,
    missing,
)


@dataclass(frozen=True, slots=True)
class Redirection:
    """The proxy of one direction, and the resources that request it."""

    direction: Direction
    proxy: Proxy
    owners: tuple[Head, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The redirections of a pod, and the problems."""

    inbound: Redirection | None = None
    outbound: Redirection | None = None
    problems: tuple[Problem, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is redirected."""
        return self.inbound is not None or self.outbound is not None


NOTHING = Plan()


def plan(pod: Pod, resources: Iterable[PodMesh | Broken]) -> Plan:
    """Plans one pod from all PodMeshes of its namespace."""
    chosen = concerning(pod, resources, MESH)
    problems = missing(pod, chosen, MESH, KIND)
    ways: dict[str, Redirection] = {}
    for resource in chosen:
        if isinstance(resource, Broken):
            problems += broken(resource)
            continue
        for name, direction in (("inbound", resource.inbound), ("outbound", resource.outbound)):
            if direction is not None:
                problems += _taken(name, Redirection(direction, resource.proxy, (resource.head,)), ways)
    return Plan(ways.get("inbound"), ways.get("outbound"), tuple(problems))


def _taken(name: str, requested: Redirection, ways: dict[str, Redirection]) -> list[Problem]:
    """Sets a direction, or adds the resource to the owners of an equal one."""
    other = ways.setdefault(name, requested)
    [head] = requested.owners
    if (other.direction, other.proxy) != (requested.direction, requested.proxy):
        reason = f"{name} connections go to port {other.direction.port}, as {other.owners[0]} says, which is older"
        return [Problem(head, Why.CONFLICT, f"spec.{name}", reason)]
    if other is not requested:
        ways[name] = Redirection(other.direction, other.proxy, (*other.owners, head))
    return []
