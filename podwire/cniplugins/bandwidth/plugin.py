"""bandwidth: limits how fast a pod receives and sends.

Traffic to the pod leaves through the host's end of its veth pair, where a token bucket delays it. Traffic from the pod
arrives there, and is redirected through an ifb of its own, whose token bucket delays it. Both apply to all protocols.

With `shapedSubnets` or `unshapedSubnets` a class with filters takes the place of each token bucket. These are networks
of the other side: sources of what the pod receives, destinations of what it sends.
"""

from contextlib import suppress
from functools import partial
from ipaddress import ip_network

from podwire.cniplugins import tags
from podwire.cniplugins.attachments import Record, lost_record
from podwire.cniplugins.bandwidth.settings import bucket, parse_settings
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect, expect_link
from podwire.cniplugins.reference.names import ifb_name
from podwire.cniplugins.skeleton import Call, run_all, run_now
from podwire.cniplugins.veth import delete_host_end, find_host_end, host_interfaces
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bucket, Ifb, Link, Subnets
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Interface, Result

_IFB = "bwp"

INGRESS = declare("cni.bandwidth-ingress", "traffic to the pod is limited, traffic from it is not")
REDIRECT = declare("cni.bandwidth-ifb", "the pod's ifb exists, and nothing is redirected through it")
UNLIMITED = declare("cni.bandwidth-unlimited", "DEL: nothing is limited, the ifb still exists")


class Bandwidth(OrderedPlugin):
    name = "bandwidth"
    points = declare_steps(name)
    chained = True
    previous_missing = ("must be called as chained plugin", "must be called as a chained plugin")
    tags_links = True

    def validate(self, call: Call) -> bool:
        settings = parse_settings(call.config)
        return bool(settings.ingress or settings.egress)

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        settings = parse_settings(call.config)
        link = _host_end(ends, record.ifname, previous)
        if settings.egress and ends.host.traffic.hooked(link.ifindex):
            self.detach(call, lost_record(call))  # of an ADD whose record is lost
        if settings.egress and ends.host.traffic.hooked(link.ifindex):
            raise CniError(Code.IN_USE, f"{link.name} has an ingress qdisc of another program")
        whole = bool(settings.networks)
        before = {
            "name": link.name,
            "ifindex": link.ifindex,
            "mtu": link.mtu,
            "ingress": settings.ingress and bucket(settings.ingress, link.mtu, whole_packets=whole),
            "egress": settings.egress and bucket(settings.egress, link.mtu, whole_packets=whole),
            "networks": [str(network) for network in settings.networks],
            "limited": settings.limited,
        }
        return record._replace(link=_ifb_name(ends.host, record), before=before)

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        host, index = ends.host, record.before["ifindex"]
        ingress, egress = _buckets(record)
        try:
            if ingress is not None:
                _shape(host, index, ingress, _subnets(record, by_source=True))
                failpoint(INGRESS)
            if egress is None:
                return given
            _add_ifb(host, record)
            ifb = host.links.get(record.link)
            _shape(host, ifb.ifindex, egress, _subnets(record, by_source=False))
            failpoint(REDIRECT)
            host.traffic.redirect(index, ifb.ifindex)
        except linux.QdiscExists as error:
            name = record.before["name"]
            raise CniError(Code.IN_USE, f"{name} has a root qdisc of another program", str(error)) from error
        return given._replace(interfaces=(*given.interfaces, Interface(ifb.name, ifb.mac, mtu=ifb.mtu)))

    def detach(self, call: Call, record: Record) -> None:
        if record.is_lost:
            for name in (ifb_name(record.network, record.container_id), record.link_name(_IFB)):
                ifb = record._replace(link=name, result=None)  # the result names the pod's veth
                run_all(partial(_end_lost_limits, call, record, ifb), partial(delete_host_end, ifb, call.defer))
        else:
            run_all(partial(_end_limits, record), partial(delete_host_end, record, call.defer))

    def detach_reference(self, call: Call, record: Record) -> None:
        with KernelNetwork() as host, suppress(linux.NoSuchLink):
            ifb = host.links.get(ifb_name(record.network, record.container_id))
            if ifb.kind == "ifb" and not ifb.alias.startswith(tags.PREFIX):
                host.links.delete(ifb.ifindex)

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        """Expects the token buckets, whose sizes the reference plugin derives by rules of its own."""
        settings = parse_settings(call.config)
        link = _host_end(ends, call.invocation.ifname, previous)
        if settings.ingress and not ends.host.traffic.has_bucket(link.ifindex):
            return False
        with suppress(linux.NoSuchLink):
            if settings.egress:
                ifb = ends.host.links.get(ifb_name(call.config.name, call.invocation.container_id))
                return not ifb.alias and ends.host.traffic.redirected(link.ifindex) == ifb.ifindex
            return True
        return False

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        host, name, index = ends.host, record.before["name"], record.before["ifindex"]
        ingress, egress = _buckets(record)
        if ingress is not None:
            _expect_shaped(host, index, ingress, _subnets(record, by_source=True), name)
        if egress is not None:
            ifb = expect_link(host, record.link)
            expect(record.owns(ifb.alias) and ifb.up, f"{ifb.name} is down, or not ours")
            _expect_shaped(host, ifb.ifindex, egress, _subnets(record, by_source=False), ifb.name)
            redirected = host.traffic.redirected(index) == ifb.ifindex
            expect(redirected, f"traffic from the pod is not redirected from {name} through {ifb.name}")


