"""A simulated namespace, open; its rules and neighbours; and changes that wait for each other."""

import errno
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

from podwire.linux import errors, ports
from podwire.linux.links import mac_bytes
from podwire.linux.memory.addresses import MemoryAddresses
from podwire.linux.memory.links import MemoryLinks
from podwire.linux.memory.routes import MemoryRoutes
from podwire.linux.memory.traffic import MemoryTraffic
from podwire.linux.memory.world import Space, World
from podwire.linux.values import IP, Neighbour, Rule


class MemoryRules:
    def __init__(self, space: Space) -> None:
        self._space = space

    def add(self, rule: Rule) -> None:
        whole = _whole(rule)
        if whole in self._space.rules:
            raise errors.RuleExists(errno.EEXIST, f"add rule {rule.priority}")
        self._space.rules.append(whole)

    def delete(self, rule: Rule) -> None:
        whole = _whole(rule)
        if whole not in self._space.rules:
            raise errors.NoSuchRule(errno.ENOENT, f"delete rule {rule.priority}")
        self._space.rules.remove(whole)

    def list(self, family: int) -> list[Rule]:
        return sorted((each for each in self._space.rules if each.family == family), key=lambda each: each.priority)


def _whole(rule: Rule) -> Rule:
    return rule._replace(mask=rule.mask or 0xFFFFFFFF) if rule.mark else rule


class MemoryNeighbours:
    def __init__(self, space: Space) -> None:
        self._space = space

    def add(self, neighbour: Neighbour) -> None:
        if (neighbour.ifindex, str(neighbour.address)) in self._space.neighbours:
            raise errors.NeighbourExists(errno.EEXIST, f"add neighbour {neighbour.address}")
        self.replace(neighbour)

    def replace(self, neighbour: Neighbour) -> None:
        self._space.find(neighbour.ifindex, f"add neighbour {neighbour.address}")
        whole = neighbour._replace(mac=mac_bytes(neighbour.mac).hex(":"))
        self._space.neighbours[neighbour.ifindex, str(neighbour.address)] = whole

    def delete(self, index: int, address: IP) -> None:
        operation = f"delete neighbour {address}"
        self._space.find(index, operation)
        if self._space.neighbours.pop((index, str(address)), None) is None:
            raise errors.NoSuchNeighbour(errno.ENOENT, operation)

    def list(self, index: int | None = None) -> list[Neighbour]:
        return [each for each in self._space.neighbours.values() if index in (None, each.ifindex)]


class MemoryNetwork:
    def __init__(self, world: World, space: Space) -> None:
        space.users += 1
        self._world, self._space = world, space
        self._open = True
        self.links: ports.Links = MemoryLinks(world, space)
        self.addresses: ports.Addresses = MemoryAddresses(space)
        self.routes: ports.Routes = MemoryRoutes(space)
        self.rules: ports.Rules = MemoryRules(space)
        self.neighbours: ports.Neighbours = MemoryNeighbours(space)
        self.traffic: ports.Traffic = MemoryTraffic(space)

    def batch(self) -> "MemoryBatch":
        return MemoryBatch(self)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._world.leave(self._space)


class MemoryBatch:
    """Runs what it was told when the block ends, all of it, and raises the first error."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._waiting: list[Callable[[], None]] = []
        self.links = cast("ports.Links", _Later(network.links, self))
        self.addresses = cast("ports.Addresses", _Later(network.addresses, self))
        self.routes = cast("ports.Routes", _Later(network.routes, self))
        self.rules = cast("ports.Rules", _Later(network.rules, self))
        self.neighbours = cast("ports.Neighbours", _Later(network.neighbours, self))
        self.traffic = cast("ports.Traffic", _Later(network.traffic, self))

    def wait(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)

    def send(self) -> None:
        waiting, self._waiting = self._waiting, []
        failed: list[errors.LinuxError] = []
        for each in waiting:
            try:
                each()
            except errors.LinuxError as error:
                failed.append(error)
        if failed:
            for other in failed[1:]:
                failed[0].add_note(f"also: {other}")
            raise failed[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.send()


class _Later:
    """Stands for a part of a network: questions are answered, after what waits was done; the rest waits."""

    def __init__(self, part: object, batch: MemoryBatch) -> None:
        self._part, self._batch = part, batch

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._part, name)
        if name in ("get", "list", "shaped", "hooked", "redirected"):
            self._batch.send()
            return method
        return lambda *arguments, **named: self._batch.wait(partial(method, *arguments, **named))
