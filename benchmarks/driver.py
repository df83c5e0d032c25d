"""Interfaces that pods claim: what the network driver costs, and how much later such a pod starts than one without.

Pods of all kinds take turns in one cluster; what happened within is read from its trace. The cable of the interface
that moves ends outside of the node, as cables do.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.clusters import Cluster, podwire
from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.links import moves
from benchmarks.machine import CannotMeasure
from podwire.dradriver.names import DRIVER
from podwire.dradriver.parameters.schema import API_VERSION, KIND
from podwire.dradriver.publish.manifests import SHARED, WHOLE, Deployment, network_driver
from podwire.trace.participants import KUBELET, NETWORK_DRIVER
from podwire.trace.pod_trace import Arrow, PodTraces, Turn
from podwire.trace.segments import Reader

GROUP = "Network driver: a pod with one claimed interface"
LINK, BRIDGE = "bench0", "bench1"
MOVED, MADE, NONE = "moved", "made", ""
"""The kinds of claims: an interface of the host, one created on a bridge, or none."""
CLASSES = {MOVED: (WHOLE, LINK), MADE: (SHARED, BRIDGE)}
WITHOUT = "the same without the bare move"
PREPARE, ATTACH, DETACH = "NodePrepareResources", "attach devices", "detach devices"
CALLERS = {PREPARE: KUBELET, ATTACH: NETWORK_DRIVER, DETACH: NETWORK_DRIVER}
PREPARE_MS, ATTACH_MS, LATER_MS = 8.0, 4.0, 30.0
REST = 0.4
"""Seconds after each pod, for its events to be written: the next pod is measured alone."""
ROUNDS = 2.0
"""For each second that a measurement may take."""

Arrows = Mapping[str, Sequence[Arrow]]
"""By what was claimed."""


@dataclass(slots=True)
class Turns:
    """Results of pods that ran one after the other, by kind of claim."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {NONE: [], MOVED: [], MADE: []})
    pods: dict[str, str] = field(default_factory=dict)
    """The kind of claim, by name of the pod."""
    moves: list[float] = field(default_factory=list)
    """Seconds that the kernel needed to move a link, measured in parallel."""
    hand_overs: list[float] = field(default_factory=list)
    """Seconds from the end of a pod until the next pod runs with its device."""


def measure(seconds: float) -> Iterator[Figure]:
    with podwire("--network-driver") as cluster:
        _lay(cluster)
        turns = _take_turns(cluster, max(3, round(ROUNDS * seconds)))
        time.sleep(1)  # the collector writes by and by
        traces = PodTraces()
        traces.learn(Reader(cluster.trace).more())
        arrows = {
            kind: [arrow for trace in traces.all() if turns.pods.get(trace.name) == kind for arrow in trace.arrows]
            for kind in CLASSES
        }
    bare_move = statistics.median(turns.moves) * 1e3
    yield from within(arrows, bare_move)
    yield from started(turns.seconds, bare_move)
    freed = statistics.median(turns.hand_overs) * 1e3
    yield Figure(group=GROUP, what="device freed → next pod Running, p50", value=freed, unit=" ms")


def _lay(cluster: Cluster) -> None:
    """Creates classes and templates, and runs the first pod of each kind, which is not counted."""
    for command in (
        f"ip link add {LINK} type veth peer name {LINK}p netns 1",
        f"nsenter --net=/proc/1/ns/net ip link set {LINK}p up",
        f"ip link set {LINK} up",
        f"ip link add {BRIDGE} type bridge",
        f"ip link set {BRIDGE} up",
    ):
        cluster.on_node(*command.split())
    classes = (manifest for manifest in network_driver(Deployment()) if manifest["kind"] == "DeviceClass")
    cluster.make(*classes, *map(template, CLASSES))
    _take_turns(cluster, 1)


def template(kind: str) -> dict[str, object]:
    class_, link = CLASSES[kind]
    interface = {"name": "net1", "addresses": ["192.0.2.1/24"]} | ({"kind": "veth"} if kind == MADE else {})
    parameters = {"apiVersion": API_VERSION, "kind": KIND, "interface": interface}
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].interface == "{link}"'}}
    devices = {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": class_, "selectors": [selector]}}],
        "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": kind, "namespace": "default"},
        "spec": {"spec": {"devices": devices}},
    }


def _take_turns(cluster: Cluster, rounds: int) -> Turns:
    turns = Turns()
    for _ in range(rounds):
        for kind, taken in turns.seconds.items():
            names = cluster.names(1)
            turns.pods |= dict.fromkeys(names, kind)
            taken.extend(cluster.start(names, token=False, claim=kind).each)
            cluster.delete(names)
            time.sleep(REST)
        turns.moves += moves(1)
        owner, follower = cluster.names(2)
        cluster.start([owner], token=False, claim=MOVED)
        turns.hand_overs.extend(cluster.hand_over(owner, follower, claim=MOVED).each)
        cluster.delete([follower])
        time.sleep(REST)
    return turns


def within(arrows: Arrows, bare_move: float) -> Iterator[Figure]:
    """`bare_move`: how long the kernel takes to move a link. Raises CannotMeasure when the trace does not tell."""
    both = [arrow for of_kind in arrows.values() for arrow in of_kind]
    prepare = Peer("budget", PREPARE_MS, 1.0, MEASURED)
    yield Figure(group=GROUP, what=f"{PREPARE}, p50", value=_median(both, PREPARE), unit=" ms", peer=prepare)
    made, moved = (_median(arrows.get(kind, ()), ATTACH) for kind in (MADE, MOVED))
    budget, kernel = Peer("budget", ATTACH_MS, 1.0, MEASURED), Peer("kernel", bare_move, None, MEASURED)
    yield Figure(group=GROUP, what="attach one that is made, p50", value=made, unit=" ms", peer=budget)
    yield Figure(
        group=GROUP, what="attach one that moves, beside the bare move, p50", value=moved, unit=" ms", peer=kernel
    )
    yield Figure(group=GROUP, what=WITHOUT, value=moved - bare_move, unit=" ms", peer=budget)
    for kind, what in ((MADE, "detach one that was made, p50"), (MOVED, "detach one that moves back, p50")):
        yield Figure(group=GROUP, what=what, value=_median(arrows.get(kind, ()), DETACH), unit=" ms")


def _median(arrows: Sequence[Arrow], method: str) -> float:
    """Milliseconds."""
    calls = [arrow for arrow in arrows if arrow.turn is Turn.CALL and arrow.callee == NETWORK_DRIVER]
    times = [call.took for call in calls if (call.method, call.caller) == (method, CALLERS[method]) and call.took]
    if not times:
        raise CannotMeasure(f"the trace tells of no {method}")
    return statistics.median(times) * 1e3


def started(seconds: Mapping[str, Sequence[float]], bare_move: float) -> Iterator[Figure]:
    """`bare_move` as above."""
    taken = {kind: statistics.median(times) * 1e3 for kind, times in seconds.items()}
    budget = Peer("budget", LATER_MS, 1.0, MEASURED)
    yield Figure(group=GROUP, what="POST → Running without a claim, p50", value=taken[NONE], unit=" ms")
    for kind, what in ((MADE, "one that is made"), (MOVED, "one that moves")):
        later = taken[kind] - taken[NONE]
        yield Figure(group=GROUP, what=f"POST → Running with {what}, p50", value=taken[kind], unit=" ms")
        yield Figure(group=GROUP, what="so much later", value=later, unit=" ms", peer=budget)
    yield Figure(group=GROUP, what=WITHOUT, value=later - bare_move, unit=" ms", peer=budget)
