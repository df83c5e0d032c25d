"""Whole pods: from POST until a watch shows that they run, and from DELETE until nothing is left of them.

Ours is `podwire up` as it comes. Beside it, in the same run, stands the same cluster with Debian's containerd as its
runtime and the same CNI plugins; the whole Kubernetes was recorded.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.clusters import Cluster, containerd, podwire
from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import CannotMeasure
from benchmarks.pod_steps import Step, average, steps
from benchmarks.runtimes import has_containerd, reference_plugins
from benchmarks.server import PODWIRE
from podwire.trace.pod_trace import PodTraces
from podwire.trace.segments import Reader

KUBE = "Kubernetes 1.36"
START, NO_TOKEN, DELETE = "POST → Running, p50", "POST → Running without a token, p50", "DELETE → gone, p50"
ALL_START, ALL_DELETE = "all Running", "all gone"

RECORDED = {START: 600.0, NO_TOKEN: 352.0, DELETE: 850.0, ALL_START: 12.0}
"""Milliseconds for one, seconds for all: the middle of what was seen, and the best where that was far from it."""
BUDGETS = {START: 120.0, NO_TOKEN: 120.0, DELETE: 150.0, ALL_START: 3.0}
LATER_MS = 88.0
READY = Peer("budget", 1.5, 1.0, MEASURED)
MEMORY = Peer(KUBE, 618.0, 1 / 3)
IDLE_PERCENT = Peer("budget", 1.0, 1.0, MEASURED)
FLAT = 1.2
"""The last pods may take so much longer than the first."""

ROUNDS = 6.0
AT_ONCE = 10.0
IN_A_ROW = 22.0
IDLE = 6.0
"""For each second that a measurement may take: pods, pods, pods and seconds. With five, the node is full in the end."""
COLD_STARTS = 3
ADDRESSES = 3
BACK_OFF = 4.0
"""By then a pod without a sandbox has tried three times and would try again three seconds later."""
FEW_ADDRESSES = f"""
import ipaddress, json, pathlib
(path,) = pathlib.Path("/etc/cni/net.d").glob("*.conflist")
network = json.loads(path.read_text())
(ipam,) = [plugin["ipam"] for plugin in network["plugins"] if "ipam" in plugin]
for (part,) in ipam["ranges"]:
    first = ipaddress.ip_network(part["subnet"])[200]
    part.update(rangeStart=str(first), rangeEnd=str(first + {ADDRESSES - 1}))
