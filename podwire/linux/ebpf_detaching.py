"""Programs of eBPF taken off a link: XDP and TCX, by whichever way they were put there.

Classifiers of tc need no care: the kernel drops them with the queues of a link that moves. A program that nobody else
holds is gone once it is taken off, so nothing here can be undone.
"""

import ctypes
import errno
import os
from struct import Struct

from podwire.linux import errors, syscalls, wire
from podwire.linux.netlink import Netlink
from podwire.linux.wire import Request, attribute, nested, u32

_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_DETACH, _PROGRAM_BY_ID, _INFO, _QUERY, _LINK_BY_ID, _NEXT_LINK, _DETACH_LINK = 9, 13, 15, 16, 30, 31, 34
_TCX = (46, 47)  # what comes in, what leaves
_MOST = 64  # programs of one hook; the kernel allows no more
_QUERIED = Struct("=IIIIQIIQQQQ")  # link, hook, flags, …, programs, how many, …, flags of each, links, …, revision
_COUNT_AT = 24
_DETACHED = Struct("=IIIIIIQ")  # link, program, hook, flags, …
_ID = Struct("=III")
_INFO_ASKED = Struct("=IIQ")  # descriptor, length, where to
_INFO_TOLD = Struct("=IIIxxxxI")  # kind, id, program, and of a link of XDP the interface
_XDP_LINK = 6

_GET_LINK, _SET_LINK = 18, 19
_LINK_MESSAGE = Struct("=BxHiII")
_XDP, _XDP_FD, _XDP_ATTACHED, _XDP_FLAGS, _XDP_PROGRAM = 43, 1, 2, 3, 4
_NOBODY = b"\xff\xff\xff\xff"
_MODES = {1: 1 << 2, 2: 1 << 1, 3: 1 << 3}  # by the driver, by the kernel, by hardware

_ERRORS: errors.Names = {errno.ENODEV: errors.NoSuchLink}


def detach_programs(netlink: Netlink, ifindex: int) -> int:
    """Take all off a link of the calling thread's namespace, which the socket is of; returns how many. Unsupported."""
    return _detach_xdp(netlink, ifindex) + sum(_detach_tcx(ifindex, hook) for hook in _TCX)


def _detach_tcx(ifindex: int, hook: int) -> int:
    programs, links = (ctypes.c_uint32 * _MOST)(), (ctypes.c_uint32 * _MOST)()
    asked = _QUERIED.pack(ifindex, hook, 0, 0, ctypes.addressof(programs), _MOST, 0, 0, ctypes.addressof(links), 0, 0)
    try:
        answer = _bpf(_QUERY, asked, "list programs")[1]
    except (errors.Unsupported, errors.Refused):
        return 0  # a kernel without TCX
    count = wire.U32.unpack_from(answer, _COUNT_AT)[0]
    for program, link in zip(programs[:count], links[:count], strict=True):
        if link:
            _detach_link(link)
        else:
            _detach_program(ifindex, hook, program)
    return int(count)


def _detach_program(ifindex: int, hook: int, program: int) -> None:
    opened, _ = _bpf(_PROGRAM_BY_ID, _ID.pack(program, 0, 0), f"open program {program}")
    try:
        _bpf(_DETACH, _DETACHED.pack(ifindex, opened, hook, 0, 0, 0, 0), f"detach program {program}")
    finally:
        os.close(opened)


def _detach_link(number: int) -> None:
    opened, _ = _bpf(_LINK_BY_ID, _ID.pack(number, 0, 0), f"open the link of a program, {number}")
    try:
        _bpf(_DETACH_LINK, wire.U32.pack(opened), f"detach the link of a program, {number}")
    finally:
        os.close(opened)


def _detach_xdp(netlink: Netlink, ifindex: int) -> int:
    head = _LINK_MESSAGE.pack(0, 0, ifindex, 0, 0)
    body = netlink.ask(Request(_GET_LINK, 0, head, f"find link {ifindex}", _ERRORS))
    told = wire.attributes(wire.attributes(body, _LINK_MESSAGE.size).get(_XDP, b""))
    attached = wire.number(told.get(_XDP_ATTACHED))
    if not attached:
        return 0
    operation = f"detach XDP from link {ifindex}"
    if attached not in _MODES:
        raise errors.Unsupported(errno.EOPNOTSUPP, operation, "it has several programs")
    off = nested(_XDP, attribute(_XDP_FD, _NOBODY), u32(_XDP_FLAGS, _MODES[attached]))
    try:
        netlink.do(Request(_SET_LINK, 0, head + off, operation, _ERRORS))
    except errors.LinuxError as error:
        link = _xdp_link(ifindex, wire.number(told.get(_XDP_PROGRAM)))
        if not link:
            raise errors.Unsupported(error.errno, operation, error.detail) from error
        _detach_link(link)
    return 1


def _xdp_link(ifindex: int, program: int) -> int:
    """The number of what holds a program on a link; 0 when nothing is known to."""
    number = 0
    while True:
        try:
            answer = _bpf(_NEXT_LINK, _ID.pack(number, 0, 0), "list links of programs")[1]
        except errors.LinuxError:
            return 0
        number = int(_ID.unpack_from(answer)[1])
        if _is_for(number, ifindex, program):
            return number


def _is_for(number: int, ifindex: int, program: int) -> bool:
    told = ctypes.create_string_buffer(128)
    try:
        opened, _ = _bpf(_LINK_BY_ID, _ID.pack(number, 0, 0), f"open the link of a program, {number}")
    except errors.LinuxError:  # it went meanwhile
        return False
    try:
        _bpf(_INFO, _INFO_ASKED.pack(opened, len(told), ctypes.addressof(told)), "ask for the link of a program")
    finally:
        os.close(opened)
    kind, _, held, interface = _INFO_TOLD.unpack_from(told.raw)
    return (kind, held, interface) == (_XDP_LINK, program, ifindex)


def _bpf(command: int, attributes: bytes, operation: str) -> tuple[int, bytes]:
    """What the call returns, and what it wrote."""
    number = _BPF.get(os.uname().machine)
    if number is None:
        raise errors.Unsupported(errno.ENOSYS, operation, "its number is not known on this machine")
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    found = syscalls.syscall(number, operation, command, ctypes.addressof(buffer), len(buffer))
    return found, buffer.raw
