"""The real kernel behind all ports."""

from functools import cached_property

from podwire.linux import ports
from podwire.linux.cgroups import KernelCgroups
from podwire.linux.conntrack import KernelConntrack
from podwire.linux.mounts import KernelMounts
from podwire.linux.namespaces import KernelNamespaces
from podwire.linux.network import KernelNetwork
from podwire.linux.nft import KernelElements, KernelRuleset
from podwire.linux.sysctls import KernelSysctls
from podwire.linux.values import Path


class RealKernel:
    """That of the machine, seen from the calling thread's namespaces."""

    def __init__(self) -> None:
        self.mounts: ports.Mounts = KernelMounts()

    @cached_property
    def cgroups(self) -> ports.AllCgroups:
        return KernelCgroups()

    def network(self, netns: Path | None = None) -> ports.Network:
        return KernelNetwork(netns)

    def namespaces(self, directory: Path, kind: str = "net") -> ports.Namespaces:
        return KernelNamespaces(directory, kind)

    def elements(self, netns: Path | None, table: str) -> ports.Elements:
        return KernelElements(netns, table)

    def ruleset(self, netns: Path | None) -> ports.Ruleset:
        return KernelRuleset(netns)

    def sysctls(self, netns: Path | None = None, ipc: Path | None = None) -> ports.Sysctls:
        return KernelSysctls(netns, ipc)

    def conntrack(self, netns: Path | None = None) -> ports.Conntrack:
        return KernelConntrack(netns)


def real_kernel() -> ports.Kernel:
    return RealKernel()