path.write_text(json.dumps(network))
"""
"""Leaves the network so many addresses for new pods."""


@dataclass(slots=True)
class Times:
    """Results of pods that ran one after the other, in seconds."""

    start: list[float] = field(default_factory=list)
    no_token: list[float] = field(default_factory=list)
    delete: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Together:
    """Results of pods that ran at the same time, in seconds."""

    start: float
    delete: float
    left: float
    at_once: float
    """Until nothing was left when they had no grace."""
    megabytes: float
    """Usage of everything except the containers, while they ran."""


def measure(seconds: float) -> Iterator[Figure]:
    with contextlib.ExitStack() as stack:
        colds = []
        for _ in range(COLD_STARTS - 1):
            with podwire() as short:
                colds.append(_cold(short))
        ours = stack.enter_context(podwire())
        colds.append(_cold(ours))
        yield from cold_figures(colds)
        yield from _resting(ours, seconds)
        clusters = {"ours": ours}
        if _has_containerd():
            clusters["containerd"] = stack.enter_context(containerd())
        singly = _take_turns(clusters, max(2, round(ROUNDS * seconds)))
        parts = _traced(ours)
        count = max(2, round(AT_ONCE * seconds))
        together = {name: _at_once(cluster, count) for name, cluster in clusters.items()}
        yield from one_at_a_time(singly["ours"])
        yield from many_at_once(together["ours"], count)
        if "containerd" in clusters:
            yield from on_containerd(singly, together, count)
        yield from breakdown(parts)
        yield from in_a_row(_full(ours, max(4, round(IN_A_ROW * seconds))))
        yield from freed(_exhausted(ours, max(2, round(seconds))))


def _has_containerd() -> bool:
    try:
        return has_containerd(reference_plugins())
    except CannotMeasure:
        return False


def _cold(cluster: Cluster) -> tuple[float, float]:
    """Until the node was ready; and from then until the very first pod ran."""
    names = cluster.names(1)
    taken = cluster.start(names).all
    cluster.delete(names)
    return cluster.ready_seconds, taken


def cold_figures(times: Sequence[tuple[float, float]]) -> Iterator[Figure]:
    group = "Cluster, from nothing"
    ready, first = (statistics.median(column) for column in zip(*times, strict=True))
    yield Figure(group=group, what="`podwire up` → node Ready", value=ready, unit=" s", peer=READY)
    yield Figure(group=group, what="the first pod, POST → Running", value=first * 1e3, unit=" ms")


def _resting(cluster: Cluster, seconds: float) -> Iterator[Figure]:
    """Measures an idle cluster."""
    time.sleep(1)  # what the last pod left to be done is done
    before, begin = cluster.usage(), time.perf_counter()
    time.sleep(IDLE * seconds)
    after, taken = cluster.usage(), time.perf_counter() - begin
    group = "Cluster at rest, without pods"

    def rate(what: str) -> float:
        return sum(used[what] - before[name][what] for name, used in after.items() if name in before) / taken

    yield Figure(group=group, what="memory of all components", value=_megabytes(after), unit=" MB", peer=MEMORY)
    yield Figure(group=group, what="processor, all together", value=rate("cpu") * 100, unit=" %", peer=IDLE_PERCENT)
    yield Figure(group=group, what="going to sleep, times a second", value=rate("slept"), unit="")
    for name, used in sorted(after.items()):
        yield Figure(group="Cluster at rest, memory by process", what=name, value=used["bytes"] / 1e6, unit=" MB")


def _megabytes(usage: dict[str, dict[str, float]]) -> float:
    return sum(used["bytes"] for used in usage.values()) / 1e6


def _take_turns(clusters: dict[str, Cluster], rounds: int) -> dict[str, Times]:
    """Pod by pod, so that all meet the same machine. The first of each finds caches cold and does not count."""
    taken = {name: Times() for name in clusters}
    for number in range(rounds + 1):
        for name, cluster in clusters.items():
            times = taken[name] if number else Times()
            for token, started in ((True, times.start), (False, times.no_token)):
                pods = cluster.names(1)
                started.extend(cluster.start(pods, token=token).each)
                done = cluster.delete(pods)
                times.delete += done.each
                times.left.append(done.left)
    return taken


def _at_once(cluster: Cluster, count: int) -> Together:
    names = cluster.names(count)
    start = cluster.start(names).all
    megabytes = _megabytes(cluster.usage())
    ended = cluster.delete(names)
    names = cluster.names(count)
    cluster.start(names)
    return Together(start, ended.all, ended.left, cluster.delete(names, grace=0).left, megabytes)


def _full(cluster: Cluster, count: int) -> list[float]:
    """One after the other, and all of them stay."""
    names = cluster.names(count)
    times = [cluster.start([name]).all for name in names]
    cluster.delete(names, grace=0)
    return times


def _exhausted(cluster: Cluster, rounds: int) -> list[float]:
    """The node has few addresses, and one pod more than those: it waits until another one ends."""
    cluster.on_node(PODWIRE[0], "-c", FEW_ADDRESSES)
    names = cluster.names(ADDRESSES)
    cluster.start(names)
    taken = []
    for _ in range(rounds):
        (waiting,) = cluster.names(1)
        taken.append(cluster.replace(waiting, names.pop(0), after=BACK_OFF))
        names.append(waiting)
    cluster.delete(names, grace=0)
    return taken


def freed(times: Sequence[float]) -> Iterator[Figure]:
    what = "freed address → the pod that waited for it Running, p50"
    value = statistics.median(times) * 1e3
    yield Figure(group="Pods, no address left", what=what, value=value, unit=" ms")


def one_at_a_time(times: Times) -> Iterator[Figure]:
    def figure(what: str, value: float, peer: Peer | None = None) -> Figure:
        return Figure(group="Pods, one at a time", what=what, value=value * 1e3, unit=" ms", peer=peer)

    middle = statistics.median(times.start)
    yield figure(START, middle, recorded(START))
    yield figure("the same, held against what is wanted later", middle, Peer("budget", LATER_MS, 1.0, MEASURED))
    yield figure("POST → Running, p95", _p95(times.start))
    yield figure(NO_TOKEN, statistics.median(times.no_token), recorded(NO_TOKEN))
    yield figure("POST → Running without a token, p95", _p95(times.no_token))
    yield figure(DELETE, statistics.median(times.delete), recorded(DELETE))
    yield figure("DELETE → gone, p95", _p95(times.delete))
    yield figure("DELETE → no container, namespace and lease left, p50", statistics.median(times.left))


def recorded(what: str) -> Peer:
    """The budget is a time, shown as a share of the peer."""
    return Peer(KUBE, RECORDED[what], BUDGETS[what] / RECORDED[what])


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[18]


def many_at_once(times: Together, count: int) -> Iterator[Figure]:
    """Budgets are for fifty."""
    group = f"Pods, {count} at once"
    held = count == round(AT_ONCE * 5)
    peer = recorded(ALL_START) if held else None
    yield Figure(group=group, what=ALL_START, value=times.start, unit=" s", peer=peer)
    yield Figure(group=group, what=ALL_DELETE, value=times.delete, unit=" s")
    yield Figure(group=group, what="no container, namespace and lease left", value=times.left, unit=" s")
    yield Figure(group=group, what="the same without grace", value=times.at_once, unit=" s")
    yield Figure(group=group, what="memory of all but the containers", value=times.megabytes, unit=" MB")


def on_containerd(singly: dict[str, Times], together: dict[str, Together], count: int) -> Iterator[Figure]:
    """Compares our runtime with the other one, under the same API server, scheduler, kubelet and plugins."""

    def figure(what: str, ours: float, theirs: float, unit: str) -> Figure:
        peer = Peer("containerd", theirs, None, MEASURED)
        return Figure(
            group="Pods, our runtime beside containerd under our kubelet", what=what, value=ours, unit=unit, peer=peer
        )

    one, other = singly["ours"], singly["containerd"]
    for what, mine, theirs in (
        (START, one.start, other.start),
        (NO_TOKEN, one.no_token, other.no_token),
        (DELETE, one.delete, other.delete),
    ):
        yield figure(what, statistics.median(mine) * 1e3, statistics.median(theirs) * 1e3, " ms")
    many, others = together["ours"], together["containerd"]
    yield figure(f"{count} at once, {ALL_START}", many.start, others.start, " s")
    yield figure(f"{count} at once, {ALL_DELETE}", many.delete, others.delete, " s")
    yield figure(f"{count} at once, memory of all but them", many.megabytes, others.megabytes, " MB")


def in_a_row(times: Sequence[float]) -> Iterator[Figure]:
    """Whether a pod's start takes longer the more there are."""
    group = f"Pods, the first to number {len(times)}"
    some = max(1, min(10, len(times) // 2))
    first, last = statistics.median(times[:some]) * 1e3, statistics.median(times[-some:]) * 1e3
    yield Figure(group=group, what=f"the first {some}, p50", value=first, unit=" ms")
    peer = Peer("the first", first, FLAT, MEASURED)
    yield Figure(group=group, what=f"the last {some}, p50", value=last, unit=" ms", peer=peer)
    slope = statistics.linear_regression(range(len(times)), times).slope
    yield Figure(group=group, what="more for each pod that is there", value=slope * 1e6, unit=" µs")


def _traced(cluster: Cluster) -> dict[str, Step]:
    """Shows where the time went, by the cluster's own trace of pods that started alone."""
    time.sleep(1)  # the collector writes by and by
    traces = PodTraces()
    traces.learn(Reader(cluster.trace).more())
    return average([measured for trace in traces.all() if (measured := steps(trace.arrows))])


def breakdown(parts: dict[str, Step]) -> Iterator[Figure]:
    for what, step in parts.items():
        yield Figure(group="Where a pod's time goes, by its trace, p50", what=what, value=step.value, unit=step.unit)
