"""Links of the simulated cards: each is one end of a veth pair whose other end is on a bridge in the switch namespace.

The far end keeps the card's name and is never touched by programs on the node, so it identifies the card under whatever
name, on the node or in a pod. A card whose link ended with the namespace of its pod is recreated; real hardware would
have been returned by the kernel.
"""

from collections.abc import Iterable
from pathlib import Path

from podwire.cluster.hardware.pci_functions import Function
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bridge, Link, Veth

BRIDGE = "switch0"


def install(switch: KernelNetwork, node: Path, cards: Iterable[Function], tag: str) -> list[Function]:
    """Creates missing cards and returns them. `node` is the path of the node's network namespace."""
    existing = {link.name for link in switch.links.list()}
    if BRIDGE not in existing:
        switch.links.add(Bridge(BRIDGE, alias=tag, up=True))
    missing = [card for card in cards if card.name not in existing]
    bridge = switch.links.get(BRIDGE).ifindex
    for card in missing:
        switch.links.add(_cable(card, bridge, node, tag))
    return missing


def _cable(card: Function, bridge: int, node: Path, tag: str) -> Veth:
    mtu = card.nic.mtu if card.nic else 1500
    return Veth(card.name, card.name, node, mtu=mtu, peer_mac=card.mac, alias=tag, master=bridge, up=True)


def turn_on(node: KernelNetwork, cards: Iterable[Function]) -> None:
    """Sets new cards up, like the links of a machine that has booted."""
    for card in cards:
        node.links.change(card.name, up=True)


def plug(switch: KernelNetwork, name: str, *, plugged: bool) -> None:
    """Connects or disconnects a card's cable: its carrier changes. Raises NoSuchLink."""
    switch.links.change(name, up=plugged)


def names(switch: Iterable[Link], node: Iterable[Link], number: int | None) -> dict[str, str]:
    """Returns the cards that are on the node, with their present names. `number` is the nsid of the switch. Pure."""
    far = {link.ifindex: link for link in switch}
    result = {}
    for link in node:
        other = far.get(link.peer) if link.kind == "veth" and link.peer_netns == number else None
        if other is not None and other.peer == link.ifindex:
            result[other.name] = link.name
    return result


def own_namespace() -> Path:
    """Returns the network namespace of the calling thread."""
    return Path("/proc/thread-self/ns/net")
