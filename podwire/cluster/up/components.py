"""The components of a cluster: what each needs, and where it runs."""

import asyncio
import time
from ipaddress import ip_address, ip_network
from pathlib import Path

from podwire.apiserver.identity.pki import PkiError
from podwire.apiserver.identity.users import COMPONENT_PREFIX, NODE_PREFIX, NODES
from podwire.cluster import apiserver, dns, scheduler, tracing
from podwire.cluster.component_endpoints import Endpoint
from podwire.cluster.join import invitation, machine_network
from podwire.cluster.join.machines import MACHINE, MACHINE_NETWORKS
from podwire.cluster.join.settings import ClusterSettings
from podwire.cluster.up import named_clusters, node_components, readiness, storage_class
from podwire.cluster.up.child import Component, Ready
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.nodes import Node
from podwire.cluster.up.preparation import Prepared
from podwire.dns.publishing import METRICS_PORT
from podwire.nriplugins.network import admin_crds
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.settings import BadConfig
from podwire.runtime.images import ImageError, Images
from podwire.runtime.images.build import BUSYBOX, ROOT_REFERENCE, build_root
from podwire.store import BadUrl, CannotOpen
from podwire.transports.dns_sockets import Listeners
from podwire.transports.unix_sockets import CannotListen

LOOPBACK = "127.0.0.1"
_POLICIES = frozenset(
    {
        ("networking.k8s.io", "networkpolicies"),
        ("policy.networking.k8s.io", "adminnetworkpolicies"),
        ("policy.networking.k8s.io", "baselineadminnetworkpolicies"),
    }
)
IMAGE = ROOT_REFERENCE
DNS_SERVERS = 2


def components(prepared: Prepared) -> list[Component]:
    """Returns all components in order of start; they stop in reverse order."""
    ours = prepared.state.runtime == "podwire"
    all_components = [_trace(prepared), _apiserver(prepared)]
    for node in prepared.nodes:
        all_components += node_components.below_the_kubelet(prepared, node)
    all_components += [_image(prepared)] if ours else []
    all_components += [_machines(prepared)] if prepared.state.advertise else []
    all_components += [_scheduler(prepared), *_dns(prepared)]
    for node in prepared.nodes:
        all_components += node_components.kubelet_and_drivers(prepared, node)
    return [*all_components, *prepared.additional(prepared), _node(prepared)]


def _trace(prepared: Prepared) -> Component:
    async def work(ready: Ready) -> None:
        ready()
        await tracing.collect(tracing.CollectorOptions.below(prepared.layout.prefix, otlp=prepared.otlp))

    return Component(name="trace", work=work, troubles=(OSError, CannotListen))


def _environment(prepared: Prepared) -> dict[str, str]:
    return {tracing.VARIABLE: str(prepared.layout.trace_socket)}


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
        troubles=(OSError, PkiError, BadUrl, BadConfig, CannotOpen),
    )


def apiserver_options(prepared: Prepared) -> apiserver.Options:
    """The API server listens on the loopback for the host, and on the bridge for nodes and pods."""
    layout, slot = prepared.layout, prepared.slot
    gateways = tuple(str(gateway.ip) for gateway in slot.gateways(ipv6=prepared.ipv6)) if prepared.own else ()
    host = gateways[0] if prepared.own else ""
    advertised = (prepared.state.advertise,) if prepared.state.advertise else ()
    control = (
        apiserver.Identity(user="system:kube-scheduler", kubeconfig=layout.control_identity("scheduler")),
        apiserver.Identity(user=f"{COMPONENT_PREFIX}dns", kubeconfig=layout.control_identity("dns")),
    )
    return apiserver.Options(
        data_dir=layout.state / "apiserver",
        host=LOOPBACK,
        port=slot.api_port,
        also=(*gateways, *advertised),
        store_url=prepared.state.store or None,
        kubeconfig=layout.kubeconfig,
        context=named_clusters.context_of(layout),
        kubeconfig_owner=prepared.state.owner,
        service_networks=slot.service_ranges(ipv6=prepared.ipv6),
        encryption_config=prepared.encryption_config,
        controllers=prepared.controllers,
        balancer_pool=prepared.balancer_pool,
        pod_networks=slot.pod_networks(ipv6=prepared.ipv6) if advertised else (),
        also_reconciled=_POLICIES if prepared.network_policy else frozenset(),
        definitions=admin_crds.ALL if prepared.network_policy else (),
        leader_elect=True,
        certificate_lifetime=prepared.certificate_lifetime,
        kubelet_authority=layout.state / "apiserver/pki/ca.crt",
        identities=(*control, *(identity for node in prepared.nodes for identity in _identities(node, host))),
        servings=(*(_serving(node) for node in prepared.nodes), _scheduler_serving(prepared)),
    )


def _scheduler_certificate(prepared: Prepared) -> tuple[Path, Path]:
    directory = prepared.layout.control_identity("scheduler").parent
    return directory / "scheduler.crt", directory / "scheduler.key"


def _scheduler_serving(prepared: Prepared) -> apiserver.Serving:
    certificate, key = _scheduler_certificate(prepared)
    return apiserver.Serving(name="localhost", ips=(LOOPBACK,), certificate=certificate, key=key)


