"""Kernel parameters of a namespace: which may be written at all, and writing them inside."""

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress

from podwire.linux import errors
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Path

NAMESPACED = ("net.*", "kernel.shm*", "kernel.msg*", "kernel.sem", "fs.mqueue.*")
"""Sysctls of a network or an IPC namespace; any other would change the whole machine."""
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@")


def parts(name: str, allowed: Sequence[str] = NAMESPACED) -> list[str]:
    """The path of a parameter below /proc/sys. Refused for a name that is not allowed or not a name.

    Written with dots or with slashes, as sysctl(8) has it: the first of either that occurs parts the name, the other
    stands for itself (`net/ipv4/conf/eth0.1/forwarding` is `net.ipv4.conf.eth0/1.forwarding`).
    """
    separator = next((character for character in name if character in "./"), ".")
    swapped = name if separator == "/" else name.translate({ord("."): "/", ord("/"): "."})
    found = swapped.split("/")
    if not all(part and set(part) <= _LETTERS and part.strip(".") for part in found):
        raise errors.Refused(errno.EINVAL, f"use the sysctl {name!r}", "this is not a name")
    dotted = ".".join(found)
    if not any(dotted.startswith(pattern[:-1]) if pattern.endswith("*") else dotted == pattern for pattern in allowed):
        raise errors.Refused(errno.EPERM, f"use the sysctl {name!r}", f"only {', '.join(allowed)} are allowed")
    return found


class KernelSysctls:
    """Those of the namespaces at two paths; None is the calling thread's own."""

    def __init__(self, netns: Path | None = None, ipc: Path | None = None, allowed: Sequence[str] = NAMESPACED) -> None:
        self._netns, self._ipc, self._allowed = netns, ipc, allowed

    def write(self, name: str, value: str) -> None:
        """NoSuchSysctl, Refused."""
        self._open(name, os.O_WRONLY, value)

    def write_present(self, values: Mapping[str, str]) -> None:
        """Parameters of the network namespace, those of them that this kernel has, in one visit. Refused."""
        with nullcontext() if self._netns is None else visit(self._netns):
            here = KernelSysctls(allowed=self._allowed)
            for name, value in values.items():
                with suppress(errors.NoSuchSysctl):
                    here.write(name, value)

    def read(self, name: str) -> str:
        """NoSuchSysctl, Refused."""
        return self._open(name, os.O_RDONLY, "")

    def _open(self, name: str, flags: int, value: str) -> str:
        found = parts(name, self._allowed)
        operation = f"{'write' if flags else 'read'} the sysctl {name}"
        names: errors.Names = {errno.ENOENT: errors.NoSuchSysctl}
        with ExitStack() as there:
            if found[0] == "net" and self._netns is not None:
                there.enter_context(visit(self._netns))
            elif found[0] != "net" and self._ipc is not None:
                there.enter_context(visit(self._ipc, "ipc"))
            try:
                file = os.open("/proc/sys/" + "/".join(found), flags | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    return str(os.write(file, value.encode())) if flags else os.read(file, 65536).decode().strip()
                finally:
                    os.close(file)
            except OSError as error:
                raise errors.from_oserror(error, operation, names) from error
