"""Runs work in namespaces of its own, which stand for a host: whatever a plugin leaves there ends with them."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from podwire.linux import syscalls
from podwire.linux.errors import LinuxError
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Veth

_PRIVATE = 1 << 18 | 16384  # MS_PRIVATE | MS_REC
STATE = ("/run/netns", "/run/cni", "/var/lib/cni", "/var/lib/podwire/cni")
"""Directories of plugins; empty at the start, and removed at the end."""


def run_on_private_host(work: Callable[[], int], uplink: str) -> int:
    """Runs `work` in a child with its own network, mounts and processes; returns its result, the exit code. `uplink`
    is a link that the host has. Raises LinuxError, OSError."""
    made = [directory for directory in _missing() if _make(directory)]
    sys.stdout.flush()
    try:
        syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS | syscalls.NEWPID)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _set_up(uplink)
                code = work()
            except (LinuxError, OSError) as error:
                sys.stderr.write(f"podwire: the test ended early: {error}\n")
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)  # skips what the parent does at its end
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        for directory in reversed(made):
            with suppress(OSError):
                directory.rmdir()


def _missing() -> list[Path]:
    """The directories that have to be made, parents first."""
    paths = [path for text in STATE for path in (*reversed(Path(text).parents), Path(text))]
    return [path for path in dict.fromkeys(paths) if not path.exists()]


def _make(directory: Path) -> bool:
    directory.mkdir(mode=0o755, exist_ok=True)
    return True


def _set_up(uplink: str) -> None:
    syscalls.mount(None, "/", None, _PRIVATE, None)
    syscalls.mount("proc", "/proc", "proc", 0, None)
    for directory in STATE:
        syscalls.mount("tmpfs", directory, "tmpfs", 0, "mode=0755")
    with KernelNetwork() as network:
        network.links.change("lo", up=True)
        network.links.add(Veth(uplink, f"{uplink}-peer", up=True))
        network.links.change(f"{uplink}-peer", up=True)
