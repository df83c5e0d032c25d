"""The components of one node."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from podwire.cluster import cni_daemon, kubelet, network_policy, proxy, runtime, tracing
from podwire.cluster.hardware.profile import Profile
from podwire.cluster.up import host_network
from podwire.cluster.up.child import Component, Ready
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.cluster.up.nodes import Node
from podwire.cluster.up.preparation import Prepared
from podwire.durable.records import NewerFormat
from podwire.kubelet.eviction.thresholds import parse_thresholds
from podwire.kubelet.images.garbage_collection import ImageGcSettings
from podwire.linux.proc.namespaces import open_namespace
from podwire.nri.errors import NriError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.settings import BadConfig
from podwire.runtime.cni import CheckSettings
from podwire.transports.unix_sockets import CannotListen

if TYPE_CHECKING:
    from podwire.dradriver.config import Config as NetworkDriver

THRESHOLDS = parse_thresholds(
    "memory.available<100Mi,nodefs.available<5%,nodefs.inodesFree<5%,imagefs.available<5%,imagefs.inodesFree<5%"
)
"""Lower than a kubelet's own: the disk of `up` is a workstation's, often nearly full, and not a node's alone."""
IMAGE_GC = ImageGcSettings(high=95, low=90)


def below_the_kubelet(prepared: Prepared, node: Node) -> list[Component]:
    profile = prepared.state.hardware
    components = [_hardware(node, profile)] if profile is not None else []
    return (
        [*components, _cni(node, policies=prepared.network_policy), _runtime(node, prepared.checking)]
        if prepared.state.runtime == "podwire"
        else components
    )


def kubelet_and_drivers(prepared: Prepared, node: Node) -> list[Component]:
    profile, driver = prepared.state.hardware, prepared.network_driver
    components = [_kubelet(prepared, node)]
    components += [_gpus(node, profile)] if profile is not None and profile.gpus else []
    return [*components, _network_driver(node, driver)] if driver is not None else components


def _environment(node: Node) -> dict[str, str]:
    return {tracing.VARIABLE: str(node.trace_socket), tracing.NODE: node.name}


def _cni(node: Node, *, policies: bool) -> Component:
    component = cni_component(node.name, node.inside, policies=policies)
    return replace(component, name=node.called("cni"), node=node.space, environment=_environment(node))


def cni_component(node: str, inside: Layout, *, policies: bool) -> Component:
    """Executes CNI plugins in one process; without it each plugin starts an interpreter. Enforces network policies."""
    options = cni_daemon.Options(socket=inside.run / "cni.sock")
    kubeconfig, nri_socket = inside.identity("nri-network"), inside.prefix / "run/nri/nri.sock"

    async def work(ready: Ready) -> None:
        async with cni_daemon.running(options):
            ready()
            if policies:
                await network_policy.enforce(node, kubeconfig, nri_socket)
            else:
                await asyncio.Event().wait()

    return Component(name="cni", work=work, troubles=(OSError, CannotListen))


def _hardware(node: Node, profile: Profile) -> Component:
    """Reconciles the simulated network cards of the node."""
    from podwire.cluster.hardware.reconciler import CardReconciler  # noqa: PLC0415 - only where there is hardware

    space = NodeNamespaces(node.layout, node.name)
    opened: list[int] = []

    async def work(ready: Ready) -> None:
        reconciler = CardReconciler(profile, opened[0], host_network.owner_tag(node.layout))
        reconciler.reconcile()
        ready()
        await reconciler.run()

    return Component(
        name=node.called("hardware"),
        work=work,
        before=lambda: opened.append(open_namespace(space.switch)),
        node=space,
        troubles=(OSError,),
    )


def _gpus(node: Node, profile: Profile) -> Component:
    """The DRA driver of the simulated GPUs."""
    from podwire.cluster.hardware import gpu_driver  # noqa: PLC0415 - only where there is hardware

    kubeconfig = node.inside.identity("gpu-driver")
    return _driver(
        node, "gpu-driver", lambda: gpu_driver.drive(profile, node.name, kubeconfig), (BadKubeconfig, CannotListen)
    )


def _network_driver(node: Node, config: "NetworkDriver") -> Component:
    """Publishes network interfaces of the node as DRA devices."""
    from podwire.cluster import network_driver  # noqa: PLC0415 - a tenth of all modules, and few clusters have it

    options = network_driver.Options(
        node=node.name,
        kubeconfig=node.inside.identity("network-driver"),
        config=config,
        state=node.inside.state / "network-driver",
        cdi=node.inside.prefix / "run/cdi",
    )
    return _driver(
        node,
        "network-driver",
        lambda: network_driver.run(options),
        (BadKubeconfig, CannotListen, NriError, BadConfig),
    )


def _driver(
    node: Node, name: str, drive: Callable[[], Awaitable[None]], troubles: tuple[type[BaseException], ...]
) -> Component:
    async def work(ready: Ready) -> None:
        ready()
        await drive()

    return Component(
        name=node.called(name),
        work=work,
        needs=("apiserver",),
        node=node.space,
        environment=_environment(node),
        troubles=(OSError, *troubles),
    )


def _runtime(node: Node, checking: CheckSettings) -> Component:
    component = runtime_component(replace(node.runtime, cni_checking=checking))
    environment = _environment(node)
    return replace(component, name=node.called("runtime"), needs=("trace",), node=node.space, environment=environment)


def runtime_component(options: runtime.Options) -> Component:
    async def work(ready: Ready) -> None:
        async with runtime.running(options):
            ready()
            await asyncio.Event().wait()

    troubles = (OSError, NewerFormat, runtime.NoRuntime, runtime.RunsAlready, CannotListen, BadConfig)
    return Component(name="runtime", work=work, troubles=troubles)


def _kubelet(prepared: Prepared, node: Node) -> Component:
    endpoint, inside = prepared.state.runtime, node.inside
    ours = endpoint == "podwire"
    options = kubelet.Options(
        kubeconfig=inside.identity("kubelet"),
        runtime_endpoint=f"unix://{inside.runtime_socket}" if ours else endpoint,
        node_name=node.name,
        node_ips=node.ips,
        pod_cidrs=tuple(map(str, node.pod_ranges)),
        cluster_dns=(node.slot.dns_address,),
        tls_certificate=inside.state / "kubelet/serving.crt",
        tls_key=inside.state / "kubelet/serving.key",
        eviction_hard=THRESHOLDS,
        image_gc=IMAGE_GC,
        local_path_kubeconfig=inside.identity("local-path"),
        manifests=prepared.manifests,
    )
    metrics = ("0.0.0.0" if node.record.own else "127.0.0.1", proxy.METRICS_PORT)  # a Prometheus of the host reads them
    services = proxy.Options(
        node=node.name,
        kubeconfig=inside.identity("proxy"),
        pods=node.pod_ranges,
        metrics=metrics,
        balancer_pool=prepared.balancer_pool,
    )

    return replace(
        kubelet_component(options, services),
        name=node.called("kubelet"),
        needs=("apiserver", node.called("runtime")) if ours else ("apiserver",),
        node=node.space,
        environment=_environment(node),
    )


def kubelet_component(options: kubelet.Options, services: proxy.Options) -> Component:
    """The kubelet, and in the same process the service proxy: one of its own would cost 18 MB."""

    async def work(ready: Ready) -> None:
        ready()
        serving = asyncio.create_task(proxy.keep_running(services), name="service proxy")
        try:
            await kubelet.run(options)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    troubles = (OSError, BadKubeconfig, kubelet.BadEndpoint, kubelet.RunsAlready)
    return Component(name="kubelet", work=work, troubles=troubles)
