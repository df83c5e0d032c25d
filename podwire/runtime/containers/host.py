"""What this host lets the runtime do; looked up once."""

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from podwire.runtime.spec.capabilities import named

_log = logging.getLogger("podwire.runtime.containers")


@dataclass
class HostPrivileges:
    """Capabilities and what follows from those that are missing."""

    status: Path = Path("/proc/self/status")
    score: Path = Path("/proc/self/oom_score_adj")

    @cached_property
    def capabilities(self) -> list[str]:
        """What this process may give to others: its bounding set."""
        for line in self.status.read_text(encoding="ascii").splitlines():
            if line.startswith("CapBnd:"):
                return named(int(line.split()[1], 16))
        return []

    @cached_property
    def _own_score(self) -> int:
        return int(self.score.read_text(encoding="ascii"))

    def oom_score_adj(self, asked: int) -> int:
        """The score that can be set: without CAP_SYS_RESOURCE nobody may go below its own; said once."""
        if asked >= self._own_score or "CAP_SYS_RESOURCE" in self.capabilities:
            return asked
        self._say_once(asked)
        return self._own_score

    _said: bool = False

    def _say_once(self, asked: int) -> None:
        if not self._said:
            self._said = True
            facts = {"asked": asked, "given": self._own_score}
            _log.warning("oom_score_adj cannot be lowered here: CAP_SYS_RESOURCE is missing", extra=facts)
