"""An open network namespace: links, addresses, routes, rules, neighbours and traffic control on one netlink socket."""

from types import TracebackType
from typing import Self

from podwire.linux.net.addresses import KernelAddresses
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.neighbours import KernelNeighbours
from podwire.linux.net.netlink import Batch, Netlink, Sender, release
from podwire.linux.net.routes import KernelRoutes
from podwire.linux.net.rules import KernelRules
from podwire.linux.net.stations import KernelStations
from podwire.linux.net.traffic import KernelTraffic
from podwire.linux.values import Path


class Parts:
    """The parts of a network namespace."""

    def __init__(self, sender: Sender) -> None:
        self.links = KernelLinks(sender)
        self.addresses = KernelAddresses(sender)
        self.routes = KernelRoutes(sender)
        self.rules = KernelRules(sender)
        self.neighbours = KernelNeighbours(sender)
        self.traffic = KernelTraffic(sender)
        self.stations = KernelStations(sender)


class KernelNetwork(Parts):
    """Keeps its namespace alive until it is closed."""

    def __init__(self, netns: Path | int | None = None) -> None:
        self.netlink = Netlink(netns)
        super().__init__(self.netlink)

    def batch(self) -> "KernelBatch":
        """`with network.batch() as batch:` sends the changes of the block together, at its end."""
        return KernelBatch(self.netlink)

    def close(self) -> None:
        self.netlink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class KernelBatch(Parts):
    """Collects changes until the end of the block. A failure does not stop the others; the first error is raised."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink, self._batch = netlink, Batch(netlink)
        super().__init__(self._batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        requests = self._batch.take()
        if error is None:
            self._netlink.do(*requests)
        else:
            release(requests)
