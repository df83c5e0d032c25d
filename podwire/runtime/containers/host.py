"""Privileges that this host and the runtime's own process can give to containers: capabilities, profiles, mounts."""

import logging
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from podwire.linux.machine import KernelMachine
from podwire.runtime.spec.capabilities import capability_names

_log = logging.getLogger("podwire.runtime.containers")


@dataclass
class HostPrivileges:
    """Looked up once."""

    status: Path = Path("/proc/self/status")
    score: Path = Path("/proc/self/oom_score_adj")

    machine: KernelMachine = field(default_factory=KernelMachine)
    recursive_read_only: bool = False
    """Whether kernel and OCI runtime make mounts read-only with all mounts below them."""

    user_namespaces: bool = False
    """Whether they support pods with a user namespace of their own."""

    def apparmor_profiles(self) -> frozenset[str] | None:
        """Returns the AppArmor profiles that are loaded now; None without AppArmor."""
        return self.machine.apparmor_profiles()

    @cached_property
    def capabilities(self) -> list[str]:
        """The bounding set of this process."""
        for line in self.status.read_text(encoding="ascii").splitlines():
            if line.startswith("CapBnd:"):
                return capability_names(int(line.split()[1], 16))
        return []

    @cached_property
    def _own_score(self) -> int:
        return int(self.score.read_text(encoding="ascii"))

    _logged: bool = False

    def oom_score_adj(self, requested: int) -> int:
        """Returns the score that can be set: without CAP_SYS_RESOURCE it cannot be below that of this process."""
        if requested >= self._own_score or "CAP_SYS_RESOURCE" in self.capabilities:
            return requested
        if not self._logged:
            self._logged = True
            fields = {"requested": requested, "set": self._own_score}
            _log.warning("cannot lower oom_score_adj: CAP_SYS_RESOURCE is missing", extra=fields)
        return self._own_score
