"""Control groups, of version 1, 2 or both: a group is one path, made in every hierarchy.

A process is in its group in all hierarchies, so that `cgroup.kill` of version 2 works even where version 1 does the
accounting. Paths are relative to the roots of the trees: `podwire/pod-…/container-…`.
"""

import errno
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from podwire.linux import errors
from podwire.linux.cgroups import devices, layout
from podwire.linux.cgroups.counters import Counters, read_counters
from podwire.linux.cgroups.devices import DeviceRule
from podwire.linux.cgroups.layout import Setting, Tree
from podwire.linux.cgroups.values import Limits, Usage
from podwire.linux.fs.mounts import KernelMounts, mounted
from podwire.linux.fs.trees import directories_below
from podwire.linux.proc import processes

_NAMES: errors.Names = {errno.ENOENT: errors.NoSuchCgroup, errno.ENODEV: errors.NoSuchCgroup}
_READ_SIZE = 1 << 16
_FREEZING = 0.2  # seconds; a task that does not freeze in this time is killed all the same


def find_trees() -> list[Tree]:
    """Those of the calling thread's mount namespace."""
    return layout.trees(mounted(), lambda mount: _read(f"{mount}/cgroup.controllers") or "")


def mount_devices_hierarchy(directory: str = "/sys/fs/cgroup/devices") -> None:
    """Mounts the devices hierarchy of version 1, for a machine where nothing limits devices. Raises LinuxError."""
    operation = f"mount the devices hierarchy at {directory}"
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise errors.from_oserror(error, operation) from error
    KernelMounts().mount("cgroup", directory, "cgroup", ["nosuid", "nodev", "noexec", "devices"])


