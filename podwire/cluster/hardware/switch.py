"""The cards' links: each is one end of a pair whose other end is on a bridge in a namespace beside the node.

The far end has the same name, is never touched by what runs on the node, and is therefore what a card is known by:
where it is, the card is, under whatever name, on the node or in a pod. A card's link that ended (with the namespace of
a pod that was not torn down in order; the kernel would have brought real hardware home) is made anew.
"""

from collections.abc import Iterable
from pathlib import Path

from podwire.cluster.hardware.pci_functions import Function
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bridge, Link, Veth

BRIDGE = "switch0"


def install(switch: KernelNetwork, node: Path, cards: Iterable[Function], mark: str) -> list[Function]:
    """Make what is missing; which cards that were. `node` is the path of the node's network namespace."""
    there = {link.name for link in switch.links.list()}
    if BRIDGE not in there:
        switch.links.add(Bridge(BRIDGE, alias=mark, up=True))
    missing = [card for card in cards if card.name not in there]
    bridge = switch.links.get(BRIDGE).ifindex
    for card in missing:
        switch.links.add(_cable(card, bridge, node, mark))
    return missing


def _cable(each: Function, bridge: int, node: Path, mark: str) -> Veth:
    mtu = each.nic.mtu if each.nic else 1500
    return Veth(each.name, each.name, node, mtu=mtu, peer_mac=each.mac, alias=mark, master=bridge, up=True)


def turn_on(node: KernelNetwork, cards: Iterable[Function]) -> None:
    """Those that were just made: a machine that has started has its links up."""
    for card in cards:
        node.links.change(card.name, up=True)


def plug(switch: KernelNetwork, name: str, *, plugged: bool) -> None:
    """Put a card's cable in, or pull it out: what is at its other end sees its carrier come or go. NoSuchLink."""
    switch.links.change(name, up=plugged)


def names(switch: Iterable[Link], node: Iterable[Link], number: int | None) -> dict[str, str]:
    """Which cards are on the node, and what they are called there. `number` is what the node calls the switch. Pure."""
    far = {link.ifindex: link for link in switch}
    found = {}
    for link in node:
        other = far.get(link.peer) if link.kind == "veth" and link.peer_netns == number else None
        if other is not None and other.peer == link.ifindex:
            found[other.name] = link.name
    return found


def own_namespace() -> Path:
    """Of the calling thread."""
    return Path("/proc/thread-self/ns/net")
