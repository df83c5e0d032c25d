"""What a node in its own mount namespace sees where. The plan is pure; `compose` carries it out.

Nothing is mounted on directories that come and go: somebody else's `rmdir` takes away the mounts of all namespaces that
lie on it. So a directory of the base system that lasts (`/run`, `/var/lib`, …) is covered by an empty one, which shows
what was below it again, one by one, and beside that what is the node's own. Nothing is made on the host's disk.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.up.layout import Layout
from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import KernelMounts

STANDARD = (
    "etc/cdi",
    "etc/cni/net.d",
    "etc/nri/conf.d",
    "opt/cni/bin",
    "opt/nri/plugins",
    "run/cdi",
    "run/netns",
    "run/nri",
    "var/lib/cni",
    "var/lib/kubelet",
    "var/log/containers",
    "var/log/pods",
)
"""Paths that plugins and other programs hard-code; `/var/run` is `/run`."""

OWN = ("etc/podwire", "run/podwire", "var/lib/podwire", "var/log/podwire")

SHARED = "run/podwire/cluster"
"""Where a node that has not the cluster's own `/run/podwire` sees it: the collector of traces listens there."""

HIDDEN = ("run/containerd", "run/crio", "run/docker.sock", "run/docker")
"""Other runtimes of this host, which are not this node's."""

BASES = ("etc/cni", "etc", "opt/cni", "opt", "run", "var/lib", "var/log", "var", "")
"""What lasts, the deepest first."""

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Cover:
    """One directory of the base that is covered: what is shown in it instead, what is left out."""

    base: str
    shown: Mapping[str, Path]
    """Paths relative to the root, and what is seen there."""
    hidden: frozenset[str]

    def replaced(self, name: str) -> bool:
        """Whether an entry of the base is not shown again."""
        path = f"{self.base}/{name}".lstrip("/")
        return path in self.hidden or any(other == path or other.startswith(f"{path}/") for other in self.shown)


def sources(layout: Layout, node: str) -> dict[str, Path]:
    """Every path that a node has for itself or shares with the other nodes, and where it really lies."""
    below, home = layout.standard(node), layout.home(node)
    found = {path: below / path for path in STANDARD}
    if not home.is_default:
        found |= {path: home.prefix / path for path in OWN}
    if home != layout:
        found |= {SHARED: layout.run}
        found |= {f"var/lib/podwire/{path}": layout.state / path for path in ("cni/bin", "images")}
    return found


def covers(shown: Mapping[str, Path], exists: Callable[[str], bool]) -> list[Cover]:
    """Which directories are covered by what; `exists` tells which of the base are there."""
    bases: dict[str, dict[str, Path]] = {}
    for path, source in sorted(shown.items()):
        base = next(base for base in BASES if (not base or path.startswith(f"{base}/")) and exists(base))
        bases.setdefault(base, {})[path] = source
    return [Cover(base, entries, frozenset(HIDDEN)) for base, entries in bases.items()]


def compose(wanted: Iterable[Cover]) -> None:
    """Carry it out, in a mount namespace of one's own."""
    mounts = KernelMounts()
    opened: list[tuple[Cover, int, dict[str, int]]] = []
    try:
        for each in wanted:  # all are opened before the first is covered
            held = {path: _open(source) for path, source in each.shown.items()}
            opened.append((each, _open(_ROOT / each.base), held))
        for cover, base, held in opened:
            _cover(mounts, cover, base)
            for path, source in held.items():
                target = _ROOT / path
                target.mkdir(mode=0o755, parents=True, exist_ok=True)
                mounts.bind(f"/proc/self/fd/{source}", target)
    finally:
        for _, base, held in opened:
            for descriptor in (base, *held.values()):
                os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _cover(mounts: KernelMounts, cover: Cover, base: int) -> None:
    told, target = os.fstat(base), _ROOT / cover.base
    below = Path(f"/proc/self/fd/{base}")
    names = [name for name in sorted(entry.name for entry in below.iterdir()) if not cover.replaced(name)]
    mounts.mount("podwire", target, "tmpfs", [f"mode={stat.S_IMODE(told.st_mode):o}"])
    os.chown(target, told.st_uid, told.st_gid)
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # it has just been removed
            _show(mounts, below / name, target / name)


def _show(mounts: KernelMounts, source: Path, target: Path) -> None:
    """The same entry once more: a symlink as a symlink, so that what it names can be replaced."""
    told = source.lstat()
    if stat.S_ISLNK(told.st_mode):
        target.symlink_to(source.readlink())
        return
    if stat.S_ISDIR(told.st_mode):
        target.mkdir(mode=0o755)
    else:
        target.touch()
    try:
        mounts.bind(source, target, recursive=True)
    except LinuxError:  # gone meanwhile, or not to be shown twice: then it is not there
        (target.rmdir if stat.S_ISDIR(told.st_mode) else target.unlink)()