class KernelCgroups:
    def __init__(self, trees: list[Tree] | None = None) -> None:
        self.trees = find_trees() if trees is None else trees
        self._home = layout.tree_by_controller(self.trees)

    def create(self, path: str) -> None:
        """Creates a group and its parents; existing ones are unchanged."""
        steps = plain_steps(path)
        for tree in self.trees:
            for parent, child in zip(("", *steps), steps, strict=False):
                self._make(tree, _join(tree, parent), _join(tree, child))

    def _make(self, tree: Tree, parent: str, child: str) -> None:
        if tree.version == 2:
            _enable(parent, tree.controllers)
        try:
            os.mkdir(child)
        except FileExistsError:
            return
        except OSError as error:
            raise errors.from_oserror(error, f"make the cgroup {child}", _NAMES) from error
        if tree.version == 1 and "cpuset" in tree.controllers:
            for file in ("cpuset.cpus", "cpuset.mems"):  # empty at first, and then nobody may enter
                _write(f"{child}/{file}", _read(f"{parent}/{file}") or "")

    def limit(self, path: str, limits: Limits) -> None:
        """NoSuchCgroup, Unsupported, Refused for a number that the kernel does not take, Busy below what is in use."""
        for setting in layout.settings(limits, self._home):
            self._set(path, setting)

    def _set(self, path: str, setting: Setting) -> None:
        directory = _join(self._home[setting.controller], path)
        operation = f"set {setting.file} of the cgroup {path} to {setting.value}"
        try:
            _write(f"{directory}/{setting.file}", setting.value)
        except errors.NoSuchCgroup as error:
            if os.path.isdir(directory):
                raise errors.Unsupported(errno.EOPNOTSUPP, operation, f"no {setting.file} here") from error
            raise errors.NoSuchCgroup(errno.ENOENT, operation) from error
        except errors.LinuxError as error:
            raise type(error)(error.errno, operation) from error

    def has(self, controller: str) -> bool:
        """Whether some hierarchy has a controller."""
        return controller in self._home

    @property
    def limits_devices(self) -> bool:
        """Whether some hierarchy can keep devices from a group."""
        return "devices" in self._home or any(tree.version == 2 for tree in self.trees)

    def limit_devices(self, path: str, rules: Sequence[DeviceRule]) -> None:
        """Sets the devices that a new group may use. Raises Unsupported, NoSuchCgroup, NotPermitted."""
        if tree := self._home.get("devices"):
            devices.set_version_1(_join(tree, path), rules)
        elif tree := next((tree for tree in self.trees if tree.version == 2), None):
            devices.set_version_2(_join(tree, path), rules)
        else:
            message = "no hierarchy has the devices controller"
            raise errors.Unsupported(errno.EOPNOTSUPP, f"limit the devices of the cgroup {path}", message)

    def end(self, path: str) -> None:
        """Kills all processes in a group and below, and removes it, if it exists. Raises Busy.

        Most groups are empty by then: the kernel removes such a group at once, and refuses any other.
        """
        if not all(_remove_empty(_join(tree, path)) for tree in self.trees):
            self.kill(path)
            self.remove(path)

    def remove(self, path: str) -> None:
        """Removes a group and all below it, if it exists. Raises Busy while a process is in it."""
        for tree in self.trees:
            top = _join(tree, path)
            for directory in sorted(_groups_from(top), reverse=True):
                try:
                    os.rmdir(directory)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    raise errors.from_oserror(error, f"remove the cgroup {directory}") from error

    def below(self, path: str) -> list[str]:
        """Every group below one, in whichever tree: also those that a crash left in some trees only."""
        found = set()
        for tree in self.trees:
            top = _join(tree, path)
            for directory in directories_below(top):
                found.add(f"{path}/{os.path.relpath(directory, top)}")
        return sorted(found - {f"{path}/."})

    def procs_files(self, path: str) -> list[str]:
        """Returns the `cgroup.procs` files that a process writes `0` to in order to join, one per hierarchy."""
        return [f"{_join(tree, path)}/cgroup.procs" for tree in self.trees]

    def enter(self, path: str, pid: int) -> None:
        """Moves a process into a group. Raises NoSuchCgroup, NoSuchProcess."""
        for procs_file in self.procs_files(path):
            names: errors.Names = {**_NAMES, errno.ESRCH: errors.NoSuchProcess}
            _write(procs_file, str(pid), f"put process {pid} into the cgroup {path}", names)

    def pids(self, path: str) -> list[int]:
        """Returns the processes in the group and below it, in any hierarchy."""
        return sorted(set().union(*(_pids_from(_join(tree, path)) for tree in self.trees)))

    def usage(self, path: str) -> Usage:
        """NoSuchCgroup."""
        if not any(os.path.isdir(_join(tree, path)) for tree in self.trees):
            raise errors.NoSuchCgroup(errno.ENOENT, f"read the usage of the cgroup {path}")

        def read(controller: str, file: str) -> str | None:
            tree = self._home.get(controller)
            return None if tree is None else _read(f"{_join(tree, path)}/{file}")

        return layout.usage(read, self._home)

    def counters(self, path: str) -> Counters:
        """Returns all counters of a group; none when it is gone."""
        unified = next((tree for tree in self.trees if tree.version == 2), None)
        sizes = _page_sizes() if "hugetlb" in self._home else ()

        def read(controller: str, file: str) -> str | None:
            tree = unified if controller == "pressure" else self._home.get(controller)
            return None if tree is None else _read(f"{_join(tree, path)}/{file}")

        return read_counters(read, self._home, sizes)

    def kill(self, path: str, patience: float = 10.0) -> None:
        """Kills all processes in the group and below, and waits for their end. Raises Busy after `patience` seconds.

        1. `cgroup.kill` of version 2 kills the whole subtree.  2. Processes left in a hierarchy of version 1 are
        frozen, so that they cannot fork, killed and thawed.  3. Both are repeated until the group is empty.
        """
        until = monotonic() + patience
        pids = self.pids(path)
        if os.getpid() in pids:
            raise errors.Refused(errno.EDEADLK, f"kill the cgroup {path}", "this process is in it")
        tried = False
        while pids:
            victims = list(_opened(pids))
            if tried or not self._kill_at_once(path, pids):
                with self._frozen(path):
                    victims += _opened(self.pids(path))
                    for pidfd in victims:
                        processes.send_signal(pidfd, signal.SIGKILL)
            tried = True
            ended = [processes.wait(pidfd, until - monotonic()) for pidfd in victims]
            for pidfd in victims:
                os.close(pidfd)
            if not all(ended) or monotonic() > until:
                raise errors.Busy(errno.EBUSY, f"kill the cgroup {path}", f"it still has {self.pids(path)}")
            pids = self.pids(path)

    def _kill_at_once(self, path: str, pids: list[int]) -> bool:
        """Kills by version 2. Returns whether all processes were in its tree: one that was killed while it entered the
        hierarchies is in some only."""
        inside: set[int] = set()
        for tree in self.trees:
            if tree.version == 2:
                inside |= _pids_from(_join(tree, path))
                with suppress(errors.NoSuchCgroup):
                    _write(f"{_join(tree, path)}/cgroup.kill", "1")
        return inside.issuperset(pids)

    @contextmanager
    def _frozen(self, path: str) -> Iterator[None]:
        tree = self._home.get("freezer")
        if tree is None:
            yield
            return
        state = f"{_join(tree, path)}/freezer.state"
        with suppress(errors.LinuxError):
            _write(state, "FROZEN")
            until = monotonic() + _FREEZING
            while (_read(state) or "").strip() == "FREEZING" and monotonic() < until:
                sleep(0.001)  # the kernel tells nobody when a version 1 group has frozen
        try:
            yield
        finally:
            with suppress(errors.NoSuchCgroup):
                _write(state, "THAWED")


