"""Disruption of zones: how fast nodes that stopped answering may get taints that evict their pods. Pure.

Many nodes that fail at once are more likely a broken network between them and the API server than broken nodes. So the
rate depends on the state of the node's zone, with upstream's names and numbers:

| state | when | nodes tainted |
|---|---|---|
| Normal | otherwise | `node_eviction_rate` |
| PartialDisruption | more than 2 nodes, and at least `unhealthy_zone` of all, are not ready | `secondary_eviction_rate` in a zone of more than `large_zone` nodes, else none |
| FullDisruption | no node is ready | as Normal; none if all zones are so, and existing taints are removed |
"""  # noqa: E501 - a table

from collections.abc import Mapping

from podwire.controllers.limits import Limits
from podwire.protocols.k8sapi.watch import Object

NORMAL, PARTIAL, FULL = "Normal", "PartialDisruption", "FullDisruption"
_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_FEWEST_FAILED = 3


def zone_of(node: Object) -> str:
    """Returns region and zone of a node by its labels; nodes without labels share one zone."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    region, zone = (next((labels[key] for key in keys if labels.get(key)), "") for keys in (_REGION, _ZONE))
    return f"{region}/{zone}" if region or zone else ""


class Zones:
    """The nodes by zone, which of them are ready, and when each zone may have its next taint."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._nodes: dict[str, tuple[str, bool]] = {}
        self._next: dict[str, float] = {}

    def observe(self, node: str, zone: str, *, is_ready: bool) -> bool:
        """Returns whether the state of any zone changed."""
        before = self.states()
        self._nodes[node] = zone, is_ready
        return self.states() != before

    def forget(self, node: str) -> bool:
        """Returns whether the state of any zone changed."""
        before = self.states()
        self._nodes.pop(node, None)
        return self.states() != before

    def states(self) -> dict[str, str]:
        ready: dict[str, list[bool]] = {}
        for zone, is_ready in self._nodes.values():
            ready.setdefault(zone, []).append(is_ready)
        return {zone: self._state(nodes) for zone, nodes in ready.items()}

    def _state(self, nodes: list[bool]) -> str:
        failed = nodes.count(False)
        if failed == len(nodes):
            return FULL
        if failed >= _FEWEST_FAILED and failed / len(nodes) >= self._limits.unhealthy_zone:
            return PARTIAL
        return NORMAL

    @property
    def is_all_disrupted(self) -> bool:
        states = self.states()
        return bool(states) and set(states.values()) == {FULL}

    def not_ready(self) -> list[str]:
        return [node for node, (_, is_ready) in self._nodes.items() if not is_ready]

    def rate(self, zone: str) -> float:
        """Returns the nodes per second of a zone that may be tainted."""
        if self.is_all_disrupted:
            return 0.0
        if self.states().get(zone) != PARTIAL:
            return self._limits.node_eviction_rate
        is_large = sum(1 for other, _ in self._nodes.values() if other == zone) > self._limits.large_zone
        return self._limits.secondary_eviction_rate if is_large else 0.0

    def wait(self, node: str, now: float) -> float | None:
        """Returns the seconds until a node may be tainted, None as long as no state changes; 0 takes the turn."""
        zone, _ = self._nodes[node]
        rate = self.rate(zone)
        if not rate:
            return None
        if (left := self._next.get(zone, now) - now) > 0:
            return left
        self._next[zone] = now + 1 / rate
        return 0.0
