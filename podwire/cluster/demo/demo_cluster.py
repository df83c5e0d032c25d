"""A cluster in a temporary directory, for the demo: whatever happens, it is removed at the end."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from podwire.cluster.demo.manifests import CLUSTER, write
from podwire.cluster.up import launch
from podwire.cluster.up.down import NotRemoved, down
from podwire.cluster.up.layout import LONGEST, Layout
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.status import status
from podwire.cluster.up.status_file import PrefixLocked
from podwire.cluster.up.stop import StillThere, kill
from podwire.nriplugins.network.manifests import Settings, manifests

NAME = "pwdemo-"
PLUGIN = "nri-network.yaml"
"""The output of `podwire manifests nri-network`."""
_RANDOM = 8
"""Characters that mkdtemp adds."""

LOGGED = ("apiserver", "scheduler", "kubelet", "runtime")
TAIL = 8


class NotCleared(Exception):
    """Says what is left, and how to go on."""


@contextlib.contextmanager
def temporary_layout(*, keep: bool) -> Iterator[Layout]:
    """Gives the layout of a cluster that is not up yet; with `keep` it may stay, unless something fails."""
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix=NAME, dir=_parent_directory()))
        layout = Layout(folder.resolve())
        undo.callback(_clear, layout)
        write({**CLUSTER, PLUGIN: yaml.safe_dump_all(manifests(Settings()), sort_keys=False)}, folder)
        yield layout
        if keep:
            undo.pop_all()


def _parent_directory() -> Path:
    """Returns the directory for temporary files, if prefixes in it are short enough."""
    usual = Path(tempfile.gettempdir()).resolve()
    length = len(os.fsencode(usual)) + len(f"/{NAME}") + _RANDOM
    return usual if length <= LONGEST else Path("/tmp")  # noqa: S108 - mkdtemp makes a name of its own there


def _clear(layout: Layout) -> None:
    try:
        _remove(layout)
    except (NotRemoved, PrefixLocked, StillThere, OSError) as error:
        raise NotCleared(f"cannot remove everything: {error}; try `podwire down --prefix {layout.prefix}`") from error
    shutil.rmtree(layout.prefix)


def _remove(layout: Layout) -> None:
    try:
        down(layout, SlotClaims())
    except PrefixLocked as held:  # by an `up` of this demo that was killed before it wrote its status
        kill([held.pid] if held.pid else [])
        down(layout, SlotClaims())


def memory_bytes(layout: Layout) -> int:
    """Returns the memory of all processes of the cluster."""
    return sum(component.memory_bytes for component in status(layout).components)


def log_tails(layout: Layout) -> str:
    """Returns the last log lines of the main components."""
    return "\n".join(f"{name}: {line}" for name in LOGGED for line in launch.tail(layout, name, TAIL))
