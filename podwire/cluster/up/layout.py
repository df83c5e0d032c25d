"""Where a cluster keeps what, below its prefix."""

import os
from dataclasses import dataclass
from pathlib import Path

FIRST = "node-1"
"""The node whose directories are the cluster's own."""

LONGEST = 40
"""Bytes of a prefix: a unix socket's path ends at 107, and ours lie deep."""


class BadPrefix(Exception):
    """Says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one cluster. What a person is told of is in the standard places below the prefix."""

    prefix: Path

    @property
    def is_default(self) -> bool:
        return self.prefix == Path("/")

    @property
    def state(self) -> Path:
        return self.prefix / "var/lib/podwire"

    @property
    def run(self) -> Path:
        return self.prefix / "run/podwire"

    @property
    def logs(self) -> Path:
        return self.prefix / "var/log/podwire"

    @property
    def record(self) -> Path:
        """What `up` decided: slot, nodes, where they are."""
        return self.state / "up.json"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def status(self) -> Path:
        """What the supervisor tells about its components."""
        return self.run / "status.json"

    @property
    def marks(self) -> Path:
        """Each component keeps one file open here; that is how its process is known."""
        return self.run / "components"

    @property
    def pins(self) -> Path:
        """A private mount; below it the namespaces of each node."""
        return self.run / "nodes"

    @property
    def trace_socket(self) -> Path:
        return self.run / "trace.sock"

    @property
    def runtime_socket(self) -> Path:
        return self.run / "cri.sock"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def pin(self, node: str, kind: str) -> Path:
        return self.pins / node / kind

    def identity(self, name: str) -> Path:
        """The kubeconfig of a component."""
        return self.state / "identities" / f"{name}.kubeconfig"

    @property
    def homes(self) -> Path:
        """Below it the directories of nodes that cannot have the cluster's own."""
        return self.state / "nodes"

    def home(self, node: str) -> "Layout":
        """Where a node in its own namespaces keeps its state, sockets and records."""
        return self if node == FIRST else Layout(self.homes / node)

    def standard(self, node: str) -> Path:
        """Below what the standard paths of a node in its own namespaces really lie."""
        return self.homes / node if self.is_default else self.home(node).prefix

    def nodes(self) -> list[str]:
        """The first, and all others that have left something here."""
        found = [path.name for path in self.homes.iterdir()] if self.homes.is_dir() else []
        return [FIRST, *sorted(name for name in found if name != FIRST)]


def layout_of(prefix: Path) -> Layout:
    """The layout below a prefix that may be relative. Raises BadPrefix."""
    whole = prefix.resolve()
    if len(os.fsencode(whole)) > LONGEST:
        told = (
            f"longer than {LONGEST} bytes, so that the paths of sockets below it would be longer than the kernel takes"
        )
        raise BadPrefix(f"{whole}: {told}; choose a shorter one, such as /tmp/pw")
    if whole.exists() and not whole.is_dir():
        raise BadPrefix(f"{whole}: is no directory")
    return Layout(whole)
