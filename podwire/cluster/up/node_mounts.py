"""The mount namespace of a node: which paths it sees. The plan is pure; `compose` carries it out.

Nothing is mounted on directories that others may remove: `rmdir` detaches mounts in all namespaces. Instead, a
directory of the base system that lasts (`/run`, `/var/lib`, …) is covered by a tmpfs that shows its entries again, one
by one, and in addition what belongs to the node. Nothing is created on the host's disk.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.up.layout import FIRST, Layout
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
"""Podwire's own paths on a node that has directories of its own."""

FIRST_STATE = (
    "cni",
    "device-plugin",
    "identities",
    "images",
    "kubelet",
    "network-driver",
    "nri-network",
    "runtime",
    "volumes",
)
"""The state of the first node, which has the cluster's directories: all that it sees of `/var/lib/podwire`. Beside it
are the keys and the store of the API server, the administrator's kubeconfig, the cluster's record and other nodes."""

TRACE = "run/podwire/trace"
"""The directory of the trace collector's socket, on every node."""

HIDDEN = ("run/containerd", "run/crio", "run/docker.sock", "run/docker")
"""Sockets of other runtimes of this host."""

BASES = ("etc/cni", "etc", "opt/cni", "opt", "run", "var/lib", "var/log", "var", "")
"""Directories that last, the deepest first."""

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Cover:
    """A directory of the base system that is covered: what is shown instead, and what is hidden."""

    base: str
    shown: Mapping[str, Path]
    """Paths relative to the root, and their sources."""
    hidden: frozenset[str]

    def replaced(self, name: str) -> bool:
        """Whether an entry of the base is not shown again."""
        path = f"{self.base}/{name}".lstrip("/")
        return path in self.hidden or any(other == path or other.startswith(f"{path}/") for other in self.shown)


def sources(layout: Layout, node: str) -> dict[str, Path]:
    """Returns every path that a node has for itself or shares with other nodes, and its source."""
    below, home = layout.standard(node), layout.home(node)
    paths = {path: below / path for path in STANDARD}
    if home != layout:
        paths |= {path: home.prefix / path for path in OWN}
        paths |= {TRACE: layout.trace_socket.parent}
        return paths | {f"var/lib/podwire/{path}": layout.state / path for path in ("cni/bin", "images")}
    paths |= {f"var/lib/podwire/{path}": layout.state / path for path in FIRST_STATE}
    paths |= {"var/log/podwire": layout.homes / node / "var/log/podwire"}  # the cluster's logs are not the node's
    shared = () if layout.is_default else ("etc/podwire", "run/podwire")
    return paths | {path: layout.prefix / path for path in shared}


def masked(layout: Layout, node: str) -> list[Path]:
    """Returns directories that are empty on a node: the cluster's own below the prefix, and the supervisor's files."""
    paths = [] if layout.is_default else [layout.prefix / top for top in ("etc", "opt", "run", "var")]
    return paths if layout.home(node) != layout else [*paths, Path("/run/podwire", layout.component_tags.name)]


def hides(layout: Layout, directory: Path) -> bool:
    """Returns whether a node may see something else than the host in a directory."""
    own = [*(_ROOT / path for path in (*STANDARD, *OWN, *HIDDEN)), *masked(layout, FIRST)]
    return any(directory.is_relative_to(path) for path in own)


def covers(shown: Mapping[str, Path], exists: Callable[[str], bool]) -> list[Cover]:
    """Returns which directories are covered; `exists` says which bases exist."""
    bases: dict[str, dict[str, Path]] = {}
    for path, source in sorted(shown.items()):
        base = next(base for base in BASES if (not base or path.startswith(f"{base}/")) and exists(base))
        bases.setdefault(base, {})[path] = source
    return [Cover(base, entries, frozenset(HIDDEN)) for base, entries in bases.items()]


def compose(wanted: Iterable[Cover]) -> None:
    """Carries the plan out, in a mount namespace of our own."""
    mounts = KernelMounts()
    opened: list[tuple[Cover, int, dict[str, int]]] = []
    try:
        for planned in wanted:  # all are opened before the first is covered
            held = {path: _open(source) for path, source in planned.shown.items()}
            opened.append((planned, _open(_ROOT / planned.base), held))
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
    status, target = os.fstat(base), _ROOT / cover.base
    below = Path(f"/proc/self/fd/{base}")
    names = [name for name in sorted(entry.name for entry in below.iterdir()) if not cover.replaced(name)]
    mounts.mount("podwire", target, "tmpfs", [f"mode={stat.S_IMODE(status.st_mode):o}"])
    os.chown(target, status.st_uid, status.st_gid)
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # just removed
            _show(mounts, below / name, target / name)


def _show(mounts: KernelMounts, source: Path, target: Path) -> None:
    """Shows an entry again; a symlink stays a symlink, so that its target can be replaced."""
    status = source.lstat()
    if stat.S_ISLNK(status.st_mode):
        target.symlink_to(source.readlink())
        return
    if stat.S_ISDIR(status.st_mode):
        target.mkdir(mode=0o755)
    else:
        target.touch()
    try:
        mounts.bind(source, target, recursive=True)
    except LinuxError:  # removed meanwhile, or cannot be mounted twice: not shown
        (target.rmdir if stat.S_ISDIR(status.st_mode) else target.unlink)()
