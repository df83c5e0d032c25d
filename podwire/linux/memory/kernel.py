"""The simulated kernel behind all ports."""

import errno
from collections.abc import Iterable

from podwire.linux import errors, ports, sysctls
from podwire.linux.memory.cgroups import MemoryCgroups
from podwire.linux.memory.mounts import MemoryMounts
from podwire.linux.memory.namespaces import MemoryNamespaces
from podwire.linux.memory.network import MemoryNetwork
from podwire.linux.memory.nft import MemoryElements, MemoryRuleset
from podwire.linux.memory.world import Space, World
from podwire.linux.values import IP, Path

_SYSCTLS = {
    "net/ipv4/ip_forward": "0",
    "net/ipv6/conf/all/forwarding": "0",
    "net/ipv4/ip_unprivileged_port_start": "1024",
    "net/ipv4/ip_local_port_range": "32768\t60999",
    "kernel/shmmni": "4096",
    "kernel/msgmax": "8192",
    "fs/mqueue/msg_max": "10",
}
_PER_LINK = {"forwarding": "0", "accept_ra": "1", "rp_filter": "0", "proxy_arp": "0", "route_localnet": "0"}


class MemoryKernel:
    """One machine; two of them know nothing of each other."""

    def __init__(self) -> None:
        self._world = World()
        self.mounts: ports.Mounts = MemoryMounts()
        self.cgroups: ports.AllCgroups = MemoryCgroups()

    def network(self, netns: Path | None = None) -> ports.Network:
        return MemoryNetwork(self._world, self._world.at(netns))

    def namespaces(self, directory: Path, kind: str = "net") -> ports.Namespaces:
        return MemoryNamespaces(self._world, directory, kind)

    def elements(self, netns: Path | None, table: str) -> ports.Elements:
        return MemoryElements(self._world.at(netns), table)

    def ruleset(self, netns: Path | None) -> ports.Ruleset:
        return MemoryRuleset(self._world.at(netns))

    def sysctls(self, netns: Path | None = None, ipc: Path | None = None) -> ports.Sysctls:
        return MemorySysctls(self._world, netns, ipc)

    def conntrack(self, netns: Path | None = None) -> ports.Conntrack:
        self._world.at(netns)
        return MemoryConntrack()


class MemorySysctls:
    """Knows the parameters that a pod's network needs, and per link a handful."""

    def __init__(self, world: World, netns: Path | None, ipc: Path | None) -> None:
        self._world, self._netns, self._ipc = world, netns, ipc

    def read(self, name: str) -> str:
        space, path = self._found(name, "read")
        return space.sysctls.get(path) or _SYSCTLS.get(path) or _PER_LINK[path.rpartition("/")[2]]

    def write(self, name: str, value: str) -> None:
        space, path = self._found(name, "write")
        space.sysctls[path] = value

    def _found(self, name: str, verb: str) -> tuple[Space, str]:
        parts = sysctls.parts(name)
        net = parts[0] == "net"
        space = self._world.at(self._netns) if net else self._world.at(self._ipc, "ipc")
        path = "/".join(parts)
        links: Iterable[str] = ["all", "default", *(each.name for each in space.devices.values())]
        per_link = len(parts) == 5 and parts[2] == "conf" and parts[3] in links and parts[4] in _PER_LINK
        if path not in _SYSCTLS and not per_link:
            raise errors.NoSuchSysctl(errno.ENOENT, f"{verb} the sysctl {name}")
        return space, path


class MemoryConntrack:
    """Nothing is forwarded, so nothing is remembered."""

    def flush(self, address: IP) -> int:  # noqa: ARG002 - of any address
        return 0

    def close(self) -> None:
        pass


def memory_kernel() -> ports.Kernel:
    return MemoryKernel()