def warm_up() -> None:
    """Moves this process into the group that it is in already, in one hierarchy of version 1.

    The kernel waits 6 to 8 ms for all processors before it moves a process, and not again for about 12 ms: a caller
    that will move a process soon calls this while it does something else.
    """
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers:
            with suppress(errors.LinuxError):
                _write(f"/sys/fs/cgroup/{controllers.removeprefix('name=')}{path}/cgroup.procs", "0")
            return


def _page_sizes() -> list[str]:
    """Returns the sizes of huge pages as cgroups name them: `2MB`, `1GB`."""
    try:
        kilobytes = [int(name.split("-")[1].removesuffix("kB")) for name in os.listdir("/sys/kernel/mm/hugepages")]
    except (OSError, ValueError, IndexError):
        return []
    return [f"{size >> 20}GB" if size >= 1 << 20 else f"{size >> 10}MB" for size in sorted(kilobytes)]


def _opened(pids: list[int]) -> Iterator[int]:
    for pid in pids:
        with suppress(OSError):
            yield os.pidfd_open(pid)


def plain_steps(path: str) -> list[str]:
    """Returns a path and its parents, the uppermost first. Raises PathEscapes for `..` and the like."""
    parts = path.split("/")
    if not all(parts) or "." in parts or ".." in parts:
        raise errors.PathEscapes(errno.EXDEV, f"use the cgroup {path!r}", "its path must be relative and plain")
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def _join(tree: Tree, path: str) -> str:
    return f"{tree.mount}/{path}" if path else tree.mount


def _remove_empty(directory: str) -> bool:
    """Removes a group without processes and groups below it; returns whether none is left."""
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _groups_from(top: str) -> Iterable[str]:
    """Returns a group and all below it. A group's directory has two links and one for each group directly below."""
    try:
        if os.stat(top).st_nlink == 2:
            return (top,)
    except OSError:
        return ()
    return directories_below(top)


def _pids_from(top: str) -> set[int]:
    """Returns the processes in a group and below it, in one hierarchy."""
    texts = (_read(f"{directory}/cgroup.procs") or "" for directory in _groups_from(top))
    return {int(pid) for text in texts for pid in text.split()} - {0}
    # 0 is a process of a PID namespace that cannot be seen from here


def _enable(parent: str, controllers: frozenset[str]) -> None:
    """Let a version 2 group's children have controllers, as far as the kernel lets them; a limit notices the rest."""
    there = set((_read(f"{parent}/cgroup.controllers") or "").split()) & controllers
    on = set((_read(f"{parent}/cgroup.subtree_control") or "").split())
    for controller in sorted(there - on):
        with suppress(errors.LinuxError):
            _write(f"{parent}/cgroup.subtree_control", f"+{controller}")


def _read(path: str) -> str | None:
    """Returns the content of a small file; unbuffered, because several are read for each container."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(file, _READ_SIZE):
                parts.append(part)
        finally:
            os.close(file)
    except OSError:
        return None
    return b"".join(parts).decode("ascii")


def _write(path: str, value: str, operation: str = "", names: errors.Names = _NAMES) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, value.encode())
        finally:
            os.close(file)
    except OSError as error:
        raise errors.from_oserror(error, operation or f"write {value!r} to {path}", names) from error
