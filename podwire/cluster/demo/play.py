"""Plays the demo: a whole cluster in five acts, or the API server alone."""

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from podwire.cluster.demo import api_server, api_tour, demo_cluster
from podwire.cluster.demo.acts import Act, acts
from podwire.cluster.demo.acts.act import DemoContext
from podwire.cluster.demo.comparison import comparison
from podwire.cluster.demo.shell import shell
from podwire.cluster.demo.signals import SignalGuard
from podwire.cluster.demo.step import Step
from podwire.cluster.demo.step_runner import ActStarted, DemoEvent, StepFinished, StepStarted, Summary, played
from podwire.cluster.tracing import CollectorOptions
from podwire.linux.proc.processes import memory_of

HARDWARE = "two-numa"
"""The profile of the node's simulated network cards and GPUs."""

DemoEvents = Generator[DemoEvent, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What a visitor wants to see."""

    only: int = 0
    """One act; 0 is all of them."""
    keep: bool = False
    form: str = "text"
    """How diagrams are drawn."""
    columns: int = 120


def play(wish: DemoOptions, stops: SignalGuard) -> DemoEvents:
    """A cluster, and on it the acts: each step before and after, then the closing.

    Raises Failed, NoKubectl, NotCleared; the stage is gone by then, but for what NotCleared tells.
    """
    begin = time.perf_counter()
    with demo_cluster.staged(keep=wish.keep) as layout:
        typing = shell(layout.prefix, layout.kubeconfig, stops, wish.columns)
        context = DemoContext(layout=layout, minor=typing.minor, form=wish.form)
        wanted = [act for act in acts(context) if wish.only in (0, act.number)]

        def log() -> str:
            return demo_cluster.log_tails(layout)

        with contextlib.ExitStack() as running:
            yield from played(typing, first_steps(context), log, running)
            for act in wanted:
                yield ActStarted(act.number, act.title, act.sentence)
                yield from played(typing, act.steps, log, running)
            memory = demo_cluster.memory_bytes(layout)
            table = comparison(wanted, CollectorOptions.below(layout.prefix).directory, wish.columns)
        yield from played(typing, [] if wish.keep else last_steps(context), log, contextlib.ExitStack())
        stops.heed()  # a cluster that stays is one that somebody was told of
        yield _closing(context, wanted, time.perf_counter() - begin, memory, table)


def _closing(
    context: DemoContext, played_acts: Sequence[Act], seconds: float, memory: int, table: Sequence[str]
) -> Summary:
    layout = context.layout
    return Summary(
        seconds=seconds,
        memory_bytes=memory,
        kubeconfig=layout.kubeconfig,
        visits=(
            f"kubectl --kubeconfig {layout.kubeconfig} apply -f {layout.prefix}/web.yaml",
            f"podwire trace {played_acts[0].pod} --prefix {layout.prefix}",
        ),
        end=f"podwire down --prefix {layout.prefix} && rm -r {layout.prefix}",
        table=table,
    )


def play_api(wish: DemoOptions, stops: SignalGuard) -> DemoEvents:
    """The API server alone, without a cluster. Raises NotUp besides."""
    begin = time.perf_counter()
    with api_server.staged(stops, keep=wish.keep) as stage, contextlib.ExitStack() as running:
        typing = shell(stage.folder, stage.kubeconfig, stops, wish.columns)
        start = StepStarted(
            "start",
            "An API server starts, with a new certificate authority and an empty SQLite store.",
            f"{stage.command} &\nexport KUBECONFIG={stage.kubeconfig}",
        )
        yield start
        stage.wait_until_up(begin)
        output = f"{stage.url} is ready after {stage.ready_ms:.0f} ms"
        yield StepFinished(scene=start, exit_code=0, output=output, shown=[output], milliseconds=stage.ready_ms)
        yield from played(typing, api_tour.steps(typing.minor), stage.log_tail, running)
        stops.heed()
        yield Summary(
            seconds=time.perf_counter() - begin,
            memory_bytes=memory_of(stage.process.pid),
            kubeconfig=stage.kubeconfig,
            visits=(f"kubectl --kubeconfig {stage.kubeconfig} get pods",),
            end=f"kill {stage.process.pid} && rm -r {stage.folder}",
        )


def first_steps(context: DemoContext) -> list[Step]:
    """The steps before the acts: the cluster starts."""
    return [
        Step(
            name="up",
            sentence="Start a cluster: one process per component, a node with its own namespaces, simulated cards.",
            command=context.podwire("up --detach", f"--hardware {HARDWARE}"),
            then=f"export KUBECONFIG={context.layout.kubeconfig}",
            shows="cluster    ready",
        ),
        Step(name="the node", sentence="The node is ready.", command="kubectl get nodes", shows=" Ready "),
    ]


def last_steps(context: DemoContext) -> list[Step]:
    """The steps after the acts, unless the cluster is kept."""
    return [
        Step(
            name="status",
            sentence="Show processes and memory.",
            command=context.podwire("status"),
            since="COMPONENT",
            shows="total",
        ),
        Step(
            name="down",
            sentence="Remove the cluster: processes, namespaces, links, nftables rules, files.",
            command=context.podwire("down"),
            shows="removed the cluster",
        ),
        Step(
            name="leakcheck",
            sentence="Verify that no leftovers of this cluster are on the machine.",
            command=context.podwire("leakcheck"),
            shows="no leftovers",
        ),
    ]
