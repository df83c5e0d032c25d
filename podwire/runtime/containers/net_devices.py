"""Links of the host that a container wants: moved into its pod's network namespace, with their addresses, and up.

The OCI runtimes of today do not know them (`linux.netDevices` is younger), so they are moved before the container is
started. A link that has arrived already, with an earlier start of the same container, stays. It goes as the namespace
goes: the kernel brings hardware home, and whatever is made of software ends.
"""

from collections.abc import Mapping
from pathlib import Path

from podwire.linux.errors import LinuxError, NoSuchLink
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.grpc_status import FailedPrecondition


def move_links(links: Mapping[str, str], netns: str) -> None:
    """Move links, by their names here, to the names there. Raises FailedPrecondition naming the link."""
    with KernelNetwork() as host, KernelNetwork(netns) as pod:
        for name, inside in links.items():
            try:
                _move(host, pod, Path(netns), name, inside)
            except LinuxError as error:
                raise FailedPrecondition(f"net device {name!r} cannot become {inside!r} of the pod: {error}") from error


def _move(host: KernelNetwork, pod: KernelNetwork, netns: Path, name: str, inside: str) -> None:
    try:
        link = host.links.get(name)
    except NoSuchLink:
        pod.links.get(inside)
        return
    addresses = [each.interface for each in host.addresses.list(link.ifindex) if not each.interface.ip.is_link_local]
    host.links.move(link.ifindex, netns, inside)
    arrived = pod.links.get(inside)
    for each in addresses:
        pod.addresses.add(arrived.ifindex, each)
    pod.links.change(arrived.ifindex, up=True)
