"""Directories of a kubelet. Pure."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletPaths:
    root: Path
    logs: Path

    @property
    def owner(self) -> str:
        """The owner tag of sandboxes: a kubelet is alone in its root directory, so the path identifies it."""
        return str(self.root.absolute())

    def pod(self, uid: str) -> Path:
        return self.root / "pods" / uid

    def etc_hosts(self, uid: str) -> Path:
        return self.pod(uid) / "etc-hosts"

    def termination_message(self, uid: str, container: str, attempt: int) -> Path:
        """The host file behind a container's terminationMessagePath."""
        return self.pod(uid) / "containers" / container / str(attempt)

    def pod_logs(self, namespace: str, name: str, uid: str) -> Path:
        return self.logs / f"{namespace}_{name}_{uid}"
