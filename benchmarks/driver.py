"""Interfaces that pods claim: what the network driver costs, and how much later such a pod starts than one without.

Both kinds of pods take turns in one cluster; what happened within is read from its trace.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.clusters import Cluster, podwire
from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import CannotMeasure
from podwire.dradriver.manifests import WHOLE, Deployment, network_driver
from podwire.dradriver.names import DRIVER
from podwire.dradriver.parameters import API_VERSION, KIND
from podwire.trace.participants import KUBELET, NETWORK_DRIVER
from podwire.trace.segments import Reader
from podwire.trace.story import Arrow, Stories, Turn

GROUP = "Network driver: a pod with one claimed interface"
LINK, TEMPLATE = "bench0", "bench"
PREPARE, ATTACH, DETACH = "NodePrepareResources", "attach devices", "detach devices"
BUDGETS = {PREPARE: 8.0, ATTACH: 4.0}
LATER_MS = 30.0
ROUNDS = 4.0
"""For each second that a measurement may take."""


@dataclass(slots=True)
class Times:
    """Of pods that came and went one after the other, in seconds."""

    bare: list[float] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)


def measure(seconds: float) -> Iterator[Figure]:
    with podwire("--network-driver") as cluster:
        _lay(cluster)
        times = _take_turns(cluster, max(3, round(ROUNDS * seconds)))
        time.sleep(1)  # the collector writes by and by
        stories = Stories()
        stories.learn(Reader(cluster.trace).more())
        arrows = [arrow for each in stories.all() for arrow in each.arrows]
    yield from within(arrows)
    yield from started(times)


def _lay(cluster: Cluster) -> None:
    """A link to claim, a class, and a template; and the first pod of either kind, which is not counted."""
    cluster.on_node("ip", "link", "add", LINK, "type", "veth", "peer", "name", f"{LINK}p")
    for each in (LINK, f"{LINK}p"):
        cluster.on_node("ip", "link", "set", each, "up")
    cluster.make(*(each for each in network_driver(Deployment()) if each["kind"] == "DeviceClass"), template())
    _take_turns(cluster, 1)


def template() -> dict[str, object]:
    interface = {"name": "net1", "addresses": ["192.0.2.1/24"]}
    parameters = {"apiVersion": API_VERSION, "kind": KIND, "interface": interface}
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].interface == "{LINK}"'}}
    devices = {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": WHOLE, "selectors": [selector]}}],
        "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE, "namespace": "default"},
        "spec": {"spec": {"devices": devices}},
    }


def _take_turns(cluster: Cluster, rounds: int) -> Times:
    times = Times()
    for _ in range(rounds):
        for claim, taken in (("", times.bare), (TEMPLATE, times.claimed)):
            names = cluster.names(1)
            taken.extend(cluster.start(names, token=False, claim=claim).each)
            cluster.delete(names)
    return times


def within(arrows: Sequence[Arrow]) -> Iterator[Figure]:
    """Raises CannotMeasure when the trace does not tell."""
    calls = [each for each in arrows if each.turn is Turn.CALL and each.callee == NETWORK_DRIVER]
    for method, caller in ((PREPARE, KUBELET), (ATTACH, NETWORK_DRIVER), (DETACH, NETWORK_DRIVER)):
        found = [each.took * 1e3 for each in calls if (each.method, each.caller) == (method, caller) and each.took]
        if not found:
            raise CannotMeasure(f"the trace tells of no {method}")
        budget = Peer("budget", BUDGETS[method], 1.0, MEASURED) if method in BUDGETS else None
        yield Figure(group=GROUP, what=f"{method}, p50", value=statistics.median(found), unit=" ms", peer=budget)


def started(times: Times) -> Iterator[Figure]:
    bare, claimed = (statistics.median(each) * 1e3 for each in (times.bare, times.claimed))
    yield Figure(group=GROUP, what="POST → Running with a claim, p50", value=claimed, unit=" ms")
    yield Figure(group=GROUP, what="POST → Running without, p50", value=bare, unit=" ms")
    later = Peer("budget", LATER_MS, 1.0, MEASURED)
    yield Figure(group=GROUP, what="so much later", value=max(claimed - bare, 0.0), unit=" ms", peer=later)
