"""bridge: a pod's link into a bridge of this host.

ADD: 1. write the record.  2. Addresses.  3. The bridge and its gateways.  4. The pair.  5. Addresses and routes in the
pod.  6. Masquerading.  7. Wait until packets pass.  8. Write the result.  Whatever fails, the record is released.

DEL needs the record alone: 1. masquerading, 2. the pair, 3. addresses, and what the kernel remembers of them,
4. the record; each whatever became of the others, and the record only when all are gone.
"""

import os
from contextlib import suppress

from podwire.cniplugins import ipam_delegate as delegate
from podwire.cniplugins import nat
from podwire.cniplugins.attachments import Attachments, Record, new_record, suffered
from podwire.cniplugins.bridge.check import check_all
from podwire.cniplugins.bridge.links import (
    add_gateways,
    check_kind,
    configure,
    connect,
    disconnect,
    ensure_bridge,
    wait_for_port,
)
from podwire.cniplugins.bridge.plugin import spoofing
from podwire.cniplugins.bridge.settings import Plan, Settings, parse_settings, planned
from podwire.cniplugins.garbage_collection import collect
from podwire.cniplugins.netfilter import Netfilter, opened
from podwire.cniplugins.pod_link import check_name
from podwire.cniplugins.skeleton import Call, Later, Plugin, all_of, pod_netns
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link
from podwire.protocols.cni import results
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import IP, Interface, Result
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.versions import LATEST

MASQUERADES = ("masquerade4", "masquerade6")
_POD = 2  # the place of the pod's interface in a result

RECORDED = declare("cni.bridge-recorded", "the record of an attachment is written, nothing is done yet")
LEASED = declare("cni.bridge-leased", "a pod has its addresses, and no link")
BRIDGED = declare("cni.bridge-bridged", "the bridge has its gateways, a pod has no link")
CONNECTED = declare("cni.bridge-connected", "a pod has its link, without addresses")
CONFIGURED = declare("cni.bridge-configured", "a pod's link has its addresses, nothing is masqueraded")
MASQUERADED = declare("cni.bridge-masqueraded", "all is done, the record does not tell the result")
ADDED = declare("cni.bridge-added", "the record tells the result, the runtime was not told")
UNMASQUERADED = declare("cni.bridge-unmasqueraded", "DEL: masquerading has ended, the link is still there")
DISCONNECTED = declare("cni.bridge-disconnected", "DEL: the link is gone, the addresses are still leased")
RETURNED = declare("cni.bridge-returned", "DEL: everything is given back, the record is still there")


def add(call: Call) -> Result:
    settings = parse_settings(call.config, call.invocation)
    delegate.check_there(call)
    inode = pod_netns(call)
    attachments = Attachments(call.config, "bridge")
    with attachments.turn(call), KernelNetwork(call.invocation.netns) as pod, KernelNetwork() as host:
        earlier = attachments.read(call)
        if earlier is not None:
            if (kept := _kept(earlier, call, inode, host)) is not None:
                return kept
            release(earlier, call, attachments)
        check_name(pod, call.invocation.ifname)
        record = new_record(call, inode, f"veth{os.urandom(4).hex()}")
        attachments.write(record)
        try:
            failpoint(RECORDED)
            result = _attach(call, settings, record, pod, host)
        except BaseException as error:
            _undo(record, call, attachments, error)
            raise
        attachments.write(record._replace(result=results.encode(result, LATEST)))
    failpoint(ADDED)
    return result


def _kept(record: Record, call: Call, inode: int, host: KernelNetwork) -> Result | None:
    """The result of an earlier ADD that still stands; None when it was never finished, or its link is gone."""
    if record.result is None or record.inode != inode:
        return None
    try:
        if not record.marks(host.links.get(record.link).alias):
            return None
    except linux.NoSuchLink:
        return None
    if record.config != new_record(call).config:
        told = f"{record.container_id} {record.ifname} is attached already, with another configuration"
        raise CniError(Code.IN_USE, told, "DEL comes first")
    kept = results.decode(record.result, LATEST)
    _masquerade(call, record, kept.ips)  # a DEL that was killed may have ended it
    return kept


def _masquerade(call: Call, record: Record, ips: tuple[IP, ...]) -> None:
    if taken(record.config, "ipMasq", bool, False):
        subnets = [each.address.network for each in ips]
        jumps = [nat.jump(nat.MASQUERADE, each.address, record.comment) for each in ips]
        with opened(call) as netfilter:
            nat.replace(netfilter.elements, jumps, subnets)


