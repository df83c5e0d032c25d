"""The paths of a cluster below its prefix."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from podwire.linux.errors import LinuxError
from podwire.linux.fs import trust

FIRST = "node-1"
"""The node whose directories are the cluster's own."""

LONGEST = 40
"""Bytes of a prefix: the path of a unix socket has at most 107, and ours are deep."""


class BadPrefix(Exception):
    """Says what is wrong with the prefix."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one cluster. Users find the standard paths below the prefix."""

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
        """The decisions of `up`: slot, nodes, and their namespaces."""
        return self.state / "up.json"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def status(self) -> Path:
        """The status file of the supervisor; beside the tags, where no node can write."""
        return self.component_tags / "status.json"

    @property
    def component_tags(self) -> Path:
        """Each component keeps one file open here, which identifies its process."""
        return self.run / "components"

    @property
    def pins(self) -> Path:
        """A private mount; below it the pinned namespaces of each node."""
        return self.run / "nodes"

    @property
    def trace_socket(self) -> Path:
        """In a directory of its own, which all nodes see."""
        return self.run / "trace/trace.sock"

    @property
    def runtime_socket(self) -> Path:
        return self.run / "cri.sock"

    @property
    def no_links_below(self) -> Path | None:
        """Below a prefix of ours, directories are directories; on the host itself, root may have put links."""
        return None if self.is_default else self.prefix

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def pin(self, node: str, kind: str) -> Path:
        return self.pins / node / kind

    def identity(self, name: str) -> Path:
        """The kubeconfig of a component on a node."""
        return self.state / "identities" / f"{name}.kubeconfig"

    def control_identity(self, name: str) -> Path:
        """The kubeconfig of a component of the control plane, which nodes do not see."""
        return self.state / "apiserver/identities" / f"{name}.kubeconfig"

    @property
    def homes(self) -> Path:
        """The parent of the directories of nodes that cannot have the cluster's own."""
        return self.state / "nodes"

    def home(self, node: str) -> "Layout":
        """The layout of a node with its own namespaces: state, sockets, records."""
        return self if node == FIRST else Layout(self.homes / node)

    def standard(self, node: str) -> Path:
        """The real parent of the standard paths of a node with its own namespaces."""
        return self.homes / node if self.is_default else self.home(node).prefix

    def nodes(self) -> list[str]:
        """Returns the first node, and all others that have directories."""
        names = [path.name for path in self.homes.iterdir()] if self.homes.is_dir() else []
        return [FIRST, *sorted(name for name in names if name != FIRST)]


def layout_of(prefix: Path) -> Layout:
    """Returns the layout below a prefix, which may be relative. Raises BadPrefix, also if others could change it."""
    try:
        layout = Layout(Path(trust.check_directory(prefix)))
    except LinuxError as error:
        raise BadPrefix(str(error)) from error
    resolved = layout.prefix
    if len(os.fsencode(resolved)) > LONGEST:
        reason = f"longer than {LONGEST} bytes, so that socket paths below it would exceed the kernel's limit"
        raise BadPrefix(f"{resolved}: {reason}; choose a shorter one, such as /srv/pw")
    check_directories(layout, (layout.state, layout.run, layout.logs, layout.component_tags, layout.homes))
    return layout


def check_directories(layout: Layout, paths: Iterable[Path]) -> None:
    """Checks directories below a prefix, as far as they exist: they are ours, and not links. Raises BadPrefix."""
    try:
        for path in paths:
            trust.check_directory(path, no_links_below=layout.no_links_below)
    except LinuxError as error:
        raise BadPrefix(str(error)) from error