def _ifb_name(host: KernelNetwork, record: Record) -> str:
    """Returns the name that the reference plugin would use, so that it can delete the link, too.

    It does not tell the interfaces of a container apart: the second one gets another name.
    """
    name = ifb_name(record.network, record.container_id)
    with suppress(linux.NoSuchLink):
        if not record.owns(host.links.get(name).alias):
            return record.link_name(_IFB)
    return name


def _add_ifb(host: KernelNetwork, record: Record) -> None:
    """Adds the ifb, in place of one of an ADD whose record is lost."""
    new = Ifb(record.link, record.before["mtu"], record.alias, up=True)
    try:
        host.links.add(new)
    except linux.LinkExists:
        delete_host_end(record, run_now)
        host.links.add(new)


def _shape(host: KernelNetwork, index: int, bucket: Bucket, subnets: Subnets | None) -> None:
    """Replaces a token bucket of ours, of an ADD whose record is lost."""
    if subnets is None:
        limit = partial(host.traffic.shape, index, bucket)
    else:
        limit = partial(host.traffic.shape_subnets, index, bucket, subnets)
    try:
        limit()
    except linux.QdiscExists:
        with suppress(linux.NoSuchQdisc):
            host.traffic.unshape(index)
        limit()


def _subnets(record: Record, *, by_source: bool) -> Subnets | None:
    """Returns the networks of a record; None if everything is limited, also by records of podwire 0.1.0."""
    networks = tuple(ip_network(network) for network in record.before.get("networks", ()))
    return Subnets(networks, record.before["limited"], by_source) if networks else None


def _host_end(ends: Ends, ifname: str, previous: Result) -> Link:
    """Returns the host's end of the pod's veth pair, which prevResult must contain."""
    inside = ends.pod.links.get(ifname)
    try:
        link = ends.host.links.get(inside.peer) if inside.kind == "veth" else None
    except linux.NoSuchLink:
        link = None
    if link is None or link.kind != "veth" or link.peer != inside.ifindex:
        raise CniError(Code.BAD_CONFIG, f"{ifname} has no veth peer on this host, where traffic could be limited")
    if previous.interfaces and not any(
        interface.name == link.name and not interface.sandbox for interface in previous.interfaces
    ):
        raise CniError(Code.BAD_CONFIG, f"prevResult does not contain {link.name}, the peer of {ifname}")
    return link


def _buckets(record: Record) -> tuple[Bucket | None, Bucket | None]:
    ingress, egress = record.before["ingress"], record.before["egress"]
    return Bucket(*ingress) if ingress else None, Bucket(*egress) if egress else None


def _end_limits(record: Record) -> None:
    """Runs before the ifb is deleted: a redirect to a link that does not exist would drop everything."""
    with KernelNetwork() as host, suppress(linux.NoSuchLink):
        if host.links.get(record.before["name"]).ifindex == record.before["ifindex"]:
            ingress, egress = _buckets(record)
            with suppress(linux.NoSuchQdisc):
                if egress is not None:
                    host.traffic.unredirect(record.before["ifindex"])
            with suppress(linux.NoSuchQdisc):
                if ingress is not None:
                    host.traffic.unshape(record.before["ifindex"])
    failpoint(UNLIMITED)


def _end_lost_limits(call: Call, record: Record, ifb_record: Record) -> None:
    """Ends the limits on the host's ends of this attachment, by the owner tags of links and qdiscs."""
    with KernelNetwork() as host:
        ifb = find_host_end(host, ifb_record)
        if ifb is None and not _is_requested(call):
            return  # the DEL of a pod without limits
        for name in host_interfaces(record):
            with suppress(linux.NoSuchLink):
                link = host.links.get(name)
                if link.kind == "veth" and record.owns(link.alias):
                    _end_limits_of(host, link, ifb)


def _end_limits_of(host: KernelNetwork, link: Link, ifb: Link | None) -> None:
    with suppress(linux.NoSuchQdisc):
        if ifb is not None and host.traffic.redirected(link.ifindex) == ifb.ifindex:
            host.traffic.unredirect(link.ifindex)
    with suppress(linux.NoSuchQdisc):
        host.traffic.unshape(link.ifindex)


def _is_requested(call: Call) -> bool:
    try:
        settings = parse_settings(call.config)
        return bool(settings.ingress or settings.egress)
    except CniError:
        return True  # DEL must not fail for a configuration that is broken


def _expect_shaped(host: KernelNetwork, index: int, expected: Bucket, subnets: Subnets | None, name: str) -> None:
    """Compares rate and limit: the kernel stores a burst as a rounded time."""
    actual = host.traffic.shaped(index) if subnets is None else host.traffic.shaped_subnets(index)
    if actual is None:
        raise CniError(Code.NOT_AS_ADDED, f"{name} is no longer limited")
    expect(
        (actual.rate, actual.limit) == (expected.rate, expected.limit), f"{name} is limited to {actual.rate} bytes/s"
    )
    if subnets is not None:
        expect(host.traffic.selects(index, subnets), f"the limit of {name} is for other networks")


PLUGIN = Bandwidth()
