"""Simulated control groups; whoever is put in is a number only."""

import errno

from podwire.linux import errors
from podwire.linux.cgroup_layout import CONTROLLERS, Tree, settings
from podwire.linux.cgroups import plain_steps
from podwire.linux.values import Limits, Usage

_HOME = {each: Tree(2, "/memory", frozenset(CONTROLLERS)) for each in CONTROLLERS}


class MemoryCgroups:
    def __init__(self) -> None:
        self._members: dict[str, set[int]] = {}
        self.limits: dict[str, Limits] = {}

    def create(self, path: str) -> None:
        for each in plain_steps(path):
            self._members.setdefault(each, set())

    def limit(self, path: str, limits: Limits) -> None:
        self._asked(path, f"limit the cgroup {path}")
        settings(limits, _HOME)
        self.limits[path] = limits

    def remove(self, path: str) -> None:
        if self.pids(path):
            raise errors.Busy(errno.EBUSY, f"remove the cgroup {path}")
        for each in [path, *self.below(path)]:
            self._members.pop(each, None)
            self.limits.pop(each, None)

    def below(self, path: str) -> list[str]:
        return sorted(each for each in self._members if each.startswith(f"{path}/"))

    def doors(self, path: str) -> list[str]:
        return [f"/memory/{path}/cgroup.procs"]

    def enter(self, path: str, pid: int) -> None:
        self._asked(path, f"put process {pid} into the cgroup {path}")
        for each in self._members.values():
            each.discard(pid)
        self._members[path].add(pid)

    def pids(self, path: str) -> list[int]:
        return sorted(pid for each in [path, *self.below(path)] for pid in self._members.get(each, ()))

    def usage(self, path: str) -> Usage:
        self._asked(path, f"read the usage of the cgroup {path}")
        return Usage(0, 0, 0, 0, 0, 0, len(self.pids(path)), 0)

    def kill(self, path: str, patience: float = 10.0) -> None:  # noqa: ARG002 - nobody resists
        for each in [path, *self.below(path)]:
            self._members.get(each, set()).clear()

    def _asked(self, path: str, operation: str) -> None:
        if path not in self._members:
            raise errors.NoSuchCgroup(errno.ENOENT, operation)