def _identities(node: Node, host: str) -> list[apiserver.Identity]:
    """Returns the clients on a node, each with a kubeconfig in the directories of the node.

    Their roles are the API server's `default_roles.py`; a driver may write the ResourceSlices of its own node only.
    """
    kubelet = apiserver.Identity(
        user=f"{NODE_PREFIX}{node.name}", groups=(NODES,), kubeconfig=node.home.identity("kubelet"), host=host
    )
    proxy = apiserver.Identity(user="system:kube-proxy", kubeconfig=node.home.identity("proxy"), host=host)
    others = [
        apiserver.Identity(
            user=f"{COMPONENT_PREFIX}{name}:{node.name}",
            groups=(f"{COMPONENT_PREFIX}{name}",),
            kubeconfig=node.home.identity(name),
            host=host,
        )
        for name in ("nri-network", "network-driver", "gpu-driver", "local-path")
    ]
    return [kubelet, proxy, *others]


def _serving(node: Node) -> apiserver.Serving:
    return apiserver.Serving(
        name=node.name,
        ips=(LOOPBACK, *node.ips),
        certificate=node.home.state / "kubelet/serving.crt",
        key=node.home.state / "kubelet/serving.key",
    )


def cluster_settings(prepared: Prepared) -> ClusterSettings:
    """Returns the settings for machines that join."""
    slot, ipv6 = prepared.slot, prepared.ipv6
    return ClusterSettings(
        cluster_dns=(slot.dns_address,),
        networks=(slot.pods, slot.nodes, *((slot.own6,) if ipv6 else ())),
        backend=prepared.state.machine_network,
        vni=slot.vni,
        network_policy=prepared.network_policy,
    )


def _machines(prepared: Prepared) -> Component:
    """Routes to the pods of machines that joined, on the host."""
    settings = cluster_settings(prepared)
    options = machine_network.Options(
        kubeconfig=prepared.nodes[0].home.identity("nri-network"),
        addresses=(ip_address(prepared.state.advertise),),
        networks=settings.networks,
        backend=settings.backend,
        vni=settings.vni,
    )

    async def work(ready: Ready) -> None:
        ready()
        await machine_network.keep(options)

    return Component(name="machines", work=work, needs=("apiserver",), troubles=(OSError, BadKubeconfig))


def _image(prepared: Prepared) -> Component:
    return image_component(prepared.layout)


def image_component(layout: Layout) -> Component:
    """Builds an image from the host's busybox, so that pods can be started without a registry."""
    store = layout.state / "images"

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
    kubeconfig = prepared.layout.control_identity("scheduler")
    certificate, key = _scheduler_certificate(prepared)
    endpoint = Endpoint(port=prepared.slot.scheduler_port, certificate=certificate, key=key)
    options = scheduler.Options(kubeconfig=kubeconfig, configuration=prepared.scheduling, endpoint=endpoint)

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


def _dns(prepared: Prepared) -> list[Component]:
    """Two servers of names, on the host: its resolvers may be reachable from there only.

    They share their sockets, which the supervisor holds. So each query goes to a server that is able to read it: while
    one restarts or hangs the other answers, and while both restart queries wait.
    """
    listeners: list[Listeners] = []

    def hold() -> list[int]:
        if not listeners:
            listeners.append(dns.bind(dns_options(prepared), any_port=True))
        return listeners[0].filenos()

    def replica(number: int) -> Component:
        async def work(ready: Ready) -> None:
            async with dns.running(dns_options(prepared, number), listeners[0]):
                ready()
                await asyncio.Event().wait()

        return Component(
            name="dns" if number == 1 else f"dns-{number}",
            work=work,
            needs=("apiserver",),
            hold=hold,
            environment=_environment(prepared),
            troubles=(OSError, BadKubeconfig),
        )

    return [replica(number) for number in range(1, DNS_SERVERS + 1)]


def dns_options(prepared: Prepared, number: int = 1) -> dns.Options:
    """The DNS answers the cluster and its host only: with a node on the host itself, others reach that address."""
    slot = prepared.slot
    return dns.Options(
        kubeconfig=prepared.layout.control_identity("dns"),
        name="podwire" if number == 1 else f"podwire-{number}",
        addresses=(prepared.nodes[0].dns_address,),
        metrics_port=METRICS_PORT + number - 1,
        cluster_ip=slot.dns_address,
        clients=(*slot.networks(ipv6=prepared.ipv6), *map(ip_network, prepared.host_ips), ip_network("127.0.0.0/8")),
    )


def server_url(prepared: Prepared) -> str:
    """Returns the address of the API server for other machines."""
    host = prepared.state.advertise
    return f"https://{f'[{host}]' if ':' in host else host}:{prepared.slot.api_port}"


def _machine_notes(prepared: Prepared) -> dict[str, str]:
    """Returns the annotations of the cluster's own nodes: others reach them by this machine."""
    slot = prepared.slot
    behind = [slot.nodes, *([slot.nodes6] if prepared.ipv6 else [])] if prepared.own else []
    return {MACHINE: prepared.state.advertise, MACHINE_NETWORKS: ",".join(map(str, behind))}


def _node(prepared: Prepared) -> Component:
    """Creates the default StorageClass, waits until every node is Ready, and ends."""

    begun = time.time()
    names = [node.name for node in prepared.nodes]
    kubelets = tuple(node.called("kubelet") for node in prepared.nodes)

    async def work(ready: Ready) -> None:
        await storage_class.create_default(prepared.layout.kubeconfig)
        await readiness.until_ready(prepared.layout.kubeconfig, names, begun)
        if prepared.state.advertise:
            await invitation.publish(prepared.layout.kubeconfig, server_url(prepared), cluster_settings(prepared))
            await invitation.annotate(prepared.layout.kubeconfig, names, _machine_notes(prepared))
        ready()

    return Component(
        name="node", work=work, needs=("apiserver", *kubelets), once=True, troubles=(OSError, BadKubeconfig)
    )
