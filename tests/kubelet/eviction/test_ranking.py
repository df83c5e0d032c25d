"""Pods are evicted in upstream's order, with upstream's messages."""

import pytest

from podwire.kubelet.eviction.ranking import message, rank
from podwire.kubelet.eviction.storage_limits import exceeded, limited
from podwire.kubelet.eviction.thresholds import Observation, parse_thresholds
from podwire.kubelet.eviction.usage import ContainerUsage, PodUsage
from podwire.objects import pods

MEBI = 1024**2


def pod(name, priority=0, requests=None, limits=None, volumes=(), **spec):
    container = {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}
    meta = {"name": name, "namespace": "default", "uid": name}
    spec = {"containers": [container], "priority": priority, "volumes": list(volumes), **spec}
    return pods.read({"metadata": meta, "spec": spec})


def used(memory=0, disk=0, **more):
    return PodUsage(containers={"c": ContainerUsage(memory=memory * MEBI, disk=disk * MEBI)}, **more)


@pytest.mark.parametrize("resource", ["memory", "ephemeral-storage"])
def test_pods_above_their_requests_go_first_then_lower_priorities_then_the_largest(resource):
    asks = {resource: "100Mi"}
    ranked = [
        pod("unknown", 5),
        pod("above-low", 0),
        pod("above-high-most", 9, asks),
        pod("above-high", 9, asks),
        pod("below-low", 0, asks),
        pod("below-high", 9, asks),
    ]
    amounts = {"above-low": 10, "above-high-most": 300, "above-high": 101, "below-low": 90, "below-high": 99}
    usage = {name: used(amount, amount) for name, amount in amounts.items()}
    assert rank(reversed(ranked), usage, resource) == ranked


def test_processes_are_ranked_by_priority_and_number():
    ranked = [pod("low-many", 0), pod("low-few", 0), pod("high", 9)]
    usage = {"low-many": PodUsage(pids=9), "low-few": PodUsage(pids=1), "high": PodUsage(pids=99)}
    assert rank(reversed(ranked), usage, "pids") == ranked


def test_the_message_names_threshold_and_containers():
    passed = parse_thresholds("memory.available<100Mi")
    observed = {"memory.available": Observation(50 * MEBI, 1000 * MEBI)}
    assert message(pod("p", requests={"memory": "1Mi"}), used(memory=3), "memory", passed, observed) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container c was using 3Mi, request is 1Mi, has larger consumption of memory. "
    )
    assert message(pod("p", requests={"memory": "5Mi"}), used(memory=3), "memory", passed, observed) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    )
    assert message(pod("p"), None, "pids", (), {}) == "The node was low on resource: pids. "


DISK = {"name": "v", "emptyDir": {"sizeLimit": "5Mi"}}
MEMORY = {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "5Mi"}}


@pytest.mark.parametrize(
    ("asked", "usage", "reason"),
    [
        (pod("p"), used(disk=1000), ""),
        (pod("p", volumes=[DISK]), used(volumes={"v": 5 * MEBI}), ""),
        (
            pod("p", volumes=[DISK]),
            used(volumes={"v": 5 * MEBI + 1}),
            'Usage of EmptyDir volume "v" exceeds the limit "5Mi". ',
        ),
        (pod("p", volumes=[MEMORY]), used(volumes={"v": 6 * MEBI}), ""),
        (pod("p", limits={"ephemeral-storage": "5Mi"}), used(disk=5), ""),
        (
            pod("p", limits={"ephemeral-storage": "5Mi"}),
            used(disk=6),
            "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
        ),
        (
            pod("p", limits={"ephemeral-storage": "5Mi"}),
            used(disk=3, other_disk=3 * MEBI),
            "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
        ),
        (
            pod(
                "p",
                containers=[
                    {"name": "c", "resources": {"limits": {"ephemeral-storage": "5Mi"}}},
                    {"name": "d", "resources": {"limits": {"ephemeral-storage": "50Mi"}}},
                ],
            ),
            used(disk=6),
            'Container c exceeded its local ephemeral storage limit "5Mi". ',
        ),
        (
            pod("p", volumes=[DISK]),
            used(complete=False),
            "Pod ephemeral local storage usage cannot be measured: too many files or directories. ",
        ),
        (pod("p"), used(complete=False), ""),
    ],
)
def test_limits_of_local_storage(asked, usage, reason):
    assert exceeded(asked, usage) == reason


def test_only_limits_that_the_kernel_does_not_enforce_need_measuring():
    assert limited(pod("p", volumes=[DISK]))
    assert limited(pod("p", limits={"ephemeral-storage": "5Mi"}))
    assert not limited(pod("p", volumes=[MEMORY]))
    assert not limited(pod("p", volumes=[{"name": "v", "emptyDir": {}}]))
