"""One network namespace, open: its links, addresses, routes, rules, neighbours and traffic on one netlink socket."""

from types import TracebackType
from typing import Self

from podwire.linux.net.addresses import KernelAddresses
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.neighbours import KernelNeighbours
from podwire.linux.net.netlink import Batch, Netlink, Sender
from podwire.linux.net.routes import KernelRoutes
from podwire.linux.net.rules import KernelRules
from podwire.linux.net.traffic import KernelTraffic
from podwire.linux.values import Path


class Parts:
    """What a network namespace consists of."""

    def __init__(self, sender: Sender) -> None:
        self.links = KernelLinks(sender)
        self.addresses = KernelAddresses(sender)
        self.routes = KernelRoutes(sender)
        self.rules = KernelRules(sender)
        self.neighbours = KernelNeighbours(sender)
        self.traffic = KernelTraffic(sender)


class KernelNetwork(Parts):
    """Stays open, and keeps its namespace alive, until it is closed."""

    def __init__(self, netns: Path | int | None = None) -> None:
        self.netlink = Netlink(netns)
        super().__init__(self.netlink)

    def batch(self) -> "KernelBatch":
        """`with network.batch() as batch:` what is told to `batch` goes to the kernel together, as the block ends."""
        return KernelBatch(self.netlink)

    def close(self) -> None:
        self.netlink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class KernelBatch(Parts):
    """A network whose changes wait for the end of the block; none that fails stops the rest, the first is raised."""

    def __init__(self, netlink: Netlink) -> None:
        self._batch = Batch(netlink)
        super().__init__(self._batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._batch.send()
        else:
            self._batch.drop()
