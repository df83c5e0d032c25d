"""bridge: a veth pair between a pod and a bridge of the host.

`attach`: 1. Bridge, gateways.  2. Guard of ports, the pair.  3. The spoofing guard.  4. Addresses and routes in the
pod.  5. Masquerading.  6. Wait until packets pass.

`detach`: masquerading, the pair, the guard, conntrack entries of the pod's addresses.
"""

from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address

from podwire.cniplugins import ipam_delegate, masquerading, nat, reference
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.bridge import spoofing
from podwire.cniplugins.bridge.check import check_host
from podwire.cniplugins.bridge.links import add_gateways, check_kind, ensure_bridge
from podwire.cniplugins.bridge.settings import Settings, is_disabled, make_plan, parse_settings
from podwire.cniplugins.netfilter import Netfilter, open_netfilter
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_link import (
    add_routes,
    announce_addresses,
    bring_up,
    name_taken,
    wait_until_resolvable,
    write_ipv6,
)
from podwire.cniplugins.skeleton import Call, run_all
from podwire.cniplugins.veth import delete_host_end, find_host_end, wait_until_up
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft import port_guard
from podwire.linux.values import Link, Veth
from podwire.protocols.cni import results
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.results import Interface, Result
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.versions import LATEST

_POD = 2
"""Index of the pod's interface in the result."""
_VETH = "veth"
_UNSPECIFIED = IPv4Address(0)
"""The sender of DHCP messages for a pod that has no lease yet, or has lost it."""

BRIDGED = declare("cni.bridge-bridged", "the bridge has its gateways, the pod has no link")
CONNECTED = declare("cni.bridge-connected", "the pod has its link, without addresses")
CONFIGURED = declare("cni.bridge-configured", "the pod's link has its addresses, nothing is masqueraded")
UNMASQUERADED = declare("cni.bridge-unmasqueraded", "DEL: masquerading has ended, the link still exists")


