"""Names of the eBPF programs on a link: tc classifiers and TCX. `Link.xdp` has the third kind. Changes nothing."""

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
    """Returns the links of a namespace with eBPF classifiers, and the names of these."""
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
    attrs = [wire.attributes(body, _MESSAGE.size) for body in bodies]
    options = [wire.attributes(filter_[_OPTIONS]) for filter_ in attrs if _is_program(filter_)]
    return [
        wire.string(option.get(_BPF_NAME, b"")) or bpf.name_of(wire.number(option.get(_BPF_ID))) for option in options
    ]


def _is_program(attrs: dict[int, bytes]) -> bool:
    """The kernel tells of each kind of filter first, and then of each filter, with its options."""
    return wire.string(attrs.get(_KIND, b"")) == "bpf" and _OPTIONS in attrs


def tcx(ifindex: int) -> list[str]:
    """Returns the TCX programs of a link of the calling thread's namespace; none on a kernel without TCX."""
    try:
        return [bpf.name_of(program) for hook in bpf.TCX for program, _ in bpf.on_hook(ifindex, hook)]
    except errors.LinuxError:
        return []
