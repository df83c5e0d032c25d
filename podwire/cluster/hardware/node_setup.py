"""Sets up the hardware of a node: files with its mount namespace, links with its network. Idempotent."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from podwire.cluster.hardware import switch
from podwire.cluster.hardware.pci_functions import functions, links
from podwire.cluster.hardware.profile import Profile
from podwire.cluster.hardware.reconciler import CardReconciler
from podwire.cluster.hardware.sysfs_mount import mount_profile
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
    """Returns the function that mounts the profile's files in the node's mount namespace."""
    return partial(mount_profile, profile) if profile is not None else None


def set_up(profile: Profile, space: Space, tag: str) -> None:
    """1. The switch.  2. Missing cards, up.  3. Their entries in sysfs."""
    if not is_pinned(space.switch, "net"):
        KernelNamespaces(space.switch.parent, "net").create(space.switch.name)
    far = open_namespace(space.switch)
    try:
        with KernelNetwork(far) as network, KernelNetwork(space.net) as node:
            created = switch.install(network, space.net, links(functions(profile)), tag)
            switch.turn_on(node, created)
        space.inside(lambda: CardReconciler(profile, far, tag).reconcile())
    finally:
        os.close(far)
