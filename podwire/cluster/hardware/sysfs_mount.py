"""Mounts the files of a profile into `/sys` of a node's mount namespace.

`/sys/class`, `/sys/bus`, `/sys/devices` and `/sys/devices/system` are covered, and show their former entries together
with those of the profile. The rest of `/sys` stays the kernel's. `/sys/bus/pci` shows the profile only; real PCI
devices stay below `/sys/devices`, because disks are found there.
"""

import os
import stat
from pathlib import Path

from podwire.cluster.hardware.pci_functions import bridges, functions
from podwire.cluster.hardware.profile import Profile
from podwire.cluster.hardware.sysfs_tree import Entries, Machine, Symlink, directories, rdma_functions, tree
from podwire.cluster.up.node_mounts import Cover, compose

SYS = Path("/sys")
NOTHING = os.makedev(1, 3)


def mount_profile(profile: Profile) -> None:
    """Runs in the node's mount namespace, which has its own `/sys` already."""
    machine = this_machine()
    own = {f"sys/devices/{function.root}" for function in (*functions(profile), *bridges(profile))}
    compose(
        [
            Cover("sys/class", {}, frozenset({"sys/class/net", "sys/class/infiniband", "sys/class/infiniband_verbs"})),
            Cover("sys/bus", {}, frozenset({"sys/bus/pci"})),
            Cover("sys/devices", {}, frozenset(own)),
        ]
    )
    compose([Cover("sys/devices/system", {}, frozenset({"sys/devices/system/node"}))])
    for directory in directories(profile):
        (SYS / directory).mkdir(mode=0o755, parents=True, exist_ok=True)
    write(SYS, tree(profile, machine))
    if names := [f"uverbs{number}" for number, _ in enumerate(rdma_functions(profile))]:
        compose([Cover("dev", {}, frozenset({"dev/infiniband"}))])
        write_verbs(Path("/dev/infiniband"), names)


def write_verbs(folder: Path, names: list[str]) -> None:
    """Creates device files that can be opened and passed to containers; behind them is /dev/null."""
    folder.mkdir(mode=0o755)
    for name in names:
        os.mknod(folder / name, stat.S_IFCHR | 0o666, NOTHING)
        (folder / name).chmod(0o666)


def write(root: Path, entries: Entries) -> None:
    for path, what in entries.items():
        place = root / path
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if isinstance(what, Symlink):
            place.symlink_to(what.target)
        else:
            place.write_bytes(what if isinstance(what, bytes) else what.encode())


def this_machine() -> Machine:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(cpus=os.cpu_count() or 1, kilobytes=pages // 1024)
