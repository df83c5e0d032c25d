"""Net devices of a container: links of the host that move into its pod's network namespace, with their addresses.

crun and runc of today do not support `linux.netDevices`, so the links are moved before the container is started. A link
that an earlier start of the same container moved stays. When the namespace is removed, the kernel returns physical
links to the host and destroys virtual ones.
"""

from collections.abc import Mapping
from pathlib import Path

from podwire.linux.errors import LinuxError, NoSuchLink
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.grpc_status import FailedPrecondition


def move_net_devices(links: Mapping[str, str], netns: str) -> None:
    """Moves links, by their names on the host, to their names in the pod. Raises FailedPrecondition with the link."""
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
    interfaces = [address.interface for address in host.addresses.list(link.ifindex)]
    host.links.move(link.ifindex, netns, inside)
    moved = pod.links.get(inside)
    for interface in interfaces:
        if not interface.ip.is_link_local:
            pod.addresses.add(moved.ifindex, interface)
    pod.links.change(moved.ifindex, up=True)
