"""What there is on the node, as plugins that come are told of it.

Nothing here waits: an entry changes in the very step in which the last plugin has answered, so whoever comes before
that step is asked, and whoever comes after it is told by Synchronize.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from podwire.protocols.nri import nri_pb2 as pb

Kept = TypeVar("Kept", pb.PodSandbox, pb.Container)


class Lifecycles(Generic[Kept]):
    """Pods or containers by their ids, and how far each has come on its way out."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._stopping: set[str] = set()
        self._stopped: set[str] = set()
        self._going: set[str] = set()

    def know(self, kept: Iterable[Kept], stopped: frozenset[str]) -> None:
        """What was there before this host was; of those in `stopped` the plugins have heard that they stopped."""
        self._kept.update((each.id, each) for each in kept)
        self._stopping |= stopped & self._kept.keys()
        self._stopped |= stopped & self._kept.keys()

    def put(self, kept: Kept) -> None:
        self._kept[kept.id] = kept

    def change(self, kept: Kept) -> None:
        """As it is now, unless it is not there any more."""
        if kept.id in self._kept:
            self._kept[kept.id] = kept

    def begin_stop(self, kept: Kept) -> bool:
        """Whether plugins are to be told; once for each, even for what never came as far as to be kept."""
        if kept.id in self._stopping:
            return False
        self._stopping.add(kept.id)
        return True

    def end_stop(self, kept: Kept) -> None:
        self._stopped.add(kept.id)
        self.change(kept)

    def begin_removal(self, kept: Kept) -> bool:
        """Whether plugins are to be told, and not somebody else tells them at this moment."""
        if kept.id in self._going:
            return False
        self._going.add(kept.id)
        return True

    def end_removal(self, kept: Kept) -> None:
        self._kept.pop(kept.id, None)
        for each in (self._stopping, self._stopped, self._going):
            each.discard(kept.id)

    def all(self) -> tuple[Kept, ...]:
        return tuple(self._kept.values())

    def living(self) -> tuple[Kept, ...]:
        """Those that have not stopped."""
        return tuple(each for key, each in self._kept.items() if key not in self._stopped)


class Inventory:
    """Pods and containers, by the messages that were handed in: they are not copied."""

    def __init__(self) -> None:
        self.pods: Lifecycles[pb.PodSandbox] = Lifecycles()
        self.containers: Lifecycles[pb.Container] = Lifecycles()

    def snapshot(self) -> tuple[tuple[pb.PodSandbox, ...], tuple[pb.Container, ...]]:
        """What Synchronize tells: every pod, and every container that has not exited, as containerd does."""
        living = self.containers.living()
        return self.pods.all(), tuple(each for each in living if each.state != pb.CONTAINER_STOPPED)
