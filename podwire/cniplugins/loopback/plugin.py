"""loopback: the pod's `lo`, up."""

from contextlib import suppress
from ipaddress import ip_interface

from podwire.cniplugins.skeleton import Call, Plugin, pod_netns
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import IP, Interface, Result

_LO = "lo"


def add(call: Call) -> Result:
    """Whatever was made before is passed on; alone, `lo` is the result."""
    pod_netns(call)
    with KernelNetwork(call.invocation.netns) as pod:
        pod.links.change(_LO, up=True)
        link = pod.links.get(_LO)
        has = [each.interface for each in pod.addresses.list(link.ifindex)]
    previous = call.config.previous()
    if previous is not None:
        return previous
    wanted = [each for each in (ip_interface("127.0.0.1/8"), ip_interface("::1/128")) if each in has]
    links = (Interface(_LO, link.mac, call.invocation.netns, mtu=link.mtu),)
    return Result(links, tuple(IP(each, interface=0) for each in wanted))


def check(call: Call) -> None:
    pod_netns(call)
    with KernelNetwork(call.invocation.netns) as pod:
        if not pod.links.get(_LO).up:
            raise CniError(Code.NOT_AS_ADDED, "lo is down")


def delete(call: Call) -> None:
    if not call.invocation.netns:
        return
    with suppress(linux.NoSuchNamespace):
        pod_netns(call)
        with KernelNetwork(call.invocation.netns) as pod:
            pod.links.change(_LO, up=False)


PLUGIN = Plugin("loopback", add, check, delete)
