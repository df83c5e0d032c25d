"""Cache of claims, volumes and storage classes, with the bindings that were decided and are not written yet.

A volume that was chosen for a claim counts as bound from the moment of the decision (`assume`), so that two pods that
are decided on in a row never get the same one. The assumption ends when the pod's volumes are bound or given up.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.objects import persistent_volumes as storage

Object = Mapping[str, Any]
Ref = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class VolumeDecision:
    """The writes that come before a pod is bound to its node."""

    bindings: tuple[tuple[Object, Object], ...] = ()
    """Volumes, and the claims that get them."""
    provisions: tuple[Object, ...] = ()
    """Claims for which a volume is provisioned on the node."""

    def __bool__(self) -> bool:
        return bool(self.bindings or self.provisions)


@dataclass(slots=True)
class VolumeCache:
    volumes: dict[str, Object] = field(default_factory=dict)
    claims: dict[Ref, Object] = field(default_factory=dict)
    classes: dict[str, Object] = field(default_factory=dict)
    drivers: dict[str, Object] = field(default_factory=dict)
    csi_nodes: dict[str, Object] = field(default_factory=dict)
    capacities: dict[Ref, Object] = field(default_factory=dict)
    known: bool = False
    """Whether all of them have been listed."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the next change."""
    _by_pod: dict[str, tuple[dict[str, Object], dict[Ref, Object]]] = field(default_factory=dict)
    """Assumed volumes and claims by the pod's uid."""

    def claim(self, ref: Ref) -> Object | None:
        """Returns a claim, with a node that was selected for it and is not written yet."""
        for _volumes, claims in self._by_pod.values():
            if ref in claims:
                return claims[ref]
        return self.claims.get(ref)

    def free_volumes(self, class_: str) -> Iterator[Object]:
        """Yields the volumes of a class, as they are with all assumptions."""
        assumed = {name: volume for volumes, _claims in self._by_pod.values() for name, volume in volumes.items()}
        for name, volume in self.volumes.items():
            if storage.class_of_volume(volume) == class_:
                yield assumed.get(name, volume)

    def assume(self, pod: str, node: str, decision: VolumeDecision) -> None:
        volumes: dict[str, Object] = {
            volume["metadata"]["name"]: storage.bound_volume(volume, claim) or volume
            for volume, claim in decision.bindings
        }
        claims: dict[Ref, Object] = {ref_of(claim): with_node(claim, node) for claim in decision.provisions}
        self._by_pod[pod] = (volumes, claims)

    def forget(self, pod: str) -> bool:
        """Ends the assumptions of a pod; returns whether there were any."""
        return self._by_pod.pop(pod, None) is not None

    def notify(self) -> None:
        """Wakes everybody who waits for a change."""
        self.changed.set()
        self.changed = asyncio.Event()

    def limits(self, node: str) -> Mapping[str, int]:
        """Returns how many volumes of each CSI driver can be attached to a node, where it has a limit."""
        drivers: Sequence[Object] = ((self.csi_nodes.get(node) or {}).get("spec") or {}).get("drivers") or ()
        counts = {driver["name"]: (driver.get("allocatable") or {}).get("count") for driver in drivers}
        return {name: count for name, count in counts.items() if count is not None}


def ref_of(claim: Object) -> Ref:
    return claim["metadata"].get("namespace", ""), claim["metadata"]["name"]


def with_node(claim: Object, node: str) -> dict[str, Any]:
    """Returns a claim for which a volume is to be provisioned on a node."""
    marks = {**storage.annotations(claim), storage.SELECTED_NODE: node}
    return {**claim, "metadata": {**claim["metadata"], "annotations": marks}}
