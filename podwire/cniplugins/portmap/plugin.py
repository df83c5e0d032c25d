"""portmap: host ports that lead to a pod.

A host port belongs to the first pod that requests it, until its DEL. One whose owner has no record is taken over.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from ipaddress import ip_network

from podwire.cniplugins import nat, reference, tags
from podwire.cniplugins.attachments import Attachments, Record
from podwire.cniplugins.netfilter import Netfilter, open_netfilter
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.portmap.settings import (
    IptablesSettings,
    Settings,
    addresses,
    chain_entries,
    describe_port,
    elements,
    parse_settings,
    reference_rules,
    target,
)
from podwire.cniplugins.skeleton import Call
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft import keys
from podwire.linux.nft.iptables import NOT_INSTALLED
from podwire.linux.nft.table import TABLE, KernelRuleset
from podwire.linux.nft.values import Element
from podwire.linux.values import Interface
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import taken

_IPTABLES = "podwire.cniplugins.iptables_backend"  # imported only where it is used
SETS = tuple(f"{purpose}{family}" for purpose in (nat.PORTS, nat.PORTS_AT, nat.HAIRPIN) for family in (4, 6))


class PortMap(OrderedPlugin):
    name = "portmap"
    points = declare_steps(name)
    chained = True
    previous_missing = ("must be called as chained plugin", "Required prevResult missing")
    uses_namespace = False
    sets = SETS

    def validate(self, call: Call) -> bool:
        settings = parse_settings(call.config)
        if call.invocation.command == "STATUS":
            return True
        return bool(settings.mappings and addresses(self._previous(call)))

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        settings, pod = parse_settings(call.config), addresses(given)
        wanted = elements(settings, pod, record.comment)
        subnets = [ip_network(address.network) for address in pod.values()]
        ruleset = partial(nat.ruleset, subnets, (nat.HAIRPIN,))
        with open_netfilter(call) as netfilter:
            if reference.maps_ports(netfilter.elements.chains()):
                _check_reference_ports(netfilter, settings, pod)
            if settings.iptables is not None:
                _check_conflicts(wanted, netfilter, Attachments(call.config, self.name), record)
                _add_to_iptables(settings, settings.iptables, pod, record)
                if settings.snat and not netfilter.elements.tables().exists(TABLE):
                    KernelRuleset().apply(nat.ruleset(()))  # its chain `guard`, before loopback addresses are routed
            else:
                try:
                    nat.put(netfilter.elements, wanted, ruleset, subnets)
                except linux.ElementExists:
                    _check_conflicts(wanted, netfilter, Attachments(call.config, self.name), record)
                    nat.replace(netfilter.elements, wanted, ruleset, subnets)
            if settings.snat and 4 in pod:
                _route_localnet(ends.host, pod[4])
            # Clients that send to a UDP port all the time reach the pod from now on, too.
            for port in {mapping.host_port for mapping in settings.mappings if mapping.protocol == "udp"}:
                for family in pod:
                    netfilter.conntrack.flush_port(family, keys.PROTOCOLS["udp"], port)
        return given

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        if parse_settings(call.config).iptables is not None:
            import_module(_IPTABLES).check_installed("backend")
        return record

    def detach(self, call: Call, record: Record) -> None:
        with open_netfilter(call) as netfilter:
            nat.remove(netfilter.elements, SETS, record.owns)
            if taken(record.config, "backend", str, "") == "iptables":
                reference.rules.remove_host_ports(netfilter, record.network, record.container_id)

    def detach_reference(self, call: Call, record: Record) -> None:
        with open_netfilter(call) as netfilter:
            reference.rules.remove_host_ports(netfilter, record.network, record.container_id)

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        with open_netfilter(call) as netfilter:
            return reference.rules.has_host_ports(netfilter, call.config.name, call.invocation.container_id)

    def collect_reference(self, call: Call, valid: Valid) -> None:
        with open_netfilter(call) as netfilter:
            reference.rules.collect_host_ports(netfilter, call.config.name, valid)

    def hand_over(self, call: Call, record: Record, made: Result, variant: str) -> None:
        settings = parse_settings(call.config)
        if settings.iptables is None:
            if variant == NOT_INSTALLED or taken(call.config.raw, "backend", str, "") == "nftables":
                with open_netfilter(call) as netfilter:
                    _add_to_reference_tables(netfilter, settings, addresses(made), record)
            else:
                _add_to_iptables(settings, IptablesSettings(), addresses(made), record, variant)
            self.detach(call, record)

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        settings, pod = parse_settings(call.config), addresses(previous)
        with open_netfilter(call) as netfilter:
            if settings.iptables is not None:
                _check_iptables(netfilter, settings, pod, record)
                return
            listed = nat.list_tagged(SETS, record.owns, netfilter.elements)
        present = {(name, element.key, element.data) for name, tagged in listed.items() for element in tagged}
        for name, element in elements(settings, pod, record.comment):
            what = "hairpin traffic" if name.startswith(nat.HAIRPIN) else f"host port {describe_port(element.key)}"
            expect((name, element.key, element.data) in present, f"{what} is no longer mapped")

    def check_usable(self, call: Call) -> None:
        if parse_settings(call.config).iptables is not None:
            import_module(_IPTABLES).check_installed("backend")
            return
        with open_netfilter(call) as netfilter:
            nat.check_usable(netfilter.elements, nat.MASQUERADE_SETS[0], partial(nat.ruleset, ()))


def _add_to_iptables(
    settings: Settings, iptables: IptablesSettings, pod: dict[int, Interface], record: Record, variant: str = "nft"
) -> None:
    backend = import_module(_IPTABLES)
    for family, interface in pod.items():
        ports = backend.Ports(
            record,
            mark_bit=iptables.mark_bit,
            external_chain=iptables.external_chain,
            conditions=iptables.conditions.get(family, []),
            variant=variant,
        )
        numbers, entries = chain_entries(settings, interface, ports.set_mark)
        if numbers:
            ports.add(family, numbers, entries, marks=settings.snat)


def _add_to_reference_tables(
    netfilter: Netfilter, settings: Settings, pod: dict[int, Interface], record: Record
) -> None:
    for interface in pod.values():
        if ports := reference_rules(settings, interface):
            reference.nft_rules.map_ports(netfilter, record.container_id, interface, ports, masquerades=settings.snat)


def _check_iptables(netfilter: Netfilter, settings: Settings, pod: dict[int, Interface], record: Record) -> None:
    present = import_module(_IPTABLES).host_port_targets(netfilter, record)
    for mapping in settings.mappings:
        for interface in pod.values():
            if mapping.host_ip is None or mapping.host_ip.version == interface.version:
                port = mapping.protocol, mapping.host_port
                mapped = (*port, target(mapping, interface)) in present
                expect(mapped, f"host port {mapping.protocol} {mapping.host_port} is no longer mapped")


def _check_conflicts(
    wanted: Sequence[tuple[str, Element]], netfilter: Netfilter, attachments: Attachments, record: Record
) -> None:
    """Raises CniError with the owner of a requested port. The port of an attachment without any record has no owner."""
    owners = attachments.attached()
    requested = {(name, element.key) for name, element in wanted if not name.startswith(nat.HAIRPIN)}
    sets = {name for name, _ in requested}
    for name, listed in nat.list_tagged(sets, lambda tag: not record.owns(tag), netfilter.elements).items():
        for element in listed:
            tag = tags.parse(element.comment)
            if (name, element.key) in requested and tag is not None and tag.owner in owners:
                who, port = f"{tag.container} {tag.ifname}", describe_port(element.key)
                raise CniError(Code.IN_USE, f"runtimeConfig.portMappings: host port {port} belongs to {who}")


def _check_reference_ports(netfilter: Netfilter, settings: Settings, pod: dict[int, Interface]) -> None:
    """Raises CniError for a host port of a pod that the reference plugin added: it would get one of two pods."""
    requested = {(mapping.protocol, mapping.host_port): mapping for mapping in settings.mappings}
    for used in reference.rules.host_ports(netfilter):
        mapping = requested.get((used.protocol, used.port))
        if mapping is None or used.target.version not in pod:
            continue
        host_ip = None if mapping.host_ip is None or mapping.host_ip.is_unspecified else mapping.host_ip
        if host_ip == used.host_ip and used.target != pod[used.target.version].ip:
            port = f"{used.protocol} {used.port}"
            message = f"runtimeConfig.portMappings: host port {port} belongs to {used.owner}"
            raise CniError(Code.IN_USE, message, "it was added by the reference plugin; its DEL, or GC, releases it")


def _route_localnet(host: KernelNetwork, pod: Interface) -> None:
    """Lets 127.0.0.1 reach the pod by the link that leads to it."""
    routes = [route for route in host.routes.list(4) if route.ifindex and pod.ip in route.destination]
    best = max(routes, key=lambda route: route.destination.prefixlen, default=None)
    if best is not None:
        name = host.links.get(best.ifindex).name
        with suppress(linux.NoSuchSysctl):
            KernelSysctls().write(f"net/ipv4/conf/{name}/route_localnet", "1")


PLUGIN = PortMap()
