"""A place for a whole cluster: a short path, and whatever happens, nothing of the cluster is left after it."""

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
"""What `podwire manifests nri-network` prints."""
_RANDOM = 8
"""Characters that mkdtemp adds."""

TOLD = ("apiserver", "scheduler", "kubelet", "runtime")
TAIL = 8


class NotCleared(Exception):
    """Says what is left, and how to go on."""


@contextlib.contextmanager
def staged(*, keep: bool) -> Iterator[Layout]:
    """The layout of a cluster that is not up yet; with `keep` it may stay, unless something goes wrong."""
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix=NAME, dir=_place()))
        layout = Layout(folder.resolve())
        undo.callback(_clear, layout)
        write({**CLUSTER, PLUGIN: yaml.safe_dump_all(manifests(Settings()), sort_keys=False)}, folder)
        yield layout
        if keep:
            undo.pop_all()


def _place() -> Path:
    """Where temporary things go, if a prefix there is short enough."""
    usual = Path(tempfile.gettempdir()).resolve()
    long = len(os.fsencode(usual)) + len(f"/{NAME}") + _RANDOM
    return usual if long <= LONGEST else Path("/tmp")  # noqa: S108 - mkdtemp makes a name of its own there


def _clear(layout: Layout) -> None:
    try:
        _remove(layout)
    except (NotRemoved, PrefixLocked, StillThere, OSError) as error:
        raise NotCleared(f"not everything is removed: {error}; try `podwire down --prefix {layout.prefix}`") from error
    shutil.rmtree(layout.prefix)


def _remove(layout: Layout) -> None:
    try:
        down(layout, SlotClaims())
    except PrefixLocked as held:  # by an `up` of this demo, which was ended before it could tell of itself
        kill([held.pid] if held.pid else [])
        down(layout, SlotClaims())


def memory_bytes(layout: Layout) -> int:
    """Of all processes of the cluster together."""
    return sum(component.memory_bytes for component in status(layout).components)


def log_tails(layout: Layout) -> str:
    """The last that the participants wrote."""
    return "\n".join(f"{name}: {line}" for name in TOLD for line in launch.tail(layout, name, TAIL))
