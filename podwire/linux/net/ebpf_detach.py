"""Detaches eBPF programs from a link: XDP and TCX, however they were attached.

The kernel drops tc classifiers with the qdiscs of a link that moves. A program without another reference ends when it
is detached, so nothing here can be undone.
"""

import errno
import os
from struct import Struct

from podwire.linux import errors
from podwire.linux.net import bpf, wire
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.wire import Request, attribute, nested, u32

_DETACH, _LINK_BY_ID, _NEXT_LINK, _DETACH_LINK = 9, 30, 31, 34
_DETACHED = Struct("=IIIIIIQ")  # link, program, hook, flags, …
_ID = Struct("=III")
_INFO_TOLD = Struct("=IIIxxxxI")  # kind, id, program, and of a link of XDP the interface
_XDP_LINK = 6

_GET_LINK, _SET_LINK = 18, 19
_LINK_MESSAGE = Struct("=BxHiII")
_XDP, _XDP_FD, _XDP_ATTACHED, _XDP_FLAGS, _XDP_PROGRAM = 43, 1, 2, 3, 4
_NOBODY = b"\xff\xff\xff\xff"
_MODES = {1: 1 << 2, 2: 1 << 1, 3: 1 << 3}  # by the driver, by the kernel, by hardware

_ERRORS: errors.Names = {errno.ENODEV: errors.NoSuchLink}


def detach_programs(netlink: Netlink, ifindex: int) -> int:
    """Detaches all programs from a link of the calling thread's namespace; returns their number. Raises Unsupported."""
    return _detach_xdp(netlink, ifindex) + sum(_detach_tcx(ifindex, hook) for hook in bpf.TCX)


def _detach_tcx(ifindex: int, hook: int) -> int:
    there = bpf.on_hook(ifindex, hook)
    for program, link in there:
        if link:
            _detach_link(link)
        else:
            _detach_program(ifindex, hook, program)
    return len(there)


def _detach_program(ifindex: int, hook: int, program: int) -> None:
    opened = bpf.opened(bpf.PROGRAM_BY_ID, program, f"open program {program}")
    try:
        bpf.call(_DETACH, _DETACHED.pack(ifindex, opened, hook, 0, 0, 0, 0), f"detach program {program}")
    finally:
        os.close(opened)


def _detach_link(number: int) -> None:
    opened = bpf.opened(_LINK_BY_ID, number, f"open the link of a program, {number}")
    try:
        bpf.call(_DETACH_LINK, wire.U32.pack(opened), f"detach the link of a program, {number}")
    finally:
        os.close(opened)


def _detach_xdp(netlink: Netlink, ifindex: int) -> int:
    head = _LINK_MESSAGE.pack(0, 0, ifindex, 0, 0)
    body = netlink.ask(Request(_GET_LINK, 0, head, f"find link {ifindex}", _ERRORS))
    attrs = wire.attributes(wire.attributes(body, _LINK_MESSAGE.size).get(_XDP, b""))
    attached = wire.number(attrs.get(_XDP_ATTACHED))
    if not attached:
        return 0
    operation = f"detach XDP from link {ifindex}"
    if attached not in _MODES:
        raise errors.Unsupported(errno.EOPNOTSUPP, operation, "it has several programs")
    off = nested(_XDP, attribute(_XDP_FD, _NOBODY), u32(_XDP_FLAGS, _MODES[attached]))
    try:
        netlink.do(Request(_SET_LINK, 0, head + off, operation, _ERRORS))
    except errors.LinuxError as error:
        link = _xdp_link(ifindex, wire.number(attrs.get(_XDP_PROGRAM)))
        if not link:
            raise errors.Unsupported(error.errno, operation, error.detail) from error
        _detach_link(link)
    return 1


def _xdp_link(ifindex: int, program: int) -> int:
    """The number of what holds a program on a link; 0 when nothing is known to."""
    number = 0
    while True:
        try:
            answer = bpf.call(_NEXT_LINK, _ID.pack(number, 0, 0), "list links of programs")[1]
        except errors.LinuxError:
            return 0
        number = int(_ID.unpack_from(answer)[1])
        if _is_for(number, ifindex, program):
            return number


def _is_for(number: int, ifindex: int, program: int) -> bool:
    try:
        opened = bpf.opened(_LINK_BY_ID, number, f"open the link of a program, {number}")
    except errors.LinuxError:  # it went meanwhile
        return False
    try:
        attrs = bpf.info(opened, "ask for the link of a program")
    finally:
        os.close(opened)
    kind, _, held, interface = _INFO_TOLD.unpack_from(attrs)
    return (kind, held, interface) == (_XDP_LINK, program, ifindex)
