"""Compiles seccomp profiles of the OCI specification with libseccomp, the library that OCI runtimes use.

An OCI runtime compiles its profile for every container that it starts; a profile of some 400 calls takes it longer than
everything else of a start. A compiled filter can be handed to crun instead.
"""

import contextlib
import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

_ACTIONS = {
    "SCMP_ACT_ALLOW": 0x7FFF0000,
    "SCMP_ACT_LOG": 0x7FFC0000,
    "SCMP_ACT_TRAP": 0x00030000,
    "SCMP_ACT_KILL": 0x00000000,
    "SCMP_ACT_KILL_THREAD": 0x00000000,
    "SCMP_ACT_KILL_PROCESS": 0x80000000,
}
_ERRNO = 0x00050000
_COMPARISONS = ("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ")  # libseccomp numbers them from 1
_OPTIMIZE, _BINARY_TREE = 8, 2
_UNKNOWN_CALL = -1
_EXISTS, _NO_SUCH_ARCHITECTURE = 17, 22


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operation", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_arch_resolve_name.restype = ctypes.c_uint32
    library.seccomp_arch_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    library.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Comparison),
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


def compile_profile(profile: Mapping[str, Any]) -> bytes | None:
    """Returns a profile (`linux.seccomp` of a specification) as BPF.

    None when it must be left to the OCI runtime: without libseccomp, or with flags, listeners and actions that need
    more than a filter. Architectures and calls that libseccomp does not know are left out, as OCI runtimes do.
    """
    library = _library()
    if library is None or profile.get("flags") or profile.get("listenerPath"):
        return None
    default = _action(profile.get("defaultAction", ""), profile.get("defaultErrnoRet"))
    if default is None:
        return None
    context = library.seccomp_init(default)
    if not context:
        return None
    try:
        for name in profile.get("architectures", ()):
            token = library.seccomp_arch_resolve_name(name.removeprefix("SCMP_ARCH_").lower().encode())
            if not token or -library.seccomp_arch_add(context, token) not in (0, _EXISTS, _NO_SUCH_ARCHITECTURE):
                return None
        library.seccomp_attr_set(context, _OPTIMIZE, _BINARY_TREE)  # an old library has linear filters only
        if not all(_add(library, context, default, rule) for rule in profile.get("syscalls", ())):
            return None
        return _exported(library, context)
    finally:
        library.seccomp_release(context)


def _action(name: str, errno: int | None) -> int | None:
    if name == "SCMP_ACT_ERRNO":
        return _ERRNO | ((1 if errno is None else errno) & 0xFFFF)
    return _ACTIONS.get(name)


def _add(library: ctypes.CDLL, context: int, default: int, rule: Mapping[str, Any]) -> bool:
    """Adds one rule; returns whether it could be expressed."""
    action = _action(rule.get("action", ""), rule.get("errnoRet"))
    if action is None:
        return False
    if action == default:
        return True
    sets = _comparisons(rule.get("args") or ())
    if sets is None:
        return False
    for name in rule["names"]:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number == _UNKNOWN_CALL:
            continue
        for comparisons in sets:
            array = (_Comparison * len(comparisons))(*comparisons)
            if library.seccomp_rule_add_array(context, action, number, len(comparisons), array) < 0:
                return False
    return True


def _comparisons(arguments: Sequence[Mapping[str, Any]]) -> list[list[_Comparison]] | None:
    """Returns the comparisons of each rule of libseccomp: several on one argument are alternatives."""
    comparisons = []
    for argument in arguments:
        operation = argument.get("op", "").removeprefix("SCMP_CMP_")
        if operation not in _COMPARISONS or not 0 <= argument["index"] <= 5:
            return None
        number = _COMPARISONS.index(operation) + 1
        first, second = argument.get("value", 0), argument.get("valueTwo", 0)
        comparisons.append(_Comparison(argument["index"], number, first, second))
    if len({comparison.argument for comparison in comparisons}) < len(comparisons):
        return [[comparison] for comparison in comparisons]
    return [comparisons]


def _exported(library: ctypes.CDLL, context: int) -> bytes | None:
    file = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with contextlib.closing(os.fdopen(file, "rb")) as exported:
        if library.seccomp_export_bpf(context, file) < 0:
            return None
        exported.seek(0)
        return exported.read()
