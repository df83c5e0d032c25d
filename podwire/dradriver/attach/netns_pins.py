"""Pods' network namespaces, kept for as long as claimed devices are in them.

Links that are no hardware die with their namespace. A runtime that ends a pod while the driver is away takes its own
pin off; with this one the devices are still there when the driver is back.
"""

from collections.abc import Collection
from pathlib import Path

from podwire.linux import errors, syscalls
from podwire.linux.proc.namespaces import KernelNamespaces, identity

_BIND = 4096


class Pins:
    """Blocks; raises LinuxError."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._namespaces = directory, KernelNamespaces(directory)

    def pin(self, pod_uid: str, netns: str) -> str:
        """The namespace at a path, from now on at this one, too. NoSuchNamespace, WrongKind."""
        path, wanted = self._namespaces.path(pod_uid), identity(netns)
        if self._pinned(path) != wanted:
            self.unpin(pod_uid)
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            Path(path).touch(mode=0o444)
            syscalls.mount(netns, path, None, _BIND, None)
        return path

    def unpin(self, pod_uid: str) -> None:
        """Nothing happens when there is no pin."""
        self._namespaces.remove(pod_uid)

    def settle(self, live: Collection[str]) -> None:
        """Pins of these pods and of no others; after a boot they are files that pin nothing."""
        for each in self._namespaces.list():
            if each.name not in live:
                self.unpin(each.name)

    def _pinned(self, path: str) -> int:
        try:
            return identity(path)
        except errors.LinuxError:
            return 0
