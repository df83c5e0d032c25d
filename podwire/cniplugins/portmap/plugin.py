"""portmap: ports of the host that lead to a pod.

A port belongs to the first pod that asks for it, until its DEL. One whose owner has no record any more is taken over.
"""

from contextlib import suppress

from podwire.cniplugins import nat
from podwire.cniplugins.attachments import Attachments, Record, new_record, suffered
from podwire.cniplugins.garbage_collection import collect
from podwire.cniplugins.netfilter import Netfilter, opened
from podwire.cniplugins.portmap.settings import Mapping, Settings, addresses, elements, parse_settings, told
from podwire.cniplugins.skeleton import Call, Plugin
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft import keys
from podwire.linux.values import Element, Interface
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result

SETS = tuple(f"{purpose}{family}" for purpose in (nat.PORTS, nat.PORTS_AT, nat.HAIRPIN) for family in (4, 6))

RECORDED = declare("cni.portmap-recorded", "the record of port maps is written, none is there yet")
MAPPED = declare("cni.portmap-mapped", "port maps are there, the runtime was not told")
UNMAPPED = declare("cni.portmap-unmapped", "DEL: port maps are gone, their record is still there")

Wanted = list[tuple[str, Element]]


def add(call: Call) -> Result:
    previous = _previous(call)
    settings = parse_settings(call.config)
    pod = addresses(previous)
    attachments = Attachments(call.config, "portmap")
    with attachments.turn(call), opened(call) as netfilter:
        earlier = attachments.read(call)
        if earlier is not None:
            release(earlier, netfilter, attachments)
        if settings.mappings and pod:
            _map(new_record(call), settings, pod, netfilter, attachments)
    return previous


def _map(
    record: Record, settings: Settings, pod: dict[int, Interface], netfilter: Netfilter, attachments: Attachments
) -> None:
    wanted = elements(settings, pod, record.comment)
    attachments.write(record)
    failpoint(RECORDED)
    try:
        _put(wanted, pod, netfilter, attachments)
        if settings.snat and 4 in pod:
            _route_localnet(pod[4])
        _forget_flows(settings.mappings, pod, netfilter)
    except BaseException:
        release(record, netfilter, attachments)
        raise
    failpoint(MAPPED)


def _previous(call: Call) -> Result:
    previous = call.config.previous()
    if previous is None:
        raise CniError(Code.BAD_CONFIG, "prevResult: missing; portmap comes after a plugin that makes a link")
    return previous


def _put(wanted: Wanted, pod: dict[int, Interface], netfilter: Netfilter, attachments: Attachments) -> None:
    subnets = [each.network for each in pod.values()]
    try:
        nat.put(netfilter.elements, wanted, subnets)
    except linux.ElementExists:
        _check_conflicts(wanted, netfilter, attachments)
        nat.replace(netfilter.elements, wanted, subnets)


def _check_conflicts(wanted: Wanted, netfilter: Netfilter, attachments: Attachments) -> None:
    """Whose the ports are that are wanted and taken; what nobody has a record of is nobody's."""
    owners = {each.token: each for each in attachments.all()}
    asked = {(name, each.key) for name, each in wanted if not name.startswith(nat.HAIRPIN)}
    sets = {name for name, _ in asked}
    for name, found in nat.marked(sets, lambda _comment: True, netfilter.elements).items():
        for each in found:
            owner = owners.get(each.comment.partition(" ")[0])
            if (name, each.key) in asked and owner is not None:
                who = f"{owner.container_id} {owner.ifname}"
                raise CniError(Code.IN_USE, f"runtimeConfig.portMappings: host port {told(each.key)} belongs to {who}")


def _route_localnet(pod: Interface) -> None:
    """Let 127.0.0.1 reach the pod by the link that leads to it."""
    with KernelNetwork() as host:
        leading = [each for each in host.routes.list(4) if each.ifindex and pod.ip in each.destination]
        best = max(leading, key=lambda each: each.destination.prefixlen, default=None)
        if best is not None:
            name = host.links.get(best.ifindex).name
            with suppress(linux.NoSuchSysctl):
                KernelSysctls().write(f"net/ipv4/conf/{name}/route_localnet", "1")


def _forget_flows(mappings: tuple[Mapping, ...], pod: dict[int, Interface], netfilter: Netfilter) -> None:
    """Whoever has been sending to a UDP port all the time reaches the pod from now on."""
    flowing = {each.host_port for each in mappings if each.protocol == "udp"}
    for family in pod if flowing else ():
        for port in flowing:
            netfilter.conntrack.flush_port(family, keys.PROTOCOLS["udp"], port)


def release(record: Record, netfilter: Netfilter, attachments: Attachments) -> None:
    nat.remove(netfilter.elements, SETS, record.marks)
    failpoint(UNMAPPED)
    attachments.remove(record)


def delete(call: Call) -> None:
    attachments = Attachments(call.config, "portmap")
    with attachments.turn(call), opened(call) as netfilter:
        record = attachments.read(call)
        if record is not None:
            release(record, netfilter, attachments)


def check(call: Call) -> None:
    settings, pod = parse_settings(call.config), addresses(_previous(call))
    if not settings.mappings or not pod:
        return
    record = Attachments(call.config, "portmap").peek(call)
    if record is None:
        raise CniError(Code.NOT_AS_ADDED, f"no ports are mapped for {call.invocation.container_id}")
    with opened(call) as netfilter:
        marked = nat.marked(SETS, record.marks, netfilter.elements)
    there = {(name, each.key, each.data) for name, found in marked.items() for each in found}
    for name, each in elements(settings, pod, record.comment):
        if (name, each.key, each.data) not in there:
            what = "hairpin traffic" if name.startswith(nat.HAIRPIN) else f"host port {told(each.key)}"
            raise CniError(Code.NOT_AS_ADDED, f"{what} is not mapped any more")


def gc(call: Call, valid: Valid) -> None:
    attachments = Attachments(call.config, "portmap")
    with opened(call) as netfilter:
        collect(call, valid, attachments, lambda each, _: release(each, netfilter, attachments), sets=SETS)


def status(call: Call) -> None:
    parse_settings(call.config)
    attachments = Attachments(call.config, "portmap")
    attachments.check_writable()
    with suffered(attachments), opened(call) as netfilter:
        nat.check_usable(netfilter.elements)


PLUGIN = Plugin("portmap", add, check, delete, gc, status)
