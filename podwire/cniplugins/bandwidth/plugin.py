"""bandwidth: how fast a pod may receive and send.

What the pod receives leaves the host's end of its pair, where a bucket holds it back. What it sends comes in there, and
goes through an ifb of its own, whose bucket holds it back, before it goes on. Both IP families, and all else.
"""

from contextlib import suppress

from podwire.cniplugins import chained
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.bandwidth.settings import bucket, parse_settings
from podwire.cniplugins.bridge.links import disconnect
from podwire.cniplugins.chained import agree
from podwire.cniplugins.skeleton import Call, all_of
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bucket, Ifb, Link
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Interface, Result

INGRESS = declare("bandwidth.ingress", "what a pod receives is held back, what it sends is not")
DETOUR = declare("bandwidth.detour", "a pod's ifb is there, and nothing goes through it")
DIRECT = declare("bandwidth.direct", "DEL: nothing is held back, the ifb is still there")


def _wanted(call: Call) -> bool:
    return any(parse_settings(call.config))


def _prepare(call: Call, record: Record, previous: Result) -> Record:
    settings = parse_settings(call.config)
    with KernelNetwork(call.invocation.netns) as pod, KernelNetwork() as host:
        link = _outside(pod, host, record.ifname, previous)
        if settings.egress and host.traffic.hooked(link.ifindex):
            raise CniError(Code.IN_USE, f"what comes in by {link.name} is in somebody else's hands (an ingress qdisc)")
    before = {
        "name": link.name,
        "ifindex": link.ifindex,
        "mtu": link.mtu,
        "ingress": settings.ingress and bucket(settings.ingress, link.mtu),
        "egress": settings.egress and bucket(settings.egress, link.mtu),
    }
    return record._replace(link=f"bwp{record.token[:12]}", before=before)


def _outside(pod: KernelNetwork, host: KernelNetwork, ifname: str, previous: Result) -> Link:
    """The host's end of the pod's pair, which the result must tell of."""
    inside = pod.links.get(ifname)
    try:
        link = host.links.get(inside.peer) if inside.kind == "veth" else None
    except linux.NoSuchLink:
        link = None
    if link is None or link.kind != "veth" or link.peer != inside.ifindex:
        raise CniError(Code.BAD_CONFIG, f"{ifname} has no other end on this host, where traffic could be shaped")
    if previous.interfaces and not any(each.name == link.name and not each.sandbox for each in previous.interfaces):
        raise CniError(Code.BAD_CONFIG, f"prevResult does not tell of {link.name}, the other end of {ifname}")
    return link


def _do(_call: Call, record: Record, previous: Result) -> Result:
    index = record.before["ifindex"]
    ingress, egress = _buckets(record)
    with KernelNetwork() as host:
        try:
            if ingress is not None:
                host.traffic.shape(index, ingress)
                failpoint(INGRESS)
            if egress is None:
                return previous
            host.links.add(Ifb(record.link, record.before["mtu"], record.alias, up=True))
            ifb = host.links.get(record.link)
            host.traffic.shape(ifb.ifindex, egress)
            failpoint(DETOUR)
            host.traffic.redirect(index, ifb.ifindex)
        except linux.QdiscExists as error:
            raise CniError(Code.IN_USE, f"{record.before['name']} is shaped by somebody else", str(error)) from error
    return previous._replace(interfaces=(*previous.interfaces, Interface(ifb.name, ifb.mac, mtu=ifb.mtu)))


def _buckets(record: Record) -> tuple[Bucket | None, Bucket | None]:
    ingress, egress = record.before["ingress"], record.before["egress"]
    return Bucket(*ingress) if ingress else None, Bucket(*egress) if egress else None


def _undo(call: Call, record: Record) -> None:
    all_of(lambda: _let_pass(record), lambda: disconnect(record, call.later))


def _let_pass(record: Record) -> None:
    """Before the ifb goes: a detour to nowhere would let nothing pass."""
    with KernelNetwork() as host, suppress(linux.NoSuchLink):
        if host.links.get(record.before["name"]).ifindex == record.before["ifindex"]:
            ingress, egress = _buckets(record)
            with suppress(linux.NoSuchQdisc):
                if egress is not None:
                    host.traffic.unredirect(record.before["ifindex"])
            with suppress(linux.NoSuchQdisc):
                if ingress is not None:
                    host.traffic.unshape(record.before["ifindex"])
    failpoint(DIRECT)


def _check(_call: Call, record: Record, _previous: Result) -> None:
    name, index = record.before["name"], record.before["ifindex"]
    ingress, egress = _buckets(record)
    with KernelNetwork() as host:
        if ingress is not None:
            _agree_on(ingress, host.traffic.shaped(index), name)
        if egress is not None:
            try:
                ifb = host.links.get(record.link)
            except linux.NoSuchLink as error:
                raise CniError(Code.NOT_AS_ADDED, f"there is no link {record.link}") from error
            agree(record.marks(ifb.alias) and ifb.up, f"{ifb.name} is down, or not ours")
            _agree_on(egress, host.traffic.shaped(ifb.ifindex), ifb.name)
            agree(host.traffic.redirected(index) == ifb.ifindex, f"what comes in by {name} does not pass {ifb.name}")


def _agree_on(wanted: Bucket, found: Bucket | None, name: str) -> None:
    """The kernel keeps a burst as a time, rounded; the limit tells it exactly."""
    agree(found is not None, f"{name} is not shaped any more")
    if found is not None:
        agree((found.rate, found.limit) == (wanted.rate, wanted.limit), f"{name} is shaped to {found.rate} bytes/s")


PLUGIN = chained.plugin(
    chained.Part("bandwidth", chained.declared("bandwidth"), _wanted, _prepare, _do, _undo, _check, links=True)
)
