"""Keeps the routes of a machine to the pods of others, and the VXLAN where one is needed, in step with the Nodes.

It works when Nodes change and when links, addresses or routes of the machine do, so an address that comes later, or a
route that somebody removed, is handled like a new Node. Routes have a protocol number of their own and the link an
alias: what is not planned any more is removed by these.
"""

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.join.machines import Hop, LocalLink, Plan, machine_of, others, plan, tunnel_mtu
from podwire.cluster.join.permissions import NODES
from podwire.cluster.join.settings import AUTO, WIREGUARD
from podwire.linux.errors import AddressExists, LinuxError, NoSuchLink, NoSuchNeighbour, NoSuchRoute
from podwire.linux.net.monitor import ADDRESS, ANYTHING, LINK, NEXT_HOP, Monitor
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import IP, Interface, Neighbour, Network, Route, Station, Vxlan
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object, Synced
from podwire.tasks.backoff import Pauses
from podwire.tasks.debounce import debounced_reader
from podwire.transports import credentials, http_client

_log = logging.getLogger("podwire.machine-network")

LINK_PREFIX, ALIAS = "podwire-vx", "podwire-machines"
PROTOCOL = 113
"""The owner tag of our routes: the next number after that of all others of podwire."""
DEBOUNCE_SECONDS = 0.1
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
OWN_LINKS = ("podwire", "veth", "lo")
"""How the names of links begin that are not segments between machines."""


class NotSupported(Exception):
    """The kernel lacks what a backend needs; says which."""


