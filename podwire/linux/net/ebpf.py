"""Programs of eBPF that look at what passes a link, by their names: classifiers (tc), and those of TCX. Of XDP the link
itself tells.

No program is needed to find out, and nothing is changed.
"""

from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import bpf, wire
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.wire import Request

_GET_QDISC, _GET_FILTER = 38, 46
_MESSAGE = Struct("=BxxxiIII")  # family, index, handle, parent, info
_KIND, _OPTIONS, _BPF_NAME, _BPF_ID = 1, 2, 7, 11
_HOOKS = {"clsact": (0xFFFFFFF2, 0xFFFFFFF3), "ingress": (0xFFFF0000,)}


class Filtered(NamedTuple):
    """A link, and where filters can be on it."""

    ifindex: int
    parent: int


def classifiers(netlink: Netlink) -> dict[int, list[str]]:
    """The links of a namespace that have classifiers of eBPF, and what those are called by whoever put them there."""
    found: dict[int, list[str]] = {}
    for ifindex, parent in _places(netlink):
        if names := _names(netlink, ifindex, parent):
            found.setdefault(ifindex, []).extend(names)
    return found


def _places(netlink: Netlink) -> list[Filtered]:
    found = []
    for body in netlink.dump(Request(_GET_QDISC, 0, _MESSAGE.pack(0, 0, 0, 0, 0), "list qdiscs", {})):
        _, ifindex, _handle, _, _ = _MESSAGE.unpack_from(body)
        kind = wire.string(wire.attributes(body, _MESSAGE.size).get(_KIND, b""))
        found += [Filtered(ifindex, parent) for parent in _HOOKS.get(kind, ())]
    return found


def _names(netlink: Netlink, ifindex: int, parent: int) -> list[str]:
    request = Request(_GET_FILTER, 0, _MESSAGE.pack(0, ifindex, 0, parent, 0), f"list filters of link {ifindex}", {})
    try:
        bodies = netlink.dump(request)
    except errors.LinuxError:  # it went meanwhile
        return []
    told = [wire.attributes(each, _MESSAGE.size) for each in bodies]
    options = [wire.attributes(each[_OPTIONS]) for each in told if _is_program(each)]
    return [wire.string(each.get(_BPF_NAME, b"")) or bpf.name_of(wire.number(each.get(_BPF_ID))) for each in options]


def _is_program(told: dict[int, bytes]) -> bool:
    """The kernel tells of each kind of filter first, and then of each filter, with its options."""
    return wire.string(told.get(_KIND, b"")) == "bpf" and _OPTIONS in told


def tcx(ifindex: int) -> list[str]:
    """The programs of a link of the calling thread's namespace; none where it cannot be told."""
    try:
        return [bpf.name_of(program) for hook in bpf.TCX for program, _ in bpf.on_hook(ifindex, hook)]
    except errors.LinuxError:
        return []
