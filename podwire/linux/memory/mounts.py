"""A simulated mount table; paths are names only."""

import errno
import os
from collections.abc import Sequence
from itertools import count

from podwire.linux import errors
from podwire.linux.values import Mounted, Path

_PROPAGATION = {"private": (), "unbindable": ("unbindable",)}
_FLAGS = ("ro", "nosuid", "nodev", "noexec")


class MemoryMounts:
    def __init__(self) -> None:
        self._ids = count(100)
        self._mounts = [Mounted(1, 0, "0:1", "/", "/", ("rw",), (), "rootfs", "root", ("rw",))]

    def list(self) -> list[Mounted]:
        return [*self._mounts]

    def is_mounted(self, target: Path) -> bool:
        where = os.path.normpath(target)
        return any(each.target == where for each in self._mounts)

    def mount(self, source: str, target: Path, kind: str, options: Sequence[str] = ()) -> None:
        flags = tuple(each for each in options if each in _FLAGS)
        self._add(source, target, kind, flags if "ro" in flags else ("rw", *flags))

    def _add(self, source: str, target: Path, kind: str, options: tuple[str, ...]) -> None:
        where = os.path.normpath(target)
        number = next(self._ids)
        self._mounts.append(
            Mounted(number, self._over(where), f"0:{number}", "/", where, options, (), kind, source, ())
        )

    def _over(self, where: str) -> int:
        holders = [each for each in self._mounts if _within(where, each.target)]
        return max(holders, key=lambda each: (len(each.target), each.id)).id

    def bind(self, source: Path, target: Path, *, recursive: bool = False, read_only: bool = False) -> None:
        origin = os.path.normpath(source)
        below = [each for each in self._mounts if recursive and _within(each.target, origin) and each.target != origin]
        options = ("ro",) if read_only else ("rw",)
        self._add(origin, target, "bind", options)
        for each in below:
            where = os.path.join(target, os.path.relpath(each.target, origin))
            self._add(each.source, where, each.kind, options)

    def _top(self, target: Path, operation: str) -> Mounted:
        where = os.path.normpath(target)
        for each in reversed(self._mounts):
            if each.target == where:
                return each
        raise errors.NoSuchMount(errno.EINVAL, operation)

    def make_read_only(self, target: Path, *, recursive: bool = False) -> None:
        top = self._top(target, f"make {os.fspath(target)} read-only")
        for at, each in enumerate(self._mounts):
            if each is top or (recursive and _within(each.target, top.target)):
                self._mounts[at] = each._replace(
                    options=("ro", *(one for one in each.options if one not in ("rw", "ro")))
                )

    def set_propagation(self, target: Path, how: str) -> None:
        top = self._top(target, f"make {os.fspath(target)} {how}")
        recursive = how not in ("private", "slave", "shared", "unbindable")
        kind = how[1:] if recursive else how
        for at, each in enumerate(self._mounts):
            if each is top or (recursive and _within(each.target, top.target)):
                tag = _PROPAGATION.get(kind) if kind != "shared" else (f"shared:{each.id}",)
                self._mounts[at] = each._replace(propagation=tag or ())

    def unmount(self, target: Path, *, lazily: bool = False) -> None:
        operation = f"unmount {os.fspath(target)}"
        top = self._top(target, operation)
        below = [each for each in self._mounts if each.parent == top.id]
        if below and not lazily:
            raise errors.Busy(errno.EBUSY, operation)
        gone = {top.id}
        for each in self._mounts:
            if each.parent in gone:
                gone.add(each.id)
        self._mounts = [each for each in self._mounts if each.id not in gone]


def _within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
