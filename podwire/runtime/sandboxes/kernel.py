"""The kernel objects of a sandbox: pinned namespaces, shared memory, sysctls.

Synchronous; called in worker threads. Making and removing are idempotent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.durable.files import private_directory
from podwire.linux.errors import LinuxError, NoSuchMount, NoSuchSysctl, Refused
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import NAMESPACED, KernelSysctls
from podwire.linux.proc.namespaces import KernelNamespaces, kill_pid_namespace
from podwire.linux.proc.user_namespaces import process_in_user_namespace
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.spec.user_namespaces import IdRange

PREFIX = "podwire-"
"""Owner tag: the names of our namespaces begin with it."""

DEFAULT_SYSCTLS = {"net.ipv4.ping_group_range": "0 2147483647", "net.ipv4.ip_unprivileged_port_start": "0"}
"""As containerd sets them: users without privileges may ping, and listen on any port of their own pod."""
SHM_BYTES = 64 * 1024 * 1024

Step = tuple[str, Callable[[], None]]


@dataclass(frozen=True, slots=True)
class SandboxKernel:
    """Makes and removes kernel objects; their names follow from the sandbox's id alone."""

    networks: KernelNamespaces
    ipcs: KernelNamespaces
    mounts: KernelMounts
    shm_directory: Path
    users: KernelNamespaces
    pids: KernelNamespaces

    def network(self, id_: str) -> str:
        """Returns the path at which the network namespace of a sandbox is pinned."""
        return self.networks.path(PREFIX + id_)

    def ipc(self, id_: str) -> str:
        return self.ipcs.path(PREFIX + id_)

    def user(self, id_: str) -> str:
        return self.users.path(PREFIX + id_)

    def pid(self, id_: str) -> str:
        """Returns the path at which the pid namespace that containers share is pinned, if they share one."""
        return self.pids.path(PREFIX + id_)

    def pinned(self) -> set[str]:
        """Returns the ids that have a pinned namespace. Names without our prefix belong to others."""
        namespaces = [*self.networks.list(), *self.ipcs.list(), *self.users.list(), *self.pids.list()]
        return {pinned.name.removeprefix(PREFIX) for pinned in namespaces if pinned.name.startswith(PREFIX)}

    def is_pinned(self, network: str) -> bool:
        """Whether a network namespace is still pinned at a path."""
        return any(pinned.path == network and pinned.inode for pinned in self.networks.list())

    def shm(self, id_: str) -> Path:
        return self.shm_directory / id_

    def make(
        self, id_: str, config: pb.PodSandboxConfig, *, network: bool, ipc: bool, ids: IdRange | None = None
    ) -> None:
        """Makes namespaces, shared memory and sysctls, and sets the loopback interface up.

        A pod with its own ids has a user namespace, which owns the others.
        """
        kinds = {"net": self.networks} if network else {}
        kinds |= {"ipc": self.ipcs} if ipc else {}
        if ids is None:
            for namespaces in kinds.values():
                namespaces.create(PREFIX + id_)
        else:
            with process_in_user_namespace(ids.first, ids.count, tuple(kinds)) as pid:
                for namespaces in (*kinds.values(), self.users):
                    namespaces.create(PREFIX + id_, pid)
        if network:
            with KernelNetwork(self.network(id_)) as inside:
                inside.links.change("lo", up=True)
        private_directory(self.shm_directory)  # the tmpfs is for all users, of the pod and no others
        shm = self.shm(id_)
        shm.mkdir(mode=0o755, exist_ok=True)
        owner = [f"uid={ids.first}", f"gid={ids.first}"] if ids else []
        options = ["nosuid", "noexec", "nodev", "mode=1777", f"size={SHM_BYTES}", *owner]
        self.mounts.mount("shm", shm, "tmpfs", options)
        if network:
            KernelSysctls(self.network(id_)).write_present(DEFAULT_SYSCTLS)
        allowed = [name for name in NAMESPACED if (network if name.startswith("net") else ipc)]  # never the node's
        sysctls = KernelSysctls(self.network(id_) if network else None, self.ipc(id_) if ipc else None, allowed)
        for name, value in config.linux.sysctls.items():
            try:
                sysctls.write(name, value)
            except (NoSuchSysctl, Refused) as error:
                raise InvalidArgument(f"config.linux.sysctls[{name}]: {error}") from error

    def remove(self, id_: str) -> list[str]:
        """Removes everything that can be removed. Returns the failures."""
        steps: list[Step] = [
            ("pid namespace", lambda: self._end_processes(id_)),
            ("shared memory", lambda: self._remove_shm(id_)),
            ("user namespace", lambda: self.users.remove(PREFIX + id_)),
            ("ipc namespace", lambda: self.ipcs.remove(PREFIX + id_)),
            ("network namespace", lambda: self.networks.remove(PREFIX + id_)),
        ]
        failures = []
        for name, step in steps:
            try:
                step()
            except (LinuxError, OSError) as error:
                failures.append(f"{name}: {error}")
        return failures

    def _end_processes(self, id_: str) -> None:
        """Ends the processes that share the pod's pid namespace: those of a sandbox whose record is lost."""
        pinned = [pinned for pinned in self.pids.list() if pinned.name == PREFIX + id_]
        for namespace in pinned:
            if namespace.inode:
                kill_pid_namespace(namespace.inode)
            self.pids.remove(namespace.name)

    def _remove_shm(self, id_: str) -> None:
        shm = self.shm(id_)
        try:
            while True:
                self.mounts.unmount(shm, lazily=True)
        except (NoSuchMount, FileNotFoundError):
            pass
        if shm.exists():
            shm.rmdir()
