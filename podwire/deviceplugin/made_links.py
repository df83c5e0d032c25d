"""Makes links for pods: a veth or a tap on a bridge, a macvlan on any link; tagged by the message that makes them.

A killed plugin leaves no link without an owner tag: a tap, which the kernel makes without an alias, gets its name and
its tag in one message, and until then has a name that only podwire uses.
"""

from contextlib import ExitStack, suppress

from podwire.deviceplugin.config import Make
from podwire.deviceplugin.host_view import View
from podwire.deviceplugin.selection import MARK
from podwire.failpoints import declare, failpoint
from podwire.linux.errors import NoSuchLink
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.taps import make_tap
from podwire.linux.values import Link, Macvlan, Veth

MADE = declare("device-plugin.made", "a link of a pool is made, and not yet all that it should be")
REMOVED = declare("device-plugin.removed", "a link that came back is removed, and none is made in its place")

_UNFINISHED = "pwtap"


def mark(pool: str) -> str:
    return f"{MARK}{pool}"


def host_end(name: str) -> str:
    """The end of a veth that stays on the host."""
    return f"{name}-h"


def parent_trouble(make: Make, parent: Link | None) -> str:
    """Why nothing can be made on it, or what was made cannot be used; empty when it can."""
    if parent is None:
        return f"the parent {make.parent} does not exist"
    if make.kind != "macvlan" and parent.kind != "bridge":
        return f"the parent {make.parent} is not a bridge, and a {make.kind} needs one"
    if not parent.up:
        return f"the parent {make.parent} is down"
    # A bridge has a carrier only when a port has, and the ports may be nothing but ours, which nobody uses yet.
    if make.kind == "macvlan" and parent.state in ("down", "lowerlayerdown", "notpresent"):
        return f"the parent {make.parent} has no carrier"
    return ""


def is_ours(link: Link, pool: str, view: View) -> bool:
    """By its mark, or that of its other end: the two ends of a veth are marked one after the other."""
    if link.alias == mark(pool):
        return True
    other = view.links.get(link.peer) if link.kind == "veth" and link.peer_netns is None else None
    return other is not None and other.alias == mark(pool)


def is_lent(end: Link | None, pool: str) -> bool:
    """Whether the other end of our veth is in another namespace; the pair ends with that one."""
    return end is not None and end.alias == mark(pool) and end.peer_netns is not None


def make_link(netlink: Netlink, make: Make, name: str, pool: str, parent: Link) -> Link:
    """Raises LinuxError: LinkExists, NoSuchLink for a parent that went."""
    links = KernelLinks(netlink)
    match make.kind:
        case "veth":
            other = host_end(name)
            # The end that stayed of a pair whose other end nobody has.
            with suppress(NoSuchLink):
                end = links.get(other)
                if end.alias == mark(pool):
                    links.delete(end.ifindex)
            links.add(Veth(other, name, mtu=make.mtu, alias=mark(pool), master=parent.ifindex, up=True))
            failpoint(MADE)
            links.change(name, alias=mark(pool))
        case "macvlan":
            links.add(Macvlan(name, parent.ifindex, make.mode, mtu=make.mtu, alias=mark(pool)))
            failpoint(MADE)
        case _:
            sweep_taps(links)
            make_tap(_UNFINISHED)
            failpoint(MADE)
            with ExitStack() as undo:
                undo.callback(sweep_taps, links)
                index = links.get(_UNFINISHED).ifindex
                links.change(index, name=name, alias=mark(pool), mtu=make.mtu or None, master=parent.ifindex)
                undo.pop_all()
    return links.get(name)


def sweep_taps(links: KernelLinks) -> None:
    """Remove what a plugin that was killed had begun."""
    with suppress(NoSuchLink):
        links.delete(_UNFINISHED)


def remove_link(netlink: Netlink, ifindex: int) -> None:
    """Gone already is fine."""
    with suppress(NoSuchLink):
        KernelLinks(netlink).delete(ifindex)
    failpoint(REMOVED)
