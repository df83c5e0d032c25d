"""Numbers of processes: those of a node, as its runtime reports them, and those of the machine."""

import contextlib
import fcntl
import os
from pathlib import Path

_GET_PARENT = 0xB702  # ioctl NS_GET_PARENT


def host_pid(resident: int, pid: int) -> int:
    """The number, on this machine, of a process that has number `pid` on the node of a resident process; 0 if none."""
    node = Path(f"/proc/{resident}/ns/pid").stat().st_ino
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if pid in _numbers(path, node):
                    return int(path.name)
    return 0


def _numbers(process: Path, node: int) -> list[int]:
    """The number of a process on a node, if it is there or in a container there."""
    [line] = [line for line in (process / "status").read_text().splitlines() if line.startswith("NSpid:")]
    numbers = [int(word) for word in line.split()[1:]]
    namespace = os.open(process / "ns/pid", os.O_RDONLY)
    try:
        while numbers:
            if os.fstat(namespace).st_ino == node:
                return numbers[-1:]
            parent = fcntl.ioctl(namespace, _GET_PARENT)  # PermissionError above our own namespace
            os.close(namespace)
            namespace = parent
            numbers.pop()
    finally:
        os.close(namespace)
    return []


def program_of(command: int) -> int:
    """The program that `podwire node exec` runs; the command itself before it has started the program."""
    children = Path(f"/proc/{command}/task/{command}/children").read_text().split()
    return int(children[0]) if children else command
