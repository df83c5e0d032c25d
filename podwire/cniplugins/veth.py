"""The host's end of a veth pair, and forwarding on the host; shared by bridge, ptp and bandwidth."""

import time
from contextlib import suppress

from podwire.cniplugins.attachments import Record
from podwire.cniplugins.skeleton import DeferWork
from podwire.linux import errors as linux
from podwire.linux.net.deferred_deletion import delete_link
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.stopwatch import step
from podwire.linux.values import Link
from podwire.protocols.cni import results
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.verbs import is_ifname
from podwire.protocols.cni.versions import LATEST

FORWARDING = {4: "net.ipv4.ip_forward", 6: "net.ipv6.conf.all.forwarding"}
_POLL = 0.001


def enable_forwarding(families: set[int]) -> None:
    """Makes the host forward packets of these IP families."""
    sysctls = KernelSysctls()
    for family in families:
        if sysctls.read(FORWARDING[family]) != "1":
            sysctls.write(FORWARDING[family], "1")


def wait_until_up(host: KernelNetwork, name: str, seconds: float) -> Link:
    """Waits until a link passes packets: the kernel notices a little later that both ends are up."""
    deadline = time.monotonic() + seconds
    with step("waiting"):
        while True:
            link = host.links.get(name)
            if link.state == "up":
                return link
            if time.monotonic() > deadline:
                raise CniError(Code.REFUSED, f"link {name} is {link.state} after {seconds:g} s")
            time.sleep(_POLL)


def find_host_end(host: KernelNetwork, record: Record) -> Link | None:
    """Returns the link that a record names, if it exists and has the record's tag.

    The name follows from the ids. Links of podwire 0.1.0 have other names, which are in the result of ADD.
    """
    names = [record.link]
    if record.is_lost and record.result is not None:
        names += [name for name in host_interfaces(record) if name != record.link]
    for name in names:
        with suppress(linux.NoSuchLink):
            link = host.links.get(name)
            if record.owns(link.alias):
                return link
    return None


def host_interfaces(record: Record) -> list[str]:
    """Returns the names of the host's links in the result of ADD."""
    made = results.decode(record.result, LATEST) if record.result else results.Result()
    return [interface.name for interface in made.interfaces if not interface.sandbox and is_ifname(interface.name)]


def delete_host_end(record: Record, defer: DeferWork) -> None:
    """Deletes the link that a record names, if it exists and is ours; the other end of a pair goes with it."""
    if not record.link:
        return
    with KernelNetwork() as host, suppress(linux.NoSuchLink):
        link = find_host_end(host, record)
        if link is not None:
            delete_link(link.ifindex, defer)
