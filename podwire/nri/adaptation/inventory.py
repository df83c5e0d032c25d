"""Pods and containers of the node, as Synchronize describes them to a plugin that registers.

Nothing here awaits: an entry changes in the same step of the event loop in which the last plugin has answered. A plugin
that registers before that step is called for the event, one that registers after it has the result in its snapshot.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from podwire.protocols.nri import nri_pb2 as pb

Item = TypeVar("Item", pb.PodSandbox, pb.Container)


class Lifecycles(Generic[Item]):
    """Pods or containers by id, and how far each has ended.

    `stopping`: plugins are being, or were, notified of its stop. `stopped`: all of them were. `removing`: they are
    being notified of its removal. Each is reported once, however often and concurrently the runtime asks.
    """

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._stopping: set[str] = set()
        self._stopped: set[str] = set()
        self._removing: set[str] = set()

    def know(self, items: Iterable[Item], stopped: frozenset[str]) -> None:
        """Add what existed before this process; plugins were notified of the stop of those in `stopped`."""
        self._items.update((item.id, item) for item in items)
        self._stopping |= stopped & self._items.keys()
        self._stopped |= stopped & self._items.keys()

    def put(self, item: Item) -> None:
        self._items[item.id] = item

    def change(self, item: Item) -> None:
        """Replace an entry, unless it was removed."""
        if item.id in self._items:
            self._items[item.id] = item

    def begin_stop(self, item: Item) -> bool:
        """Whether to report the stop: once per id, even for one that was never put here."""
        if item.id in self._stopping:
            return False
        self._stopping.add(item.id)
        return True

    def end_stop(self, item: Item) -> None:
        self._stopped.add(item.id)
        self.change(item)

    def begin_removal(self, item: Item) -> bool:
        """Whether to report the removal: not while another caller does."""
        if item.id in self._removing:
            return False
        self._removing.add(item.id)
        return True

    def end_removal(self, item: Item) -> None:
        self._items.pop(item.id, None)
        for ids in (self._stopping, self._stopped, self._removing):
            ids.discard(item.id)

    def all(self) -> tuple[Item, ...]:
        return tuple(self._items.values())

    def unstopped(self) -> tuple[Item, ...]:
        return tuple(item for key, item in self._items.items() if key not in self._stopped)


class Inventory:
    """Holds the messages that were handed in; they are not copied."""

    def __init__(self) -> None:
        self.pods: Lifecycles[pb.PodSandbox] = Lifecycles()
        self.containers: Lifecycles[pb.Container] = Lifecycles()

    def snapshot(self) -> tuple[tuple[pb.PodSandbox, ...], tuple[pb.Container, ...]]:
        """For Synchronize: every pod, and every container that has not exited, as containerd does."""
        containers = self.containers.unstopped()
        return self.pods.all(), tuple(container for container in containers if container.state != pb.CONTAINER_STOPPED)
