"""The components of a machine that joined: runtime, CNI with network policies, kubelet with proxy, and its own.

The machine's own process has the routes to other machines, the network of the pods, and the renewal of certificates.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from ipaddress import ip_address

from podwire.cluster import kubelet, proxy
from podwire.cluster.join import machine_network
from podwire.cluster.join.machines import Plan, tunnel_mtu
from podwire.cluster.join.preparation import PreparedNode, machine_addresses
from podwire.cluster.join.settings import VXLAN
from podwire.cluster.up import conflist, host_network, node_components, node_routes, nodes, readiness
from podwire.cluster.up.child import Component, Ready
from podwire.cluster.up.components import image_component
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.values import Network
from podwire.objects.pod_networks import networks_of
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.watch import Object

_log = logging.getLogger("podwire.join")

NO_ADDRESS = ("127.0.0.1",)
ADDRESS_SECONDS = 5.0
"""How often the machine's own addresses are looked at."""


class AddressChanged(Exception):
    """The machine has another address: its node must register anew."""


def components(prepared: PreparedNode) -> list[Component]:
    """Returns all components in order of start; they stop in reverse order."""
    layout, policies = prepared.layout, prepared.settings.network_policy
    return [
        node_components.cni_component(prepared.node, layout, policies=policies),
        node_components.runtime_component(nodes.runtime_on_host(layout)),
        image_component(layout),
        _kubelet(prepared),
        _machine(prepared),
        _node(prepared),
    ]


def addresses_of(prepared: PreparedNode) -> tuple[str, ...]:
    """Returns the addresses of the node as they are now."""
    return prepared.addresses or machine_addresses(prepared.server)


def _kubelet(prepared: PreparedNode) -> Component:
    async def work(ready: Ready) -> None:
        """Ends when the address changes: the supervisor starts it again, and it registers with the new one."""
        addresses = addresses_of(prepared)
        component = node_components.kubelet_component(_options(prepared, addresses), services)
        await _until_another_address(prepared, addresses, component.work(ready))

    services = proxy.Options(node=prepared.node, kubeconfig=prepared.layout.identity("proxy"))
    troubles = (OSError, BadKubeconfig, kubelet.BadEndpoint, kubelet.RunsAlready)
    return Component(name="kubelet", work=work, needs=("runtime",), troubles=troubles)


def _options(prepared: PreparedNode, addresses: tuple[str, ...]) -> kubelet.Options:
    layout, identity = prepared.layout, prepared.identity
    return kubelet.Options(
        kubeconfig=identity.kubelet,
        runtime_endpoint=f"unix://{layout.runtime_socket}",
        node_name=prepared.node,
        node_ips=addresses,
        cluster_dns=prepared.settings.cluster_dns,
        cluster_domain=prepared.settings.cluster_domain,
        tls_certificate=identity.serving,
        tls_key=identity.serving,
        local_path_kubeconfig=layout.identity("local-path"),
    )


async def _until_another_address(prepared: PreparedNode, addresses: tuple[str, ...], work: Awaitable[None]) -> None:
    """Works until the machine has another address, for which everything starts anew."""
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_until_changed(prepared, addresses))
            try:
                await work
            finally:
                watching.cancel()
    except* AddressChanged as change:
        _log.warning("address of the machine has changed", extra={"error": str(change.exceptions[0])})


async def _until_changed(prepared: PreparedNode, addresses: tuple[str, ...]) -> None:
    while True:
        await asyncio.sleep(ADDRESS_SECONDS)
        now = await asyncio.to_thread(addresses_of, prepared)
        if now not in (addresses, NO_ADDRESS):  # while it has none, pods go on
            raise AddressChanged(f"it had {', '.join(addresses)} and has {', '.join(now)}")


def _machine(prepared: PreparedNode) -> Component:
    async def work(ready: Ready) -> None:
        addresses = addresses_of(prepared)
        settings = prepared.settings
        options = machine_network.Options(
            kubeconfig=prepared.layout.identity("nri-network"),
            addresses=tuple(map(ip_address, addresses)),
            networks=settings.networks,
            backend=settings.backend,
            vni=settings.vni,
        )
        network = PodNetworks(prepared)
        ready()
        await _until_another_address(prepared, addresses, _keep(prepared, options, network))

    troubles = (OSError, BadKubeconfig, machine_network.NotSupported)
    return Component(name="machine", work=work, troubles=troubles)


async def _keep(prepared: PreparedNode, options: machine_network.Options, network: "PodNetworks") -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(machine_network.keep(options, network.apply))
        tasks.create_task(prepared.identity.keep_renewed(lambda: addresses_of(prepared)))


class PodNetworks:
    """Configures the network of this machine's pods when the cluster has given the node its part."""

    def __init__(self, prepared: PreparedNode) -> None:
        self._prepared = prepared
        self._rules = ""

    def apply(self, all_nodes: Sequence[Object], plan: Plan) -> None:
        """Writes the CNI configuration, and exempts packets to other machines from masquerading."""
        own = next((node for node in all_nodes if node["metadata"]["name"] == self._prepared.node), None)
        ranges = networks_of(own) if own is not None else []
        if not ranges:
            return
        inside, tag = self._prepared.settings.networks, host_network.owner_tag(self._prepared.layout)
        rules = node_routes.ruleset(ranges, inside, tag)
        if rules != self._rules:
            KernelRuleset().apply(rules)
            self._rules = rules
        conflist.write(self._prepared.layout.prefix / "etc/cni/net.d", ranges, self._mtu(plan, inside))

    def _mtu(self, plan: Plan, inside: Sequence[Network]) -> int:
        """Returns the MTU of pods: less than that of the link where their packets may go through a VXLAN."""
        if not plan.tunnels and self._prepared.settings.backend != VXLAN:
            return 0
        own = set(map(ip_address, addresses_of(self._prepared)))
        with KernelNetwork() as network:
            links = machine_network.local_links(network, inside)
        for link in links:
            for interface in link.interfaces:
                if interface.ip in own:
                    return tunnel_mtu(link.mtu, interface.version)
        return 0


def _node(prepared: PreparedNode) -> Component:
    """Waits until the node is Ready, and ends."""
    begun = time.time()

    async def work(ready: Ready) -> None:
        await readiness.until_ready(prepared.identity.kubelet, [prepared.node], begun)
        ready()

    needs = ("kubelet", "machine")
    return Component(name="node", work=work, needs=needs, once=True, troubles=(OSError, BadKubeconfig))
