"""Simulated namespaces, pinned to paths that are names only."""

import errno
import os

from podwire.linux import errors
from podwire.linux.memory.world import Space, World
from podwire.linux.values import Path, Pinned


class MemoryNamespaces:
    def __init__(self, world: World, directory: Path, kind: str) -> None:
        self._world, self._directory, self._kind = world, os.fspath(directory), kind

    def path(self, name: str) -> str:
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise errors.Escapes(errno.EXDEV, f"name a namespace {name!r}", "it must be one part of a path")
        return f"{self._directory}/{name}"

    def create(self, name: str) -> Pinned:
        path = self.path(name)
        if path in self._world.pins:
            raise errors.NamespaceExists(errno.EEXIST, f"make the {self._kind} namespace {path}")
        space = self._world.pins[path] = Space(self._world, self._kind)
        space.users = 1
        return Pinned(name, path, space.inode)

    def remove(self, name: str) -> None:
        space = self._world.pins.pop(self.path(name), None)
        if space is not None:
            self._world.leave(space)

    def list(self) -> list[Pinned]:
        found = [(os.path.split(path), space) for path, space in self._world.pins.items()]
        return sorted(
            Pinned(name, f"{directory}/{name}", space.inode if space.kind == self._kind else 0)
            for (directory, name), space in found
            if directory == self._directory
        )
