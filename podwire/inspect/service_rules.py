"""Follows a packet through the table of the service proxy: from an address and port to the endpoints behind it.

Reads the elements in the kernel, and nothing else: what they say is where packets go.
"""

import ipaddress
from dataclasses import dataclass, field
from typing import NamedTuple

from podwire.linux.values import IP
from podwire.nriplugins.network.policy.values import PROTOCOLS
from podwire.proxy.kernel import Kernel
from podwire.proxy.plan import frontend
from podwire.proxy.program import TABLE, TARGETS, Target, target_of

_ID = 8
"""Bytes of the id of a list of endpoints. Keys of `endpoints` have a field of zeros before it."""


class Destination(NamedTuple):
    """The destination of a packet to a Service."""

    address: IP
    protocol: str
    port: int
    is_node_port: bool = False

    def __str__(self) -> str:
        return f"{self.address} . {self.protocol} . {self.port}"

    @property
    def key(self) -> bytes:
        """Returns its key in the maps of the proxy: a node port has no address there."""
        address = "" if self.is_node_port else str(self.address)
        return frontend(self.address.version, address, PROTOCOLS[self.protocol], self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rule or policy on the way."""

    where: str
    what: str
    verdict: str


@dataclass(slots=True)
class Way:
    steps: list[Step] = field(default_factory=list)
    endpoints: list[tuple[IP, int]] = field(default_factory=list)
    """Address and port of those to which the packet can be sent."""
    is_masqueraded: bool = False
    """Whether the endpoints see an address of the node instead of the client's."""

    def add(self, where: str, what: str, verdict: str) -> None:
        self.steps.append(Step(where=where, what=what, verdict=verdict))


def follow(kernel: Kernel, to: Destination, client: IP | None, *, is_inside: bool) -> Way:
    """Returns the way of a packet; `is_inside`: the client is a pod of this node, or the node. Raises LinuxError."""
    version, way = to.address.version, Way()
    if not _is_admitted(kernel, to, client, way):
        return way
    led = kernel.list(f"frontends{version}").get(to.key)
    if not isinstance(led, bytes):
        _explain_unserved(kernel, to, way)
        return way
    chain = str(kernel.list(TARGETS).get(led[_ID:], "")).removeprefix("goto ")
    target = target_of(chain)
    way.add(f"{TABLE} services, frontends{version}", str(to), f"goto {chain}" if chain else "leads to no chain")
    if target is None:
        return way
    way.is_masqueraded = target.kind in ("external", "node")
    list_, client_words = led[:_ID], ""
    if target.kind.endswith("local"):
        client_words = "a client on this node: " if is_inside else "a client elsewhere: "
        if not is_inside:
            local = kernel.list(f"local_ids{version}").get(to.key)
            if not isinstance(local, bytes):
                way.add(f"{TABLE} {chain}", f"{client_words}no endpoint on this node", "dropped")
                return way
            list_ = local
    way.endpoints = _endpoints(kernel, version, list_)
    what = f"{client_words}one of {len(way.endpoints)} endpoints, {_choice(target)}"
    way.add(f"{TABLE} {chain}", what, f"dnat to {', '.join(endpoint_text(*endpoint) for endpoint in way.endpoints)}")
    return way


def endpoint_text(address: IP, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _choice(target: Target) -> str:
    return f"the same for {target.affinity} s" if target.affinity else "at random"


def _is_admitted(kernel: Kernel, to: Destination, client: IP | None, way: Way) -> bool:
    """Whether `loadBalancerSourceRanges` let the client in; without a client nobody is denied."""
    version = to.address.version
    if to.key not in kernel.list(f"limited{version}"):
        return True
    length = len(to.address.packed)
    found = [
        (ipaddress.ip_address(first[-length:]), ipaddress.ip_address(last[-length:]))
        for first, last in kernel.list(f"sources{version}").items()
        if isinstance(last, bytes) and first[:-length] == to.key
    ]
    allowed = client is None or any(first.packed <= client.packed <= last.packed for first, last in found)
    texts = [str(network) for first, last in found for network in ipaddress.summarize_address_range(first, last)]
    way.add(f"{TABLE} firewall, sources{version}", f"only for {', '.join(texts)}", "continue" if allowed else "dropped")
    return allowed


def _explain_unserved(kernel: Kernel, to: Destination, way: Way) -> None:
    version = to.address.version
    for name, verdict in (("refused", "rejected, nobody is behind it"), ("dropped", "dropped, nobody on this node is")):
        if to.key in kernel.list(f"{name}{version}"):
            way.add(f"{TABLE} {name}{version}", str(to), verdict)
            return
    way.add(f"{TABLE} frontends{version}", str(to), "no rule: the proxy does not know it")


def _endpoints(kernel: Kernel, version: int, list_: bytes) -> list[tuple[IP, int]]:
    length = 4 if version == 4 else 16
    return sorted(
        (ipaddress.ip_address(data[:length]), int.from_bytes(data[length : length + 2], "big"))
        for key, data in kernel.list(f"endpoints{version}").items()
        if isinstance(data, bytes) and key[4 : 4 + _ID] == list_
    )