def check_backend(backend: str) -> None:
    """Raises NotSupported."""
    if backend == WIREGUARD:
        raise NotSupported(
            "backend wireguard: podwire does not encrypt the traffic between machines; choose auto, routes or vxlan"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    kubeconfig: Path
    addresses: tuple[IP, ...]
    """Of this machine, as others know it."""
    networks: tuple[Network, ...]
    """Of the whole cluster."""
    backend: str = AUTO
    vni: int = 4096


def local_links(network: KernelNetwork, cluster: Sequence[Network]) -> list[LocalLink]:
    """Returns the links of this machine that may be segments to others: not ours, and not inside the cluster."""
    links = []
    for link in network.links.list():
        if link.name.startswith(OWN_LINKS) or not link.up:
            continue
        interfaces = tuple(row.interface for row in network.addresses.list(link.ifindex))
        if usable := tuple(row for row in interfaces if not row.ip.is_link_local and not _is_inside(row, cluster)):
            links.append(LocalLink(link.ifindex, link.mtu, usable))
    return links


def _is_inside(interface: Interface, cluster: Sequence[Network]) -> bool:
    return any(interface.version == network.version and interface.ip in network for network in cluster)


class MachineNetwork:
    """Applies plans to the network namespace of the caller."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._reported: tuple[str, ...] = ()
        self._left: set[Network] = set()

    def apply(self, nodes: Iterable[Object]) -> Plan:
        """Brings routes and the VXLAN to what the Nodes call for. Raises LinuxError."""
        options, rows = self._options, list(nodes)
        with KernelNetwork() as network:
            links = local_links(network, options.networks)
            wanted = plan(others(rows, options.addresses, options.networks), links, options.backend)
            tunnel = self._tunnel(network, wanted, links, self._own_pods(rows))
            self._route(network, wanted.hops, tunnel)
        if wanted.problems != self._reported:
            self._reported = wanted.problems
            for problem in wanted.problems:
                _log.warning("pods of another machine cannot be reached", extra={"error": problem})
        return wanted

    def _own_pods(self, nodes: Iterable[Object]) -> Network | None:
        """Returns the first IPv4 network of pods on this machine."""
        own = set(self._options.addresses)
        for node in nodes:
            machine = machine_of(node)
            if machine is not None and own & set(machine.addresses):
                return next((network for network in machine.networks if network.version == 4), None)
        return None

    def _tunnel(
        self, network: KernelNetwork, wanted: Plan, links: Sequence[LocalLink], pods: Network | None
    ) -> tuple[int, IP | None]:
        """Returns the VXLAN link and the source address of this machine's own packets through it; 0 without a link."""
        if not wanted.tunnels:
            remove_tunnel(network, self._options.vni)
            return 0, None
        local = self._options.addresses[0]
        parent = next((link for link in links if any(row.ip == local for row in link.interfaces)), None)
        if parent is None:
            raise NoSuchLink(0, f"find the link with the address {local}")
        index = self._ensure_link(network, local, parent)
        source = pods.network_address if pods is not None else None
        if source is not None:
            with contextlib.suppress(AddressExists):
                network.addresses.add(index, ipaddress.ip_interface(f"{source}/32"))
        stations = {Station(index, machine.mac, machine.addresses[0]) for machine in wanted.tunnels}
        for station in stations:
            network.stations.replace(station)
        for stale in set(network.stations.list(index)) - stations:
            with contextlib.suppress(NoSuchNeighbour):
                network.stations.delete(stale)
        for machine in wanted.tunnels:
            for address in (machine.address(4), machine.link_local if _has_ipv6(wanted.hops) else None):
                if address is not None:
                    network.neighbours.replace(Neighbour(index, address, machine.mac))
        return index, source

    def _ensure_link(self, network: KernelNetwork, local: IP, parent: LocalLink) -> int:
        name = f"{LINK_PREFIX}{self._options.vni}"
        alias = f"{ALIAS} {self._options.vni} {local} {parent.ifindex}"
        mtu = tunnel_mtu(parent.mtu, local.version)
        with contextlib.suppress(NoSuchLink):
            link = network.links.get(name)
            if link.alias == alias:
                if link.mtu != mtu or not link.up:
                    network.links.change(link.ifindex, mtu=mtu, up=True)
                return link.ifindex
            remove_tunnel(network, self._options.vni)
        mac = (b"\x0a\x58" + local.packed[-4:]).hex(":")
        network.links.add(Vxlan(name, self._options.vni, local, parent.ifindex, mtu=mtu, mac=mac, alias=alias, up=True))
        return network.links.get(name).ifindex

    def _route(self, network: KernelNetwork, hops: Sequence[Hop], tunnel: tuple[int, IP | None]) -> None:
        index, source = tunnel
        wanted = [
            Route(hop.network, hop.gateway, hop.ifindex, protocol=PROTOCOL)
            if hop.ifindex is not None
            else Route(
                hop.network,
                hop.gateway,
                index,
                source=source if hop.network.version == 4 else None,
                onlink=True,
                protocol=PROTOCOL,
            )
            for hop in hops
        ]
        present = [route for family in (4, 6) for route in network.routes.list(family)]
        for route in present:
            if is_ours(route, self._options.networks) and route.destination not in {new.destination for new in wanted}:
                with contextlib.suppress(NoSuchRoute):
                    network.routes.delete(route)
        ours = [row for row in present if row.protocol == PROTOCOL]
        known = {(row.destination, row.gateway, row.ifindex, row.source) for row in ours}
        foreign = {row.destination for row in present if row.protocol != PROTOCOL and not row.metric}
        for route in wanted:
            if route.destination in foreign:
                if route.destination not in self._left:
                    self._left.add(route.destination)
                    facts = {"network": str(route.destination)}
                    _log.warning("another route to pods of a machine exists and is left alone", extra=facts)
                continue
            if (route.destination, route.gateway, route.ifindex, route.source) not in known:
                network.routes.replace(route)
                facts = {"network": str(route.destination), "via": str(route.gateway)}
                _log.info("route to pods of another machine is set", extra={**facts, "tunnel": route.ifindex == index})


def _has_ipv6(hops: Iterable[Hop]) -> bool:
    return any(hop.network.version == 6 and hop.ifindex is None for hop in hops)


def is_ours(route: Route, networks: Sequence[Network]) -> bool:
    """Returns whether a route is one of a cluster with these networks; without networks, of any."""
    if route.protocol != PROTOCOL:
        return False
    return not networks or any(
        route.destination.version == network.version and route.destination.overlaps(network) for network in networks
    )


def remove_tunnel(network: KernelNetwork, vni: int) -> None:
    """Removes the VXLAN link of a cluster; one of the same name that is not ours stays."""
    with contextlib.suppress(NoSuchLink):
        link = network.links.get(f"{LINK_PREFIX}{vni}")
        if link.alias.startswith(ALIAS):
            network.links.delete(link.ifindex)


def remove_all(networks: Sequence[Network] = (), vni: int = 0) -> None:
    """Removes routes and the VXLAN of a cluster from this network namespace; without arguments, of all clusters."""
    with KernelNetwork() as network:
        for route in [row for family in (4, 6) for row in network.routes.list(family) if is_ours(row, networks)]:
            with contextlib.suppress(NoSuchRoute):
                network.routes.delete(route)
        for link in network.links.list():
            if link.alias.startswith(ALIAS) and (not vni or link.name == f"{LINK_PREFIX}{vni}"):
                network.links.delete(link.ifindex)


Applied = Callable[[Sequence[Object], Plan], None]
"""Called with all Nodes, and how they are reached."""


def _ignore(_nodes: Sequence[Object], _plan: Plan) -> None:
    """Nobody else needs to know."""


async def keep(options: Options, applied: Applied = _ignore) -> None:
    """Works until cancelled; failures are logged and retried. Raises NotSupported."""
    check_backend(options.backend)
    pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
    network = MachineNetwork(options)
    while True:
        try:
            await _follow(options, network, applied, pauses)
        except* (ApiError, BadKubeconfig, OSError) as failure:
            error = str(failure.exceptions[0])
            _log.warning("cannot follow the nodes of the cluster", extra={"error": error})
        await asyncio.sleep(pauses.next())


async def _follow(options: Options, network: MachineNetwork, applied: Applied, pauses: Pauses) -> None:
    due, synced = asyncio.Event(), asyncio.Event()
    async with (
        http_client.connect(credentials.load(options.kubeconfig), user_agent="podwire-machine-network") as http,
        Client(http).informer(NODES) as informer,
    ):

        async def watch_nodes() -> None:
            async for change in informer:
                if isinstance(change, Synced):
                    synced.set()
                due.set()

        async def work() -> None:
            await synced.wait()  # a list that is not complete would remove routes
            while True:
                await due.wait()
                due.clear()
                try:
                    nodes = list(informer.objects.values())
                    applied(nodes, network.apply(nodes))
                    pauses.reset()
                except LinuxError as error:
                    _log.warning("cannot set routes to other machines", extra={"error": str(error)})
                    asyncio.get_running_loop().call_later(pauses.next(), due.set)
                await asyncio.sleep(DEBOUNCE_SECONDS)

        monitor = Monitor()
        try:
            with debounced_reader(monitor.fileno(), DEBOUNCE_SECONDS, lambda: _on_events(monitor, due)):
                async with asyncio.TaskGroup() as parts:
                    parts.create_task(watch_nodes())
                    parts.create_task(work())
        finally:
            monitor.close()


def _on_events(monitor: Monitor, due: asyncio.Event) -> None:
    if any(event.what in (LINK, ADDRESS, NEXT_HOP, ANYTHING) for event in monitor.read()):
        due.set()
