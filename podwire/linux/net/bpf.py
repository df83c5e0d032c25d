"""The system call `bpf`, as far as others' programs are looked at and taken off; none is loaded."""

import ctypes
import errno
import os
from struct import Struct

from podwire.linux import errors, syscalls
from podwire.linux.net import wire

PROGRAM_BY_ID, QUERY = 13, 16
TCX = (46, 47)
"""Where programs are: for what comes in, for what leaves."""

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
    """What the call returns, and what it wrote. Unsupported, LinuxError."""
    number = _NUMBERS.get(os.uname().machine)
    if number is None:
        raise errors.Unsupported(errno.ENOSYS, operation, "its number is not known on this machine")
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), _LEAST))
    found = syscalls.syscall(number, operation, command, ctypes.addressof(buffer), len(buffer))
    return found, buffer.raw


def opened(command: int, number: int, operation: str) -> int:
    """A descriptor of what has this number."""
    return call(command, _ID.pack(number, 0, 0), operation)[0]


def info(descriptor: int, operation: str) -> bytes:
    """What the kernel tells of a program, or of what holds one on a link."""
    told = ctypes.create_string_buffer(_LEAST)
    call(_INFO, _INFO_ASKED.pack(descriptor, len(told), ctypes.addressof(told)), operation)
    return told.raw


def on_hook(ifindex: int, hook: int) -> list[tuple[int, int]]:
    """The programs of a link of the calling thread's namespace, in order, each with what holds it there, or 0."""
    programs, links = (ctypes.c_uint32 * _MOST)(), (ctypes.c_uint32 * _MOST)()
    asked = _QUERIED.pack(ifindex, hook, 0, 0, ctypes.addressof(programs), _MOST, 0, 0, ctypes.addressof(links), 0, 0)
    try:
        answer = call(QUERY, asked, "list programs")[1]
    except (errors.Unsupported, errors.Refused):
        return []  # a kernel without TCX
    count = wire.U32.unpack_from(answer, _COUNT_AT)[0]
    return list(zip(programs[:count], links[:count], strict=True))


def name_of(program: int) -> str:
    """What its author calls a program, as far as that fits 15 letters; its number where nobody gave it a name."""
    try:
        descriptor = opened(PROGRAM_BY_ID, program, f"open program {program}")
    except errors.LinuxError:  # it went meanwhile
        return f"#{program}"
    try:
        told = info(descriptor, f"ask for program {program}")
    finally:
        os.close(descriptor)
    return wire.string(told[_NAME_AT : _NAME_AT + _NAME]) or f"#{program}"
