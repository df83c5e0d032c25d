"""Announces addresses of load balancers: of all nodes that could serve an address, one answers ARP and NDP for it.

All proxies choose the same node without talking: the one with the highest hash of its name and the address, of the
nodes that are ready and whose proxies answer /healthz. With the external traffic policy Local a node also needs a
ready endpoint. A proxy asks only the nodes that come before its own.

The chosen node has the address on its link, so that the kernel answers; each neighbour is notified when it comes. The
kernel removes an address that is not extended: when a proxy dies, its addresses are gone before another node has them.
"""

import asyncio
import hashlib
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from podwire.linux.errors import LinuxError
from podwire.linux.values import IP, Network
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.watch import Deleted, Object, Synced
from podwire.proxy.model import Model
from podwire.proxy.values import READY

_log = logging.getLogger("podwire.proxy")

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
PERIOD = 2.0
"""Seconds between two rounds: nodes are asked, and addresses extended."""
FAILURES = 4
"""A node that has not answered so often in a row is gone; a proxy that restarts is back before that."""
LIFETIME = 6
"""Seconds for which the kernel keeps an address that is not extended: less than FAILURES rounds."""
REPEATS = 3
"""An address that has come is announced in so many rounds: a neighbour ignores changes within a second."""
SETTLE = 0.1
"""Seconds in which changes of Services are handled together."""

Probe = Callable[[str], Awaitable[bool]]
"""Asks the proxy at an address of a node whether it is healthy."""


class Links(Protocol):
    """The addresses of load balancers on the links of this node."""

    def present(self) -> set[IP]: ...

    def extend(self, address: IP, seconds: int) -> bool:
        """Adds an address, or extends its time; returns False if no link is in its network."""
        ...

    def announce(self, address: IP) -> None: ...

    def remove(self, address: IP) -> None: ...


class Site(NamedTuple):
    """An address to announce."""

    address: IP
    nodes: frozenset[str] | None
    """The nodes with a ready endpoint; None: any node serves it."""


def address_of(node: Object) -> str:
    """Returns where a node is asked; empty if it must not announce: not ready, leaving, or excluded."""
    meta, status = node.get("metadata") or {}, node.get("status") or {}
    ready = any(row.get("type") == "Ready" and row.get("status") == "True" for row in status.get("conditions") or ())
    if not ready or "deletionTimestamp" in meta or EXCLUDED in (meta.get("labels") or {}):
        return ""
    own = [row.get("address") for row in status.get("addresses") or () if row.get("type") == "InternalIP"]
    return str(own[0]) if own else ""


def sites(model: Model, pool: Sequence[Network]) -> list[Site]:
    """Returns the addresses of the pool that Services have."""
    found = []
    for name, service in model.services.items():
        for text in service.balancer_ips:
            address = ipaddress.ip_address(text)
            if not any(address in network for network in pool):
                continue
            nodes = None
            if service.external_local:
                endpoints = (row for slice_ in model.slices_of(name) for row in slice_.endpoints)
                nodes = frozenset(row.node for row in endpoints if row.state & READY)
            found.append(Site(address, nodes))
    return found


def ranked(site: Site, nodes: Iterable[str]) -> list[str]:
    """Returns the nodes that could announce an address, the first choice first."""
    usable = [node for node in nodes if site.nodes is None or node in site.nodes]
    return sorted(usable, key=lambda node: hashlib.sha256(f"{node}/{site.address}".encode()).digest(), reverse=True)


class Announcer:
    """`run` works until it is cancelled; the kernel then removes the addresses."""

    def __init__(
        self, api: Client, node: str, pool: Sequence[Network], model: Model, links: Links, probe: Probe
    ) -> None:
        self._api, self._node, self._pool, self._model = api, node, pool, model
        self._links, self._probe = links, probe
        self._nodes: dict[str, str] = {}
        """The nodes that may announce, and where each is asked."""
        self._failures: dict[str, int] = {}
        self._repeats: dict[IP, int] = {}
        self._unreachable: set[IP] = set()
        self._known, self._wake = asyncio.Event(), asyncio.Event()

    def wake(self) -> None:
        """Services or endpoints have changed."""
        self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_nodes(), name="watch nodes")
            group.create_task(self._work(), name="announce")

    async def _follow_nodes(self) -> None:
        kind = BUILTIN.of_kind("v1", "Node")
        if kind is None:
            raise LookupError("Node")
        async with self._api.informer(kind, Scope()) as informer:
            async for change in informer:
                if isinstance(change, Synced):
                    self._known.set()
                    continue
                name = change.object["metadata"]["name"]
                address = "" if isinstance(change, Deleted) else address_of(change.object)
                if address:
                    self._nodes[name] = address
                else:
                    self._nodes.pop(name, None)
                self.wake()

    async def _work(self) -> None:
        await self._known.wait()
        while True:
            wanted = sites(self._model, self._pool)
            await self._ask(wanted)
            try:
                self._apply(wanted)
            except LinuxError as error:
                _log.error("cannot announce addresses of load balancers", extra={"error": str(error)})
            try:
                async with asyncio.timeout(PERIOD if wanted or self._repeats else None):
                    await self._wake.wait()
                    await asyncio.sleep(SETTLE)
            except TimeoutError:
                pass
            self._wake.clear()

    async def _ask(self, wanted: Iterable[Site]) -> None:
        """Asks every node that comes before this one for some address."""
        before: set[str] = set()
        for site in wanted:
            order = ranked(site, self._nodes)
            before.update(order[: order.index(self._node)] if self._node in order else ())
        asked = sorted(before)
        answers = await asyncio.gather(*(self._probe(self._nodes[name]) for name in asked))
        counts = dict(zip(asked, answers, strict=True))
        self._failures = {name: 0 if ok else self._failures.get(name, 0) + 1 for name, ok in counts.items()}

    def chosen(self, wanted: Iterable[Site]) -> set[IP]:
        """Returns the addresses that this node announces."""
        alive = [name for name in self._nodes if self._failures.get(name, 0) < FAILURES]
        return {site.address for site in wanted if ranked(site, alive)[:1] == [self._node]}

    def _apply(self, wanted: Iterable[Site]) -> None:
        """Removes before it adds. Raises LinuxError."""
        present, chosen = self._links.present(), self.chosen(wanted)
        for address in present - chosen:
            self._links.remove(address)
            _log.info("address of a load balancer has left this node", extra={"address": str(address)})
        for address in sorted(chosen, key=str):
            if not self._links.extend(address, LIFETIME):
                if address not in self._unreachable:
                    _log.warning(
                        "no link of this node is in the network of the address", extra={"address": str(address)}
                    )
                self._unreachable.add(address)
                continue
            if address not in present:
                _log.info("address of a load balancer is announced", extra={"address": str(address)})
                self._repeats[address] = REPEATS
        self._unreachable &= chosen
        self._repeats = self._announced({address: left for address, left in self._repeats.items() if address in chosen})

    def _announced(self, repeats: Mapping[IP, int]) -> dict[IP, int]:
        for address in repeats:
            self._links.announce(address)
        return {address: left - 1 for address, left in repeats.items() if left > 1}
