"""Plays a demo in one of two acts: a whole cluster, or the API server alone."""

import time
from collections.abc import Generator
from enum import Enum

from podwire.cluster.demo import api_stage, api_tour, cluster_stage, cluster_tour
from podwire.cluster.demo.scenes import Closing, Played, Scene, Told, played
from podwire.cluster.demo.shell import shell
from podwire.cluster.demo.stops import Stops
from podwire.cluster.processes import memory_of

Telling = Generator[Told, None, None]


class Act(Enum):
    CLUSTER = "cluster"
    API = "api"


def play(act: Act, stops: Stops, *, keep: bool, columns: int) -> Telling:
    """Each step before and after, then the closing. Raises Failed, NoKubectl, NotUp, NotCleared; the stage is gone
    by then, but for what NotCleared tells."""
    begin = time.perf_counter()
    if act is Act.API:
        return _api(stops, begin, keep=keep, columns=columns)
    return _cluster(stops, begin, keep=keep, columns=columns)


def _cluster(stops: Stops, begin: float, *, keep: bool, columns: int) -> Telling:
    with cluster_stage.staged(keep=keep) as layout:
        typing = shell(layout.prefix, layout.kubeconfig, stops, columns)

        def log() -> str:
            return cluster_stage.log_tails(layout)

        yield from played(typing, cluster_tour.steps(layout, typing.minor), log)
        memory = cluster_stage.memory_bytes(layout)
        yield from played(typing, [] if keep else cluster_tour.endings(layout), log)
        stops.heed()  # a cluster that stays is one that somebody was told of
        yield Closing(
            seconds=time.perf_counter() - begin,
            memory_bytes=memory,
            kubeconfig=layout.kubeconfig,
            visits=(
                f"kubectl --kubeconfig {layout.kubeconfig} apply -f {layout.prefix}/web.yaml",
                f"podwire trace web --prefix {layout.prefix}",
            ),
            end=f"podwire down --prefix {layout.prefix} && rm -r {layout.prefix}",
        )


def _api(stops: Stops, begin: float, *, keep: bool, columns: int) -> Telling:
    with api_stage.staged(stops, keep=keep) as stage:
        typing = shell(stage.folder, stage.kubeconfig, stops, columns)
        start = Scene(
            "start",
            "An API server starts, with a new certificate authority and an empty SQLite store.",
            f"{stage.command} &\nexport KUBECONFIG={stage.kubeconfig}",
        )
        yield start
        stage.wait_until_up(begin)
        output = f"{stage.url} is ready after {stage.ready_ms:.0f} ms"
        yield Played(scene=start, exit_code=0, output=output, shown=[output], milliseconds=stage.ready_ms)
        yield from played(typing, api_tour.steps(typing.minor), stage.log_tail)
        stops.heed()
        yield Closing(
            seconds=time.perf_counter() - begin,
            memory_bytes=memory_of(stage.process.pid),
            kubeconfig=stage.kubeconfig,
            visits=(f"kubectl --kubeconfig {stage.kubeconfig} get pods",),
            end=f"kill {stage.process.pid} && rm -r {stage.folder}",
        )
