"""The system call `bpf`: lists and detaches programs of links. `cgroups/devices.py` loads one of its own."""

import ctypes
import errno
import os
from struct import Struct

from podwire.linux import errors, syscalls
from podwire.linux.net import wire

PROGRAM_BY_ID, QUERY = 13, 16
TCX = (46, 47)
"""TCX hooks: ingress, egress."""

_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_LEAST = 128
_INFO = 15
_MOST = 64  # programs of one hook; the kernel allows no more
_QUERIED = Struct("=IIIIQIIQQQQ")  # link, hook, flags, …, programs, how many, …, flags of each, links, …, revision
_COUNT_AT = 24
_ID = Struct("=III")
_INFO_ASKED = Struct("=IIQ")  # descriptor, length, where to
_NAME_AT, _NAME = 64, 16


def call(command: int, attributes: bytes, operation: str) -> tuple[int, bytes]:
    """Returns the result of the call, and the attributes that it wrote. Raises Unsupported, LinuxError."""
    number = _NUMBERS.get(os.uname().machine)
    if number is None:
        raise errors.Unsupported(errno.ENOSYS, operation, "its number is not known on this machine")
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), _LEAST))
    found = syscalls.syscall(number, operation, command, ctypes.addressof(buffer), len(buffer))
    return found, buffer.raw


def opened(command: int, number: int, operation: str) -> int:
    """Opens a program or link by its id."""
    return call(command, _ID.pack(number, 0, 0), operation)[0]


def info(descriptor: int, operation: str) -> bytes:
    """Returns the kernel's info of a program or BPF link."""
    buffer = ctypes.create_string_buffer(_LEAST)
    call(_INFO, _INFO_ASKED.pack(descriptor, len(buffer), ctypes.addressof(buffer)), operation)
    return buffer.raw


def on_hook(ifindex: int, hook: int) -> list[tuple[int, int]]:
    """Returns the programs on a hook of a link, in order, each with the id of its BPF link, or 0."""
    programs, links = (ctypes.c_uint32 * _MOST)(), (ctypes.c_uint32 * _MOST)()
    asked = _QUERIED.pack(ifindex, hook, 0, 0, ctypes.addressof(programs), _MOST, 0, 0, ctypes.addressof(links), 0, 0)
    try:
        answer = call(QUERY, asked, "list programs")[1]
    except (errors.Unsupported, errors.Refused):
        return []  # a kernel without TCX
    count = wire.U32.unpack_from(answer, _COUNT_AT)[0]
    return list(zip(programs[:count], links[:count], strict=True))


def name_of(program: int) -> str:
    """Returns a program's name (up to 15 letters), or its id if it has none."""
    try:
        descriptor = opened(PROGRAM_BY_ID, program, f"open program {program}")
    except errors.LinuxError:  # it went meanwhile
        return f"#{program}"
    try:
        details = info(descriptor, f"ask for program {program}")
    finally:
        os.close(descriptor)
    return wire.string(details[_NAME_AT : _NAME_AT + _NAME]) or f"#{program}"
