"""Which processes a cluster consists of, who needs whom, and where each runs."""

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

from podwire.apiserver.pki import PkiError
from podwire.cluster import apiserver, cni_daemon, kubelet, network_driver, runtime, scheduler, tracing
from podwire.cluster.hardware import gpu_driver
from podwire.cluster.hardware.keeping import Keeper
from podwire.cluster.hardware.profile import Profile
from podwire.cluster.up import readiness, views, wiring
from podwire.cluster.up.child import Component, Ready
from podwire.cluster.up.nodespace import NodeSpace
from podwire.cluster.up.prepare import Prepared
from podwire.dradriver.config import Config as NetworkDriver
from podwire.dradriver.inventory.config import BadConfig
from podwire.linux.namespaces import open_namespace
from podwire.nri.errors import NriError
from podwire.nri.host.configuration import BadConfiguration
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.runtime.images import ImageError, Images
from podwire.runtime.images.build import BUSYBOX, ROOT_REFERENCE, build_root
from podwire.runtime.records import NewerRecord
from podwire.store import BadUrl, CannotOpen
from podwire.transports.unix import CannotListen

LOOPBACK = "127.0.0.1"
NODES = "system:nodes"
IMAGE = ROOT_REFERENCE


@dataclass(frozen=True, slots=True)
class _Places:
    """Paths as the node sees them: where it has namespaces of its own, the prefix is not in them."""

    prefix: Path

    @property
    def state(self) -> Path:
        return self.prefix / "var/lib/podwire"

    @property
    def run(self) -> Path:
        return self.prefix / "run/podwire"


def components(prepared: Prepared) -> list[Component]:
    """All, in the order in which they are started; they are stopped in the reverse."""
    found = [_trace(prepared), _apiserver(prepared)]
    found += [_hardware(prepared, prepared.state.hardware)] if prepared.state.hardware else []
    found += [_cni(prepared), _runtime(prepared), _image(prepared)] if prepared.state.runtime == "podwire" else []
    found += [_scheduler(prepared), _kubelet(prepared)]
    found += [_gpus(prepared, each) for each in (prepared.state.hardware,) if each is not None and each.gpus]
    found += [_network_driver(prepared, each) for each in (prepared.network_driver,) if each is not None]
    return [*found, _node(prepared)]


def _trace(prepared: Prepared) -> Component:
    async def work(ready: Ready) -> None:
        ready()
        await tracing.collect(tracing.CollectorOptions.below(prepared.layout.prefix, otlp=prepared.otlp))

    return Component(name="trace", work=work, troubles=(OSError, CannotListen))


def _environment(prepared: Prepared, places: _Places | None = None) -> dict[str, str]:
    return {tracing.VARIABLE: str((places.run if places else prepared.layout.run) / "trace.sock")}


def _apiserver(prepared: Prepared) -> Component:
    options = apiserver_options(prepared)

    async def work(ready: Ready) -> None:
        async with apiserver.running(options):
            ready()
            await asyncio.Event().wait()

    return Component(
        name="apiserver",
        work=work,
        needs=("trace",),
        environment=_environment(prepared),
        troubles=(OSError, PkiError, BadUrl, CannotOpen),
    )


def apiserver_options(prepared: Prepared) -> apiserver.Options:
    """On the loopback for the host, on the bridge for nodes and pods."""
    layout, slot, node = prepared.layout, prepared.slot, prepared.node
    gateways = tuple(str(each.ip) for each in slot.gateways(ipv6=prepared.ipv6)) if node.own else ()
    host = gateways[0] if node.own else ""
    return apiserver.Options(
        data_dir=layout.state / "apiserver",
        host=LOOPBACK,
        port=slot.api_port,
        also=gateways,
        store_url=prepared.state.store or None,
        kubeconfig=layout.kubeconfig,
        service_network=slot.services,
        kubelet_authority=layout.state / "apiserver/pki/ca.crt",
        identities=(
            apiserver.Identity(user="system:kube-scheduler", kubeconfig=layout.identity("scheduler")),
            apiserver.Identity(
                user=f"system:node:{node.name}", groups=(NODES,), kubeconfig=layout.identity("kubelet"), host=host
            ),
            apiserver.Identity(user="system:podwire-nri-network", kubeconfig=layout.identity("nri-network"), host=host),
            apiserver.Identity(
                user="system:podwire-network-driver", kubeconfig=layout.identity("network-driver"), host=host
            ),
            apiserver.Identity(user="system:podwire-gpu-driver", kubeconfig=layout.identity("gpu-driver"), host=host),
        ),
        servings=(
            apiserver.Serving(
                name=node.name,
                ips=(LOOPBACK, *node_ips(prepared)),
                certificate=layout.state / "kubelet/serving.crt",
                key=layout.state / "kubelet/serving.key",
            ),
        ),
    )


def node_ips(prepared: Prepared) -> tuple[str, ...]:
    """The addresses that the node registers with."""
    if not prepared.node.own:
        return prepared.host_ips
    return tuple(str(each.ip) for each in prepared.slot.addresses(prepared.node.number, ipv6=prepared.ipv6))


def _inside(prepared: Prepared) -> _Places:
    return _Places(Path("/") if prepared.node.own else prepared.layout.prefix)


