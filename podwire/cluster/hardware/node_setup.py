"""A node's hardware from nothing: its files when its mount namespace is made, its links as soon as its network stands.

Each step can be done again: what is there stays, also when it is in a pod just now.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from podwire.cluster.hardware import switch
from podwire.cluster.hardware.pci_functions import functions, links
from podwire.cluster.hardware.profile import Profile
from podwire.cluster.hardware.reconciler import CardReconciler
from podwire.cluster.hardware.sysfs_mount import plant
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.mount_namespaces import is_pinned
from podwire.linux.proc.namespaces import KernelNamespaces, open_namespace

T = TypeVar("T")


class Space(Protocol):
    """A node's namespaces."""

    @property
    def net(self) -> Path: ...

    @property
    def switch(self) -> Path: ...

    def inside(self, work: Callable[[], T]) -> T: ...


def furnishing(profile: Profile | None) -> Callable[[], None] | None:
    """What is to be mounted in the node's own mount namespace."""
    return partial(plant, profile) if profile is not None else None


def set_up(profile: Profile, space: Space, mark: str) -> None:
    """1. The switch.  2. Cards that it lacks, up.  3. Their entries in sysfs."""
    if not is_pinned(space.switch, "net"):
        KernelNamespaces(space.switch.parent, "net").create(space.switch.name)
    far = open_namespace(space.switch)
    try:
        with KernelNetwork(far) as network, KernelNetwork(space.net) as node:
            made = switch.install(network, space.net, links(functions(profile)), mark)
            switch.turn_on(node, made)
        space.inside(lambda: CardReconciler(profile, far, mark).settle())
    finally:
        os.close(far)
