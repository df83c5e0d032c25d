"""Workloads on `podwire up`: a Deployment until it is available, a rolling update, many Jobs, the controllers at rest.

The controllers run in the API server's process, so that its memory and processor time are theirs, too.
"""

import time
from collections.abc import Iterator

from benchmarks.clusters import Cluster, podwire
from benchmarks.figures import Figure

GROUP = "workloads"
REPLICAS = 10.0
IDLE = 4.0
"""For each second that a measurement may take: pods and seconds. With five, a Deployment has 50 pods."""
MOST_REPLICAS = 50
JOBS = 1000
"""Always as many: fewer do not show how the controllers and the API server bear them."""
SERVER = "pw-apiserver"


def measure(seconds: float) -> Iterator[Figure]:
    count = min(MOST_REPLICAS, max(2, round(REPLICAS * seconds)))
    jobs = JOBS
    with podwire() as cluster:
        before = _usage(cluster)
        deployed = cluster.workload("deploy", "web", count)
        yield Figure(group=GROUP, what=f"Deployment of {count}: all available", value=deployed["seconds"], unit="s")
        yield from _requests(f"Deployment of {count}", deployed, count)
        rolled = cluster.workload("roll", "web", count)
        yield Figure(group=GROUP, what=f"rolling update of {count}", value=rolled["seconds"], unit="s")
        yield from _requests(f"rolling update of {count}", rolled, count)
        cluster.workload("remove", "web")
        ran = cluster.workload("jobs", "job", jobs)
        yield Figure(group=GROUP, what=f"{jobs} Jobs: all complete", value=jobs / ran["seconds"], unit="/s")
        yield from _requests(f"{jobs} Jobs", ran, jobs)
        idle = _usage(cluster)
        time.sleep(IDLE * seconds)
        after = _usage(cluster)
        cluster.workload("remove")
        yield Figure(
            group=GROUP, what=f"API server and controllers with {jobs} Jobs", value=idle["bytes"] / 1e6, unit="MB"
        )
        yield Figure(
            group=GROUP, what="more than at the start", value=(idle["bytes"] - before["bytes"]) / 1e6, unit="MB"
        )
        percent = (after["cpu"] - idle["cpu"]) / (IDLE * seconds) * 100
        yield Figure(group=GROUP, what="API server and controllers at rest", value=percent, unit="%")


def _usage(cluster: Cluster) -> dict[str, float]:
    usages = cluster.usage()
    return next(usage for name, usage in usages.items() if name.startswith(SERVER[:15]))


def _requests(what: str, result: dict[str, dict[str, float]], count: int) -> Iterator[Figure]:
    requests = sum(result["requests"].values())
    yield Figure(group=GROUP, what=f"{what}: requests for each", value=requests / count, unit="")
