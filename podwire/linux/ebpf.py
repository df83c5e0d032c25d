"""Whether programs of eBPF look at what passes a link: by classifiers (tc), by TCX. Of XDP the link itself tells.

No program is needed to find out, and nothing is changed.
"""

import ctypes
import os
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors, syscalls, wire
from podwire.linux.netlink import Netlink
from podwire.linux.wire import Request

_BPF, _QUERY = {"x86_64": 321, "aarch64": 280, "riscv64": 280}, 16
_TCX = (46, 47)  # what comes in, what leaves
_ASKED = Struct("=IIIIQI36x")  # link, where, flags, …, programs, how many
_COUNT = Struct("=I")
_COUNT_AT = 24

_GET_QDISC, _GET_FILTER = 38, 46
_MESSAGE = Struct("=BxxxiIII")  # family, index, handle, parent, info
_KIND = 1
_HOOKS = {"clsact": (0xFFFFFFF2, 0xFFFFFFF3), "ingress": (0xFFFF0000,)}


class Filtered(NamedTuple):
    """A link, and where filters can be on it."""

    ifindex: int
    parent: int


def classified(netlink: Netlink) -> set[int]:
    """The links of a namespace that have a classifier of eBPF."""
    return {ifindex for ifindex, parent in _places(netlink) if _has_program(netlink, ifindex, parent)}


def _places(netlink: Netlink) -> list[Filtered]:
    found = []
    for body in netlink.dump(Request(_GET_QDISC, 0, _MESSAGE.pack(0, 0, 0, 0, 0), "list qdiscs", {})):
        _, ifindex, _handle, _, _ = _MESSAGE.unpack_from(body)
        kind = wire.string(wire.attributes(body, _MESSAGE.size).get(_KIND, b""))
        found += [Filtered(ifindex, parent) for parent in _HOOKS.get(kind, ())]
    return found


def _has_program(netlink: Netlink, ifindex: int, parent: int) -> bool:
    request = Request(_GET_FILTER, 0, _MESSAGE.pack(0, ifindex, 0, parent, 0), f"list filters of link {ifindex}", {})
    try:
        bodies = netlink.dump(request)
    except errors.LinuxError:  # it went meanwhile
        return False
    return any(wire.string(wire.attributes(each, _MESSAGE.size).get(_KIND, b"")) == "bpf" for each in bodies)


def has_tcx(ifindex: int) -> bool:
    """Of a link of the calling thread's namespace; False where it cannot be told."""
    return any(_programs(ifindex, where) for where in _TCX)


def _programs(ifindex: int, where: int) -> int:
    number = _BPF.get(os.uname().machine)
    if number is None:
        return 0
    asked = ctypes.create_string_buffer(_ASKED.pack(ifindex, where, 0, 0, 0, 0), _ASKED.size)
    try:
        syscalls.syscall(number, "ask for programs", _QUERY, ctypes.addressof(asked), _ASKED.size)
    except OSError:
        return 0
    return int(_COUNT.unpack_from(asked.raw, _COUNT_AT)[0])