def _cni(prepared: Prepared) -> Component:
    """Does what the plugins are asked; without it each of them would start an interpreter of its own."""
    options = cni_daemon.Options(socket=_inside(prepared).run / "cni.sock")

    async def work(ready: Ready) -> None:
        async with cni_daemon.running(options):
            ready()
            await asyncio.Event().wait()

    return Component(
        name="cni",
        work=work,
        node=prepared.space(),
        environment=_environment(prepared, _inside(prepared)),
        troubles=(OSError, CannotListen),
    )


def _hardware(prepared: Prepared, profile: Profile) -> Component:
    """Keeps the node's simulated cards whole."""
    space = NodeSpace(prepared.layout, prepared.node.name)
    opened: list[int] = []

    async def work(ready: Ready) -> None:
        keeper = Keeper(profile, opened[0], wiring.mark_of(prepared.layout))
        keeper.settle()
        ready()
        await keeper.run()

    return Component(
        name="hardware",
        work=work,
        before=lambda: opened.append(open_namespace(space.switch)),
        node=space,
        troubles=(OSError,),
    )


def _gpus(prepared: Prepared, profile: Profile) -> Component:
    """The driver of the node's simulated GPUs."""
    kubeconfig = _inside(prepared).state / "identities/gpu-driver.kubeconfig"

    async def work(ready: Ready) -> None:
        ready()
        await gpu_driver.drive(profile, prepared.node.name, kubeconfig)

    return Component(
        name="gpu-driver",
        work=work,
        needs=("apiserver",),
        node=prepared.space(),
        environment=_environment(prepared, _inside(prepared)),
        troubles=(OSError, BadKubeconfig, CannotListen),
    )


def _network_driver(prepared: Prepared, config: NetworkDriver) -> Component:
    """The node's interfaces as devices that pods claim."""
    inside = _inside(prepared)
    options = network_driver.Options(
        node=prepared.node.name,
        kubeconfig=inside.state / "identities/network-driver.kubeconfig",
        config=config,
        state=inside.state / "network-driver",
        cdi=inside.prefix / "run/cdi",
    )

    async def work(ready: Ready) -> None:
        ready()
        await network_driver.run(options)

    return Component(
        name="network-driver",
        work=work,
        needs=("apiserver",),
        node=prepared.space(),
        environment=_environment(prepared, inside),
        troubles=(OSError, BadKubeconfig, CannotListen, NriError, BadConfig),
    )


def _runtime(prepared: Prepared) -> Component:
    options = replace(views.inside(prepared.layout, own=prepared.node.own), cni_checking=prepared.checking)

    async def work(ready: Ready) -> None:
        async with runtime.running(options):
            ready()
            await asyncio.Event().wait()

    return Component(
        name="runtime",
        work=work,
        needs=("trace",),
        node=prepared.space(),
        environment=_environment(prepared, _inside(prepared)),
        troubles=(OSError, NewerRecord, runtime.NoRuntime, runtime.RunsAlready, CannotListen, BadConfiguration),
    )


def _image(prepared: Prepared) -> Component:
    """One image that can be used at once, made of this host's busybox."""
    store = prepared.layout.state / "images"

    def build() -> None:
        images = Images(store)
        try:
            if images.status(IMAGE) is None and BUSYBOX.exists():
                build_root(images)
        finally:
            images.close()

    async def work(ready: Ready) -> None:
        await asyncio.to_thread(build)
        ready()

    return Component(name="image", work=work, once=True, troubles=(OSError, ImageError))


def _scheduler(prepared: Prepared) -> Component:
    options = scheduler.Options(kubeconfig=prepared.layout.identity("scheduler"))

    async def work(ready: Ready) -> None:
        ready()
        await scheduler.run(options)

    return Component(
        name="scheduler",
        work=work,
        needs=("apiserver",),
        environment=_environment(prepared),
        troubles=(OSError, BadKubeconfig),
    )


def _kubelet(prepared: Prepared) -> Component:
    ours, inside = prepared.state.runtime == "podwire", _inside(prepared)
    options = kubelet.Options(
        kubeconfig=inside.state / "identities/kubelet.kubeconfig",
        runtime_endpoint=f"unix://{inside.run}/cri.sock" if ours else prepared.state.runtime,
        node_name=prepared.node.name,
        node_ips=node_ips(prepared),
        pod_cidrs=tuple(map(str, prepared.slot.pod_ranges(prepared.node.number, ipv6=prepared.ipv6))),
        tls_certificate=inside.state / "kubelet/serving.crt",
        tls_key=inside.state / "kubelet/serving.key",
        client_ca=inside.state / "apiserver/pki/ca.crt",
    )

    async def work(ready: Ready) -> None:
        ready()
        await kubelet.run(options)

    return Component(
        name="kubelet",
        work=work,
        needs=("apiserver", "runtime") if ours else ("apiserver",),
        node=prepared.space(),
        environment=_environment(prepared, inside),
        troubles=(OSError, BadKubeconfig, kubelet.BadEndpoint, kubelet.RunsAlready),
    )


def _node(prepared: Prepared) -> Component:
    """Watches until the node says that it is ready, and ends."""

    begun = time.time()

    async def work(ready: Ready) -> None:
        await readiness.until_ready(prepared.layout.kubeconfig, prepared.node.name, begun)
        ready()

    return Component(
        name="node", work=work, needs=("apiserver", "kubelet"), once=True, troubles=(OSError, BadKubeconfig)
    )
