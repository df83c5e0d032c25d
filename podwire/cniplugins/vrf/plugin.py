"""vrf: puts the pod's interface into a VRF of the pod, which has a routing table of its own.

Interfaces of one pod share a VRF by its name: the first makes it, the last removes it. The kernel removes routes and
global IPv6 addresses of an interface that enters or leaves a VRF, so the record has them, and they are added again.
"""

from contextlib import suppress
from functools import partial
from ipaddress import ip_interface
from typing import NamedTuple

from podwire.cniplugins.attachments import Record
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect, expect_link
from podwire.cniplugins.pod_link import pod_path
from podwire.cniplugins.route_records import decode_route, encode_routes
from podwire.cniplugins.skeleton import Call, run_all
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.links import FEATURES
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.stacked_links import supports
from podwire.linux.values import Link, Route
from podwire.linux.values import Vrf as NewVrf
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.verbs import is_ifname

MADE = declare("cni.vrf-made", "the VRF exists, and the interface is not in it")
ENSLAVED = declare("cni.vrf-enslaved", "the interface is in the VRF, without its routes")
_FAMILIES = (4, 6)
_LARGEST_TABLE = (1 << 32) - 1
_UNIVERSE = 0
"""The scope of routes that are neither local nor connected."""


class Settings(NamedTuple):
    name: str
    table: int = 0
    """0 is the first that no VRF of the pod has."""


def parse_settings(config: PluginConfig) -> Settings:
    settings = Settings(taken(config.raw, "vrfname", str, ""), taken(config.raw, "table", int, 0))
    if not settings.name:
        message = "configuration is expected to have a valid vrf name"
        raise CniError(Code.BAD_CONFIG, message, "vrfname: missing")
    if not is_ifname(settings.name):
        raise CniError(Code.BAD_CONFIG, f"vrfname: {settings.name!r} is not a valid interface name")
    if not 0 <= settings.table <= _LARGEST_TABLE:
        raise CniError(Code.BAD_CONFIG, f"table: {settings.table} is not between 0 and {_LARGEST_TABLE}")
    return settings


class Vrf(OrderedPlugin):
    name = "vrf"
    points = declare_steps(name)
    chained = True

    def validate(self, call: Call) -> bool:
        parse_settings(call.config)
        return True

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        settings, pod = parse_settings(call.config), ends.pod
        link = expect_link(pod, record.ifname)
        vrf = _find(pod, settings.name)
        if vrf is None:
            check_supported(ends.host)
        elif settings.table not in (0, vrf.table):
            message = f"VRF {vrf.name} already exist with different routing table {vrf.table}"
            raise CniError(Code.IN_USE, message)
        if link.master and (vrf is None or link.master != vrf.ifindex):
            master = pod.links.get(link.master).name
            raise CniError(Code.IN_USE, f"interface {link.name} has already a master set: {master}")
        routes = [
            route
            for family in _FAMILIES
            for route in pod.routes.list(family)
            if route.ifindex == link.ifindex and (route.scope == _UNIVERSE and (family == 4 or route.gateway))
        ]
        addresses = [address.interface for address in pod.addresses.list(link.ifindex)]
        before = {
            "vrf": settings.name,
            "table": settings.table or (vrf.table if vrf is not None else _free_table(pod.links.list())),
            "ifindex": link.ifindex,
            "routes": encode_routes(routes),
            "addresses": [str(own) for own in addresses if own.version == 6 and not own.is_link_local],
        }
        return record._replace(before=before)

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        pod, state = ends.pod, record.before
        with suppress(linux.LinkExists):
            pod.links.add(NewVrf(state["vrf"], state["table"], alias=f"podwire:vrf {state['vrf']}", up=True))
        failpoint(MADE)
        pod.links.change(state["ifindex"], master=pod.links.get(state["vrf"]).ifindex)
        failpoint(ENSLAVED)
        _restore(pod, record, state["table"])
        return given

    def detach(self, call: Call, record: Record) -> None:
        """Takes the interface out of the VRF, and removes that with its last one."""
        path = pod_path(call, record)
        if path is None:
            return
        name = record.before["vrf"] if record.before else parse_settings(call.config).name
        with KernelNetwork(path) as pod:
            vrf = _find(pod, name)
            if vrf is None:
                return
            run_all(partial(_release, pod, record, vrf), partial(_remove_unused, pod, vrf))

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        settings = parse_settings(call.config)
        vrf = _find(ends.pod, settings.name)
        if vrf is None:
            raise CniError(Code.NOT_AS_ADDED, f"the VRF {settings.name} does not exist")
        table = record.before["table"]
        expect(vrf.table == table, f"the VRF {vrf.name} has the routing table {vrf.table}, expected {table}")
        link = expect_link(ends.pod, record.ifname)
        expect(link.master == vrf.ifindex, f"failed to find {link.name} associated to vrf {vrf.name}")

    def check_usable(self, call: Call) -> None:
        with KernelNetwork() as host:
            check_supported(host)


def check_supported(network: KernelNetwork) -> None:
    if not supports(network.netlink, Vrf.name):
        option = FEATURES[Vrf.name]
        message = f"this kernel has no vrf links: it is built without {option}, or the module is not loaded"
        raise CniError(Code.REFUSED, message)


def _find(pod: KernelNetwork, name: str) -> Link | None:
    try:
        link = pod.links.get(name)
    except linux.NoSuchLink:
        return None
    if link.kind != Vrf.name:
        raise CniError(Code.IN_USE, f"vrfname: the link {name} of the pod is not a VRF")
    return link


def _free_table(links: list[Link]) -> int:
    taken_tables = {link.table for link in links if link.kind == Vrf.name}
    return next(table for table in range(1, len(links) + 2) if table not in taken_tables)


def _restore(pod: KernelNetwork, record: Record, table: int | None) -> None:
    """Adds what the kernel removed; into the table of the VRF, or into that of each route."""
    index = record.before["ifindex"]
    for text in record.before["addresses"]:
        with suppress(linux.AddressExists):
            pod.addresses.add(index, ip_interface(text))
    for raw in record.before["routes"]:
        route: Route = decode_route(raw)
        pod.routes.replace(route if table is None else route._replace(table=table))


def _release(pod: KernelNetwork, record: Record, vrf: Link) -> None:
    with suppress(linux.NoSuchLink):
        link = pod.links.get(record.ifname)
        if link.master == vrf.ifindex:
            pod.links.change(link.ifindex, master=0)
            if record.before and record.before["ifindex"] == link.ifindex:
                with suppress(linux.Unreachable):  # an interface that is down
                    _restore(pod, record, None)


def _remove_unused(pod: KernelNetwork, vrf: Link) -> None:
    if not any(link.master == vrf.ifindex for link in pod.links.list()):
        with suppress(linux.NoSuchLink):
            pod.links.delete(vrf.ifindex)


PLUGIN = Vrf()
