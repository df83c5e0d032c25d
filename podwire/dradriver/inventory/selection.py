"""Selects the links of the host that become devices, and how they are shared. Pure."""

import base64
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from podwire.dradriver.inventory.config import Config, Shared
from podwire.dradriver.inventory.uplinks import below, needed, uplinks
from podwire.linux.net.sysfs import Hardware
from podwire.linux.values import Link, Route

OWN = re.compile(r"podwire([:-].*)?", re.DOTALL)
"""The aliases of links that podwire has made: pods' cables, the bridge of a node's pods, ifbs, claims' interfaces."""
OF_NETWORKS = frozenset(
    {"cilium_host", "cilium_net", "cilium_vxlan", "cni0", "docker0", "flannel.1", "kube-ipvs0"}
    | {"nodelocaldns", "vxlan.calico", "weave"}
)
"""Links of what else connects pods."""
OF_KERNEL = frozenset(
    ("erspan0", "gre0", "gretap0", "ip6_vti0", "ip6gre0", "ip6tnl0", "ip_vti0", "sit0", "tunl0")
)  # fmt: skip
"""Each namespace has its own of these, and keeps it."""
STAYING = frozenset(("bond", "bridge", "team", "vrf"))
"""Kinds of links that the kernel moves nowhere."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class Choice(NamedTuple):
    link: Link
    parent: Shared | None
    """How it is shared; None for a link that moves as a whole."""


class Chosen(NamedTuple):
    choices: Mapping[int, Choice]
    """By index, every link that can be offered."""
    left_out: Mapping[str, str]
    """By name, every other, and why."""


def chosen(links: Mapping[int, Link], routes: Iterable[Route], config: Config) -> Chosen:
    protected = needed(links, uplinks(routes))
    choices: dict[int, Choice] = {}
    left_out: dict[str, str] = {}
    for index, link in links.items():
        parent = sharing(link, protected, config)
        end = links.get(below(link)) if link.kind == "veth" else None
        why = why_not(link, protected) or ("its other end belongs to podwire" if end and is_never_offered(end) else "")
        if parent is not None or not why:
            choices[index] = Choice(link, parent)
        else:
            left_out[link.name] = why
    return Chosen(choices, left_out)


def sharing(link: Link, protected: Collection[int], config: Config) -> Shared | None:
    """How interfaces are made on a link, if they are. What the host needs is shared only if it is named."""
    named = config.parent(link.name)
    if is_never_offered(link):
        return None
    if named is not None:
        return named
    if link.kind == "bridge" and config.bridges and link.ifindex not in protected and link.name not in OF_NETWORKS:
        return Shared(interface=link.name, slots=config.slots)
    return None


def why_not(link: Link, protected: Collection[int]) -> str:
    """Why a link cannot be given away as a whole; empty when it can."""
    if is_never_offered(link):
        return "it belongs to podwire" if OWN.fullmatch(link.alias) else "it belongs to the namespace"
    if link.ifindex in protected:
        return "the host needs it for its default route"
    if link.master:
        return "it is a port of another link"
    if link.name in OF_NETWORKS:
        return "it belongs to the cluster's network"
    if link.kind in STAYING:
        return f"a {link.kind} cannot be moved"
    return ""


def is_never_offered(link: Link) -> bool:
    """Whether it is never offered, whatever is configured."""
    return link.name == "lo" or link.name in OF_KERNEL or bool(OWN.fullmatch(link.alias))


def label(link: str, hardware: Hardware) -> str:
    """Returns the device's name: from its PCI address if it has one, else from the link's name."""
    if hardware.pci and _LABEL.fullmatch(slotted := "pci-" + re.sub("[:.]", "-", hardware.pci.lower())):
        return slotted
    return plain_label(link)


def plain_label(link: str) -> str:
    """Returns the link's name; one that is not a DNS label is written in letters that are."""
    if _LABEL.fullmatch(link):
        return link
    return "net-" + base64.b32encode(link.encode("utf-8", "surrogateescape")).decode("ascii").rstrip("=").lower()


def labels(found: Mapping[int, tuple[str, Hardware]], taken: Collection[str] = ()) -> dict[int, str]:
    """Of all links, by index. Of several on one PCI device, the first port has its name; the others have their own.

    One whose name is taken is left out: there cannot be two devices of one name.
    """
    names: dict[int, str] = {}
    used = set(taken)
    for index in sorted(found, key=lambda each: (found[each][1].port, each)):
        link, hardware = found[index]
        for name in (label(link, hardware), plain_label(link)):
            if name not in used:
                used.add(name)
                names[index] = name
                break
    return names
