"""What the PodMeshes of a pod come to: one for each direction, the oldest. Pure."""

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
    """Where the connections of one direction go, and who says so."""

    direction: Direction
    proxy: Proxy
    owners: tuple[Head, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be in the pod's namespace, and what cannot be."""

    inbound: Redirection | None = None
    outbound: Redirection | None = None
    problems: tuple[Problem, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is to be there."""
        return self.inbound is not None or self.outbound is not None


NOTHING = Plan()


def plan(pod: Pod, resources: Iterable[PodMesh | Broken]) -> Plan:
    """For one pod, from all PodMeshes that are known."""
    chosen = concerning(pod, resources, MESH)
    problems = missing(pod, chosen, MESH, KIND)
    ways: dict[str, Redirection] = {}
    for each in chosen:
        if isinstance(each, Broken):
            problems += broken(each)
            continue
        for name, direction in (("inbound", each.inbound), ("outbound", each.outbound)):
            if direction is not None:
                problems += _taken(name, Redirection(direction, each.proxy, (each.head,)), ways)
    return Plan(ways.get("inbound"), ways.get("outbound"), tuple(problems))


def _taken(name: str, wanted: Redirection, ways: dict[str, Redirection]) -> list[Problem]:
    """Take the place of a direction, or share it with those that want the same."""
    other = ways.setdefault(name, wanted)
    [head] = wanted.owners
    if (other.direction, other.proxy) != (wanted.direction, wanted.proxy):
        reason = f"{name} connections go to port {other.direction.port}, as {other.owners[0]} says, which is older"
        return [Problem(head, Why.CONFLICT, f"spec.{name}", reason)]
    if other is not wanted:
        ways[name] = Redirection(other.direction, other.proxy, (*other.owners, head))
    return []
