"""loopback: sets the pod's `lo` up."""

from contextlib import suppress
from ipaddress import ip_interface

from podwire.cniplugins.skeleton import Call, Plugin, pod_namespace
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import IP, Interface, Result

_LO = "lo"


class Loopback(Plugin):
    name = "loopback"

    def add(self, call: Call) -> Result:
        """Returns the result of the previous plugin; without one, a result with `lo`."""
        pod_namespace(call)
        with KernelNetwork(call.invocation.netns) as pod:
            pod.links.change(_LO, up=True)
            link = pod.links.get(_LO)
            present = [address.interface for address in pod.addresses.list(link.ifindex)]
        previous = call.config.previous()
        if previous is not None:
            return previous
        addresses = [own for own in (ip_interface("127.0.0.1/8"), ip_interface("::1/128")) if own in present]
        links = (Interface(_LO, link.mac, call.invocation.netns, mtu=link.mtu),)
        return Result(links, tuple(IP(address, interface=0) for address in addresses))

    def check(self, call: Call) -> None:
        pod_namespace(call)
        with KernelNetwork(call.invocation.netns) as pod:
            if not pod.links.get(_LO).up:
                raise CniError(Code.NOT_AS_ADDED, "lo is down")

    def delete(self, call: Call) -> None:
        if not call.invocation.netns:
            return
        with suppress(linux.NoSuchNamespace):
            pod_namespace(call)
            with KernelNetwork(call.invocation.netns) as pod:
                pod.links.change(_LO, up=False)


PLUGIN = Loopback()