def _attach(call: Call, settings: Settings, record: Record, pod: KernelNetwork, host: KernelNetwork) -> Result:
    netns = call.invocation.netns
    given = delegate.add(call) if delegate.ipam_type(call.config.raw) else Result()
    plan = planned(settings, given, _POD)
    failpoint(LEASED)
    bridge = ensure_bridge(host, settings)
    add_gateways(host, bridge, settings, plan)
    failpoint(BRIDGED)
    connect(host, bridge, settings, plan, record, netns)
    spoofing.guard_pod(call, record, pod, [each.address.ip for each in plan.ips])
    failpoint(CONNECTED)
    inside = configure(pod, plan, record, netns)
    failpoint(CONFIGURED)
    _masquerade(call, record, plan.ips)
    outside = wait_for_port(host, record.link)
    failpoint(MASQUERADED)
    return _result(plan, host.links.get(bridge.ifindex), outside, inside, netns)


def _result(plan: Plan, bridge: Link, outside: Link, inside: Link, netns: str) -> Result:
    links = (
        Interface(bridge.name, bridge.mac, mtu=bridge.mtu),
        Interface(outside.name, outside.mac, mtu=outside.mtu),
        Interface(inside.name, inside.mac, netns, mtu=inside.mtu),
    )
    return Result(links, plan.ips, plan.routes, plan.dns)


def _undo(record: Record, call: Call, attachments: Attachments, error: BaseException) -> None:
    try:
        release(record, call, attachments)
    except CniError as also:
        error.add_note(f"and it is not undone: {also}")


def release(record: Record, call: Call, attachments: Attachments) -> None:
    """Give back all that a record names, then forget it."""
    then = call._replace(config=call.config._replace(raw=record.config))
    with opened(call) as netfilter:
        all_of(
            lambda: _unmasquerade(record, netfilter),
            lambda: _disconnect(record, call.later),
            lambda: spoofing.unguard(netfilter, record),
            lambda: _give_back(then, record, netfilter),
        )
    failpoint(RETURNED)
    attachments.remove(record)


def _unmasquerade(record: Record, netfilter: Netfilter) -> None:
    if taken(record.config, "ipMasq", bool, False):
        nat.remove(netfilter.elements, MASQUERADES, record.marks)
    failpoint(UNMASQUERADED)


def _disconnect(record: Record, later: Later) -> None:
    disconnect(record, later)
    failpoint(DISCONNECTED)


def _give_back(call: Call, record: Record, netfilter: Netfilter) -> None:
    """Connections of an address are forgotten while nobody else can have it."""
    if record.result is not None:
        for each in results.decode(record.result, LATEST).ips:
            netfilter.conntrack.forget(each.address.ip)
    if delegate.ipam_type(call.config.raw):
        delegate.delete(call)


def delete(call: Call) -> None:
    attachments = Attachments(call.config, "bridge")
    with attachments.turn(call):
        record = attachments.read(call)
        if record is not None:
            release(record, call, attachments)
        elif delegate.ipam_type(call.config.raw):
            delegate.delete(call)  # by the ids alone


def check(call: Call) -> None:
    settings = parse_settings(call.config, call.invocation)
    pod_netns(call)
    previous = call.config.previous()
    if previous is None:
        raise CniError(Code.BAD_CONFIG, "prevResult: missing")
    record = Attachments(call.config, "bridge").peek(call)
    if record is None or record.result is None:
        told = f"{call.invocation.container_id} {call.invocation.ifname} is not attached"
        raise CniError(Code.UNKNOWN_CONTAINER, told)
    if delegate.ipam_type(call.config.raw):
        delegate.check(call)
    with opened(call) as netfilter:
        check_all(call.invocation.netns, settings, record, previous, netfilter)


def gc(call: Call, valid: Valid) -> None:
    attachments = Attachments(call.config, "bridge")
    collect(
        call,
        valid,
        attachments,
        lambda each, then: release(each, then, attachments),
        sets=MASQUERADES,
        bridge_sets=spoofing.SETS,
        links=True,
    )


def status(call: Call) -> None:
    """What an ADD would meet; whoever is attached already suffers from some of it, too."""
    settings = parse_settings(call.config, call.invocation)
    attachments = Attachments(call.config, "bridge")
    attachments.check_writable()
    with suffered(attachments):
        with KernelNetwork() as host, suppress(linux.NoSuchLink):
            check_kind(host.links.get(settings.bridge))
        if settings.ip_masq:
            with opened(call) as netfilter:
                nat.check_usable(netfilter.elements)
        spoofing.check_usable(call)
    delegate.status(call)


PLUGIN = Plugin("bridge", add, check, delete, gc, status)
