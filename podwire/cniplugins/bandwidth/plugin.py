"""bandwidth: limits how fast a pod receives and sends.

Traffic to the pod leaves through the host's end of its veth pair, where a token bucket delays it. Traffic from the pod
arrives there, and is redirected through an ifb of its own, whose token bucket delays it. Both apply to all protocols.
"""

from contextlib import suppress
from functools import partial

from podwire.cniplugins.attachments import Record
from podwire.cniplugins.bandwidth.settings import bucket, parse_settings
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect, expect_link
from podwire.cniplugins.skeleton import Call, run_all
from podwire.cniplugins.veth import delete_host_end
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bucket, Ifb, Link
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Interface, Result

INGRESS = declare("cni.bandwidth-ingress", "traffic to the pod is limited, traffic from it is not")
REDIRECT = declare("cni.bandwidth-ifb", "the pod's ifb exists, and nothing is redirected through it")
UNLIMITED = declare("cni.bandwidth-unlimited", "DEL: nothing is limited, the ifb still exists")


class Bandwidth(OrderedPlugin):
    name = "bandwidth"
    points = declare_steps(name)
    chained = True
    tags_links = True

    def validate(self, call: Call) -> bool:
        return any(parse_settings(call.config))

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        settings = parse_settings(call.config)
        link = _host_end(ends, record.ifname, previous)
        if settings.egress and ends.host.traffic.hooked(link.ifindex):
            raise CniError(Code.IN_USE, f"{link.name} has an ingress qdisc of another program")
        before = {
            "name": link.name,
            "ifindex": link.ifindex,
            "mtu": link.mtu,
            "ingress": settings.ingress and bucket(settings.ingress, link.mtu),
            "egress": settings.egress and bucket(settings.egress, link.mtu),
        }
        return record._replace(link=f"bwp{record.token[:12]}", before=before)

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        host, index = ends.host, record.before["ifindex"]
        ingress, egress = _buckets(record)
        try:
            if ingress is not None:
                host.traffic.shape(index, ingress)
                failpoint(INGRESS)
            if egress is None:
                return given
            host.links.add(Ifb(record.link, record.before["mtu"], record.alias, up=True))
            ifb = host.links.get(record.link)
            host.traffic.shape(ifb.ifindex, egress)
            failpoint(REDIRECT)
            host.traffic.redirect(index, ifb.ifindex)
        except linux.QdiscExists as error:
            name = record.before["name"]
            raise CniError(Code.IN_USE, f"{name} has a root qdisc of another program", str(error)) from error
        return given._replace(interfaces=(*given.interfaces, Interface(ifb.name, ifb.mac, mtu=ifb.mtu)))

    def detach(self, call: Call, record: Record) -> None:
        run_all(partial(_end_limits, record), partial(delete_host_end, record, call.defer))

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        host, name, index = ends.host, record.before["name"], record.before["ifindex"]
        ingress, egress = _buckets(record)
        if ingress is not None:
            _expect_bucket(ingress, host.traffic.shaped(index), name)
        if egress is not None:
            ifb = expect_link(host, record.link)
            expect(record.owns(ifb.alias) and ifb.up, f"{ifb.name} is down, or not ours")
            _expect_bucket(egress, host.traffic.shaped(ifb.ifindex), ifb.name)
            redirected = host.traffic.redirected(index) == ifb.ifindex
            expect(redirected, f"traffic from the pod is not redirected from {name} through {ifb.name}")


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


def _expect_bucket(expected: Bucket, actual: Bucket | None, name: str) -> None:
    """Compares rate and limit: the kernel stores a burst as a rounded time."""
    if actual is None:
        raise CniError(Code.NOT_AS_ADDED, f"{name} is no longer limited")
    expect(
        (actual.rate, actual.limit) == (expected.rate, expected.limit), f"{name} is limited to {actual.rate} bytes/s"
    )


PLUGIN = Bandwidth()