class Bridge(OrderedPlugin):
    name = "bridge"
    points = declare_steps(name)
    sets = nat.MASQUERADE_SETS
    bridge_sets = spoofing.SETS
    tags_links = True
    connects_first = True

    def validate(self, call: Call) -> bool:
        parse_settings(call.config, call.invocation)
        return True

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        if taken(call.config.raw, "ipMasq", bool, False):
            masquerading.check_installed(call.config.raw)
        return record._replace(link=record.link_name(_VETH))

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        settings, netns = parse_settings(call.config, call.invocation), call.invocation.netns
        plan = make_plan(settings, given, _POD)
        addresses = [ip.address.ip for ip in plan.ips]

        bridge = ensure_bridge(ends.host, settings)
        add_gateways(ends.host, bridge, settings, plan)
        failpoint(BRIDGED)
        has_link = ipam_delegate.needs_link(call.config.raw)
        if not has_link:
            self._make_pair(call, ends, record, settings, bridge, plan.mac)
        spoofing.guard_pod(call, record, ends.pod, [*addresses, _UNSPECIFIED] if has_link else addresses)
        failpoint(CONNECTED)

        # A pod accepts no router but its gateway: other ports of the bridge could advertise one.
        write_ipv6(netns, record.ifname, accept_ra="0", accept_dad="0")
        if plan.ips:
            announce_addresses(netns, record.ifname)
        if settings.disabled:
            inside = ends.pod.links.get(record.ifname)
        else:
            inside = bring_up(ends.pod, netns, record.ifname, plan.ips)
        add_routes(ends.pod, inside.ifindex, plan.ips, plan.routes)
        wait_until_resolvable(netns, record.ifname, addresses, call.limits.neighbour)
        failpoint(CONFIGURED)

        if settings.ip_masq:
            masquerading.masquerade(call, record, plan.ips)
        if settings.disabled:
            outside = ends.host.links.get(record.link)
        else:
            outside = wait_until_up(ends.host, record.link, call.limits.port)
        bridge = ends.host.links.get(bridge.ifindex)
        interfaces = (
            Interface(bridge.name, bridge.mac, mtu=bridge.mtu),
            Interface(outside.name, outside.mac, mtu=outside.mtu),
            Interface(inside.name, inside.mac, netns, mtu=inside.mtu),
        )
        return Result(interfaces, plan.ips, plan.routes, plan.dns)

    def connect(self, call: Call, ends: Ends, record: Record) -> None:
        settings, netns = parse_settings(call.config, call.invocation), call.invocation.netns
        bridge = ensure_bridge(ends.host, settings)
        self._make_pair(call, ends, record, settings, bridge, settings.mac)
        spoofing.guard_pod(call, record, ends.pod, [_UNSPECIFIED])
        write_ipv6(netns, record.ifname, accept_ra="0", accept_dad="0")
        bring_up(ends.pod, netns, record.ifname, ())
        wait_until_up(ends.host, record.link, call.limits.port)

    def _make_pair(self, call: Call, ends: Ends, record: Record, settings: Settings, bridge: Link, mac: str) -> None:
        guarded = False
        if not settings.trusted:
            with open_netfilter(call) as netfilter:
                guarded = port_guard.ensure_guard(netfilter.elements, partial(_warn_unguarded, call))
        veth = Veth(
            name=record.link,
            peer=record.ifname,
            peer_netns=call.invocation.netns,
            mtu=settings.mtu,
            peer_mac=mac,
            alias=record.alias,
            master=bridge.ifindex,
            up=True,
            group=port_guard.GROUP if guarded else 0,
        )
        try:
            ends.host.links.add(veth)
        except linux.LinkExists as error:
            raise name_taken(record.ifname) from error
        if settings.hairpin or settings.isolated:
            index = ends.host.links.get(record.link).ifindex
            ends.host.links.set_port(index, hairpin=settings.hairpin, isolated=settings.isolated)

    def detach(self, call: Call, record: Record) -> None:
        record = record._replace(link=record.link or record.link_name(_VETH))
        with open_netfilter(call) as netfilter:
            run_all(
                partial(_end_masquerade, netfilter, record),
                partial(delete_host_end, record, call.defer),
                partial(spoofing.remove_guard, netfilter, record),
                partial(nat.forget_connections, netfilter, record),
            )

    def detach_reference(self, call: Call, record: Record) -> None:
        with open_netfilter(call) as netfilter:
            run_all(
                partial(
                    reference.rules.remove_masquerade, netfilter, record.network, record.container_id, record.ifname
                ),
                partial(reference.links.delete_pod_link, call, record, "veth"),
                partial(reference.rules.remove_spoofing_guard, netfilter, record.container_id, record.ifname),
            )

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        settings = parse_settings(call.config, call.invocation)
        link = reference.links.check_link(ends.host, ends.pod, call, previous, "veth")
        if link is None:
            return False
        reference.links.check_port(ends.host, link, settings.bridge)
        if settings.is_gateway:
            reference.links.check_gateways(ends.host, settings.bridge, previous)
        if settings.ip_masq:
            with open_netfilter(call) as netfilter:
                reference.rules.check_masquerade(netfilter, call.config.name, call.invocation)
        return True

    def collect_reference(self, call: Call, valid: Valid) -> None:
        with open_netfilter(call) as netfilter:
            reference.rules.collect_masquerade(netfilter, call.config.name, valid)

    def hand_over(self, call: Call, record: Record, made: Result, variant: str) -> None:
        with open_netfilter(call) as netfilter:
            masquerading.hand_over(netfilter, record, made.ips, variant)
            if spoofing.parse_guard(record.config).mac:
                inside, owner = made.interfaces[-1], (record.container_id, record.ifname)
                reference.rules.remove_spoofing_guard(netfilter, *owner)  # of a hand-over that was killed
                reference.rules.add_spoofing_guard(record.link, inside.mac, *owner)
                spoofing.remove_guard(netfilter, record)

    def is_attached(self, call: Call, ends: Ends, record: Record) -> bool:
        """Adds the masquerading again, which is what a killed DEL removes first."""
        if find_host_end(ends.host, record) is None:
            return False
        if taken(record.config, "ipMasq", bool, False):
            masquerading.masquerade(call, record, results.decode(record.result, LATEST).ips)
        return True

    def is_link_up(self, call: Call) -> bool:
        return not is_disabled(call.config.raw)

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        with open_netfilter(call) as netfilter:
            check_host(ends.host, parse_settings(call.config, call.invocation), record, netfilter)

    def check_usable(self, call: Call) -> None:
        settings = parse_settings(call.config, call.invocation)
        with KernelNetwork() as host, suppress(linux.NoSuchLink):
            check_kind(host.links.get(settings.bridge))
        with open_netfilter(call) as netfilter:
            if settings.ip_masq:
                masquerading.check_usable(call, netfilter)
            if spoofing.parse_guard(call.config.raw).mac:
                nat.check_usable(netfilter.elements.of("bridge"), spoofing.SETS[0], spoofing.ruleset)


def _end_masquerade(netfilter: Netfilter, record: Record) -> None:
    masquerading.end_masquerade(netfilter, record)
    failpoint(UNMASQUERADED)


def _warn_unguarded(call: Call, error: Exception) -> None:
    call.warn(f"podwire bridge: ports of pods are not guarded against rogue DHCP servers and routers: {error}")


PLUGIN = Bridge()
