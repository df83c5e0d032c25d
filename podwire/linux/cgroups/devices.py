"""The devices that the processes of a cgroup may use: version 1 by `devices.allow`, version 2 by an eBPF program.

The kernel has one policy per group: all devices are allowed or denied, with exceptions. Rules build it in order: one
for all devices starts anew, others add exceptions or take them away.
"""

import ctypes
import os
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import bpf

ANY = -1
_BLOCK, _CHARACTER = 1, 2
_MKNOD, _READ, _WRITE = 1, 2, 4
_BITS = {"m": _MKNOD, "r": _READ, "w": _WRITE}
_KINDS = {"b": _BLOCK, "c": _CHARACTER}

_LOAD, _ATTACH = 5, 8
_PROGRAM_TYPE, _HOOK, _ALLOW_MULTI = 15, 6, 2
_LOADED = Struct("=IIQQIIQII16s")  # type, count, instructions, license, log (3), version, flags, name
_ATTACHED = Struct("=IIII")  # cgroup, program, hook, flags
_INSTRUCTION = Struct("=BBhi")
_LOAD_WORD, _COPY, _AND, _SHIFT_RIGHT, _SET, _IF_EQUAL, _IF_NOT, _EXIT = 0x61, 0xBF, 0x57, 0x77, 0xB7, 0x15, 0x55, 0x95
_RESULT, _CONTEXT, _KIND, _ACCESS, _MAJOR, _MINOR = range(6)


class DeviceRule(NamedTuple):
    """One rule of `linux.resources.devices` in an OCI specification."""

    allow: bool
    kind: str = "a"
    """`b`, `c`, or `a` for both."""
    major: int = ANY
    minor: int = ANY
    access: str = "rwm"
    """Any of read, write and mknod."""

    @property
    def is_for_all(self) -> bool:
        return self.kind == "a" and self.major == ANY and self.minor == ANY and set(self.access) == set("rwm")

    def line(self) -> str:
        """Returns the rule as `devices.allow` and `devices.deny` take it."""
        if self.is_for_all:
            return "a"
        major, minor = ("*" if number == ANY else str(number) for number in (self.major, self.minor))
        return f"{self.kind} {major}:{minor} {self.access}"


class _Policy:
    """The kernel's policy of a group: `allowed` or not, and the access that is the other way for some devices."""

    def __init__(self) -> None:
        self.allowed = True
        self.exceptions: dict[tuple[str, int, int], int] = {}

    def add(self, rule: DeviceRule) -> None:
        if rule.is_for_all:
            self.allowed = rule.allow
            self.exceptions.clear()
            return
        access = sum(_BITS[letter] for letter in set(rule.access))
        for kind in ("b", "c") if rule.kind == "a" else (rule.kind,):
            key = (kind, rule.major, rule.minor)
            before = self.exceptions.get(key, 0)
            self.exceptions[key] = before & ~access if rule.allow == self.allowed else before | access


def set_version_1(directory: str, rules: Iterable[DeviceRule]) -> None:
    """Applies rules to a group of the devices hierarchy. Raises LinuxError with the rule."""
    files: dict[bool, int] = {}
    try:
        for rule in rules:
            path = f"{directory}/devices.{'allow' if rule.allow else 'deny'}"
            try:
                if rule.allow not in files:
                    files[rule.allow] = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                os.write(files[rule.allow], rule.line().encode())
            except OSError as error:
                raise errors.from_oserror(error, f"write {rule.line()!r} to {path}") from error
    finally:
        for file in files.values():
            os.close(file)


def set_version_2(directory: str, rules: Iterable[DeviceRule]) -> None:
    """Attaches a program to a group of the version 2 tree; it ends with the group. Raises LinuxError."""
    policy = _Policy()
    for rule in rules:
        policy.add(rule)
    program = _load(_program(policy))
    try:
        group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            bpf.call(_ATTACH, _ATTACHED.pack(group, program, _HOOK, _ALLOW_MULTI), f"limit the devices of {directory}")
        finally:
            os.close(group)
    except errors.LinuxError:
        raise
    except OSError as error:
        raise errors.from_oserror(error, f"limit the devices of {directory}") from error
    finally:
        os.close(program)


def _load(program: bytes) -> int:
    instructions = ctypes.create_string_buffer(program, len(program))
    license_ = ctypes.create_string_buffer(b"GPL")
    attributes = _LOADED.pack(
        _PROGRAM_TYPE,
        len(program) // _INSTRUCTION.size,
        ctypes.addressof(instructions),
        ctypes.addressof(license_),
        *(0, 0, 0, 0, 0),
        b"podwire_devices",
    )
    return bpf.call(_LOAD, attributes, "load a program for the devices of a cgroup")[0]


def _program(policy: _Policy) -> bytes:
    """Returns eBPF: the first exception that matches decides, else the policy.

    The context has the access and the kind in one word, then the device's numbers. Several kinds of access can be asked
    at once: an allowance must have all of them, a denial any of them.
    """
    parts = [
        _step(_LOAD_WORD, _KIND, _CONTEXT, 0),
        _step(_COPY, _ACCESS, _KIND),
        _step(_AND, _KIND, value=0xFFFF),
        _step(_SHIFT_RIGHT, _ACCESS, value=16),
        _step(_LOAD_WORD, _MAJOR, _CONTEXT, 4),
        _step(_LOAD_WORD, _MINOR, _CONTEXT, 8),
    ]
    for (kind, major, minor), access in policy.exceptions.items():
        if not access:
            continue
        # Each test is an opcode, a register and a value that together mean "does not match".
        tests = [(_IF_NOT, _KIND, _KINDS[kind])]
        tests += [
            (_IF_NOT, register, number) for register, number in ((_MAJOR, major), (_MINOR, minor)) if number != ANY
        ]
        masked = access if policy.allowed else ~access & 0b111
        tests.append((_IF_EQUAL if policy.allowed else _IF_NOT, _RESULT, 0))
        body = [_step(_COPY, _RESULT, _ACCESS), _step(_AND, _RESULT, value=masked)]
        after = 2  # the two instructions of the verdict
        for number, (opcode, register, value) in enumerate(tests):
            body.append(_step(opcode, register, offset=len(tests) - number - 1 + after, value=value))
        parts += [*body, _step(_SET, _RESULT, value=int(not policy.allowed)), _step(_EXIT)]
    return b"".join([*parts, _step(_SET, _RESULT, value=int(policy.allowed)), _step(_EXIT)])


def _step(opcode: int, target: int = 0, source: int = 0, offset: int = 0, *, value: int = 0) -> bytes:
    return _INSTRUCTION.pack(opcode, target | source << 4, offset, value)
