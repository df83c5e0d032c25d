"""The kernel's side of a sandbox: pinned namespaces, shared memory, sysctls, and the files that containers see.

Synchronous; called in worker threads. Every step can be done again and undone again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.linux.errors import LinuxError, NoSuchMount, NoSuchSysctl, Refused
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import NAMESPACED, KernelSysctls
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

MARK = "podwire-"
"""What the names of our namespaces begin with."""

SHM_BYTES = 64 * 1024 * 1024

Step = tuple[str, Callable[[], None]]


@dataclass(frozen=True, slots=True)
class SandboxKernel:
    """Makes and removes what a sandbox has in the kernel; names follow from its id alone."""

    networks: KernelNamespaces
    ipcs: KernelNamespaces
    mounts: KernelMounts
    shm_directory: Path

    def network(self, id_: str) -> str:
        """Where the network namespace of a sandbox is pinned."""
        return self.networks.path(MARK + id_)

    def ipc(self, id_: str) -> str:
        return self.ipcs.path(MARK + id_)

    def pinned(self) -> set[str]:
        """The ids whose namespaces are there; directories may be shared with others, whose names are not ours."""
        found = [*self.networks.list(), *self.ipcs.list()]
        return {each.name.removeprefix(MARK) for each in found if each.name.startswith(MARK)}

    def stands(self, network: str) -> bool:
        """Whether a network namespace is still pinned where it was."""
        return any(each.path == network and each.inode for each in self.networks.list())

    def shm(self, id_: str) -> Path:
        return self.shm_directory / id_

    def make(self, id_: str, config: pb.PodSandboxConfig, *, network: bool, ipc: bool) -> None:
        """Namespaces, shared memory, sysctls; the loopback interface is up when it returns."""
        if network:
            self.networks.create(MARK + id_)
            with KernelNetwork(self.network(id_)) as inside:
                inside.links.change("lo", up=True)
        if ipc:
            self.ipcs.create(MARK + id_)
        shm = self.shm(id_)
        shm.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.mounts.mount("shm", shm, "tmpfs", ["nosuid", "noexec", "nodev", "mode=1777", f"size={SHM_BYTES}"])
        self._set_sysctls(id_, config, network=network, ipc=ipc)

    def _set_sysctls(self, id_: str, config: pb.PodSandboxConfig, *, network: bool, ipc: bool) -> None:
        sysctls = KernelSysctls(
            self.network(id_) if network else None, self.ipc(id_) if ipc else None, _allowed(network, ipc)
        )
        for name, value in config.linux.sysctls.items():
            try:
                sysctls.write(name, value)
            except (NoSuchSysctl, Refused) as error:
                raise InvalidArgument(f"config.linux.sysctls[{name}]: {error}") from error

    def remove(self, id_: str) -> list[str]:
        """Remove all of it, as far as it goes; what could not be removed is told."""
        steps: list[Step] = [
            ("shared memory", lambda: self._remove_shm(id_)),
            ("ipc namespace", lambda: self.ipcs.remove(MARK + id_)),
            ("network namespace", lambda: self.networks.remove(MARK + id_)),
        ]
        failed = []
        for name, step in steps:
            try:
                step()
            except (LinuxError, OSError) as error:
                failed.append(f"{name}: {error}")
        return failed

    def _remove_shm(self, id_: str) -> None:
        shm = self.shm(id_)
        try:
            while True:
                self.mounts.unmount(shm, lazily=True)
        except (NoSuchMount, FileNotFoundError):
            pass
        if shm.exists():
            shm.rmdir()


def _allowed(network: bool, ipc: bool) -> list[str]:
    """Only what belongs to the pod's own namespaces may be changed; the node's is never touched."""
    return [each for each in NAMESPACED if (network and each.startswith("net")) or (ipc and not each.startswith("net"))]
