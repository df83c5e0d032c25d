"""Plays the demo: a whole cluster in five acts, or the API server alone."""

import contextlib
import shutil
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from podwire.cluster.demo import api_server, api_tour, demo_cluster
from podwire.cluster.demo.acts import Act, acts
from podwire.cluster.demo.acts.act import DemoContext
from podwire.cluster.demo.comparison import comparison
from podwire.cluster.demo.manifests import WITH_REGISTRY, write
from podwire.cluster.demo.shell import shell
from podwire.cluster.demo.signals import SignalGuard
from podwire.cluster.demo.step import Step
from podwire.cluster.demo.step_runner import ActStarted, DemoEvent, StepFinished, StepStarted, Summary, run_steps
from podwire.cluster.tracing import CollectorOptions
from podwire.linux.proc.processes import memory_of

HARDWARE = "two-numa"
"""The profile of the node's simulated network cards and GPUs."""

DemoEvents = Generator[DemoEvent, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the demo."""

    only: int = 0
    """One act; 0 is all of them."""
    keep: bool = False
    form: str = "text"
    """The format of diagrams."""
    columns: int = 120


def play(options: DemoOptions, stops: SignalGuard) -> DemoEvents:
    """Starts a cluster and plays the acts on it; yields events.

    Raises Failed, NoKubectl, NotCleared. The cluster is removed by then, except for what NotCleared names.
    """
    begin = time.perf_counter()
    with demo_cluster.temporary_layout(keep=options.keep) as layout:
        shell_ = shell(layout.prefix, layout.kubeconfig, stops, options.columns)
        registry = all(map(shutil.which, ("docker-registry", "skopeo")))
        if registry:
            write(WITH_REGISTRY, layout.prefix)
        context = DemoContext(layout=layout, minor=shell_.minor, form=options.form, registry=registry)
        chosen = [act for act in acts(context) if options.only in (0, act.number)]

        def log() -> str:
            return demo_cluster.log_tails(layout)

        with contextlib.ExitStack() as running:
            yield from run_steps(shell_, first_steps(context), log, running)
            for act in chosen:
                yield ActStarted(act.number, act.title, act.sentence)
                yield from run_steps(shell_, act.steps, log, running)
            memory = demo_cluster.memory_bytes(layout)
            table = comparison(chosen, CollectorOptions.below(layout.prefix).directory, options.columns)
        yield from run_steps(shell_, [] if options.keep else last_steps(context), log, contextlib.ExitStack())
        stops.heed()  # a cluster is kept only if its summary is printed
        yield _summary(context, chosen, time.perf_counter() - begin, memory, table)


def _summary(
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


def play_api(options: DemoOptions, stops: SignalGuard) -> DemoEvents:
    """Plays the tour of the API server, without a cluster. Raises NotUp besides."""
    begin = time.perf_counter()
    with api_server.api_server(stops, keep=options.keep) as server, contextlib.ExitStack() as running:
        shell_ = shell(server.folder, server.kubeconfig, stops, options.columns)
        start = StepStarted(
            "start",
            "An API server starts, with a new certificate authority and an empty SQLite store.",
            f"{server.command} &\nexport KUBECONFIG={server.kubeconfig}",
        )
        yield start
        server.wait_until_up(begin)
        output = f"{server.url} is ready after {server.ready_ms:.0f} ms"
        yield StepFinished(scene=start, exit_code=0, output=output, shown=[output], milliseconds=server.ready_ms)
        yield from run_steps(shell_, api_tour.steps(shell_.minor), server.log_tail, running)
        stops.heed()
        yield Summary(
            seconds=time.perf_counter() - begin,
            memory_bytes=memory_of(server.process.pid),
            kubeconfig=server.kubeconfig,
            visits=(f"kubectl --kubeconfig {server.kubeconfig} get pods",),
            end=f"kill {server.process.pid} && rm -r {server.folder}",
        )


def first_steps(context: DemoContext) -> list[Step]:
    """The steps before the acts: the cluster starts."""
    return [
        Step(
            name="up",
            sentence="Start a cluster: one process per component, a node with its own namespaces, simulated cards.",
            command=context.podwire("up --detach --network-policy=off", f"--hardware {HARDWARE}"),
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
