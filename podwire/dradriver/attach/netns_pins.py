"""Bind mounts that keep pods' network namespaces alive while claimed devices are in them.

Virtual links end with their namespace. A runtime that ends a pod while the driver is down removes its own bind mount;
because of this one the devices still exist when the driver is back.
"""

from collections.abc import Collection
from pathlib import Path

from podwire.linux import errors, syscalls
from podwire.linux.proc.namespaces import KernelNamespaces, identity

_BIND = 4096


class NetnsPins:
    """Blocks; raises LinuxError."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._namespaces = directory, KernelNamespaces(directory)

    def pin(self, pod_uid: str, netns: str) -> str:
        """Pins the namespace at a path; returns the pin's path. Raises NoSuchNamespace, WrongKind."""
        path = self._namespaces.path(pod_uid)
        if self._pinned(path) != identity(netns):
            self.unpin(pod_uid)
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            Path(path).touch(mode=0o444)
            syscalls.mount(netns, path, None, _BIND, None)
        return path

    def unpin(self, pod_uid: str) -> None:
        """Removes the pin, if there is one."""
        self._namespaces.remove(pod_uid)

    def list(self) -> dict[str, str]:
        """The paths of all pins, by pod."""
        return {pin.name: self._namespaces.path(pin.name) for pin in self._namespaces.list()}

    def keep_only(self, pods: Collection[str]) -> None:
        """Removes the pins of all other pods; after a boot they are files that pin nothing."""
        for pod_uid in self.list():
            if pod_uid not in pods:
                self.unpin(pod_uid)

    def _pinned(self, path: str) -> int:
        try:
            return identity(path)
        except errors.LinuxError:
            return 0
