"""The state of the simulated kernel: namespaces with their links, and the paths that pin them."""

import errno
import os
from itertools import count

from podwire.linux import errors
from podwire.linux.values import MAIN, Bucket, Element, Interface, Link, Neighbour, Path, Route, Rule

KERNEL = 2
"""The protocol number of the kernel's own routes and rules."""


class Held:
    """An address that a link has."""

    __slots__ = ("interface", "prefix_route", "protocol")

    def __init__(self, interface: Interface, protocol: int, prefix_route: bool) -> None:
        self.interface, self.protocol, self.prefix_route = interface, protocol, prefix_route


class Device:
    """A link with all that hangs on it."""

    def __init__(self, space: "Space", index: int, name: str, kind: str, mac: str, mtu: int) -> None:
        self.space, self.index, self.name, self.kind = space, index, name, kind
        self.mac, self.mtu = mac, mtu
        self.up = self.promiscuous = self.all_multicast = self.hairpin = self.isolated = False
        self.queue = 32 if kind == "ifb" else 1000
        self.bucket: Bucket | None = None
        self.detour: int | None = None
        self.alias = self.mode = ""
        self.master: Device | None = None
        self.other: Device | None = None
        self.addresses: list[Held] = []

    def state(self) -> str:
        if not self.up:
            return "down"
        if self.kind in ("", "ifb"):
            return "unknown"
        if self.kind == "bridge":
            ports = [each for each in self.space.devices.values() if each.master is self]
            return "up" if any(each.state() == "up" for each in ports) else "down"
        return "up" if self.other is not None and self.other.up else "lowerlayerdown"

    def told(self) -> Link:
        other = self.other
        away = other is not None and other.space is not self.space
        return Link(
            ifindex=self.index,
            name=self.name,
            kind=self.kind,
            mac=self.mac,
            mtu=self.mtu,
            up=self.up,
            state=self.state(),
            master=self.master.index if self.master else 0,
            peer=other.index if other else 0,
            peer_netns=self.space.number_of(other.space) if other is not None and away else None,
            alias=self.alias,
            promiscuous=self.promiscuous,
            hairpin=self.hairpin,
            isolated=self.isolated,
            all_multicast=self.all_multicast,
            queue=self.queue,
            mode=self.mode,
        )


class Space:
    """One namespace."""

    def __init__(self, world: "World", kind: str) -> None:
        self.kind = kind
        self.inode = next(world.inodes)
        self.devices: dict[int, Device] = {}
        self.routes: list[Route] = []
        self.rules: list[Rule] = _first_rules()
        self.neighbours: dict[tuple[int, str], Neighbour] = {}
        self.tables: dict[str, dict[str, dict[bytes, Element]]] = {}
        self.sysctls: dict[str, str] = {}
        self.users = 0
        self._numbers: dict[int, int] = {}
        if kind == "net":
            self.add(Device(self, 1, "lo", "", "00:00:00:00:00:00", 65536))

    def add(self, device: Device) -> None:
        self.devices[device.index] = device
        device.space = self

    def free_index(self) -> int:
        return next(each for each in count(1) if each not in self.devices)

    def find(self, link: int | str, operation: str) -> Device:
        for each in self.devices.values():
            if link in (each.index, each.name):
                return each
        raise errors.NoSuchLink(errno.ENODEV, operation)

    def number_of(self, other: "Space") -> int:
        """The id under which this namespace knows another."""
        return self._numbers.setdefault(other.inode, len(self._numbers))

    def forget(self, device: Device) -> None:
        """All that says something about a link that goes."""
        self.routes = [each for each in self.routes if each.ifindex != device.index]
        self.neighbours = {key: each for key, each in self.neighbours.items() if each.ifindex != device.index}
        for each in self.devices.values():
            if each.master is device:
                each.master = None
        self.devices.pop(device.index, None)

    def remove(self, device: Device) -> None:
        """Delete a link, a veth's peer too, and the macvlans that stand on it."""
        self.forget(device)
        peer, device.other = device.other, None
        if peer is not None and device.kind == "veth":
            peer.other = None
            peer.space.remove(peer)

    def die(self) -> None:
        """Nobody is here any more: its virtual links go, and their peers elsewhere."""
        for each in [*self.devices.values()]:
            if each.index in self.devices:
                self.remove(each)


def _first_rules() -> list[Rule]:
    four = [Rule(0, 255, 4), Rule(32766, MAIN, 4), Rule(32767, 253, 4)]
    return [each._replace(protocol=KERNEL) for each in [*four, Rule(0, 255, 6), Rule(32766, MAIN, 6)]]


class World:
    """All namespaces, by the paths that pin them."""

    def __init__(self) -> None:
        self.inodes = count(4026532000)
        self.host = Space(self, "net")
        self.host_ipc = Space(self, "ipc")
        self.pins: dict[str, Space] = {}
        self.files: set[str] = set()

    def at(self, path: Path | None, kind: str = "net") -> Space:
        """NoSuchNamespace, WrongKind."""
        if path is None:
            return self.host if kind == "net" else self.host_ipc
        where = os.fspath(path)
        operation = f"open the namespace {where}"
        space = self.pins.get(where)
        if space is None:
            raise errors.NoSuchNamespace(errno.ENOENT, operation)
        if space.kind != kind:
            raise errors.WrongKind(errno.EINVAL, operation, f"it is no {kind} namespace")
        return space

    def spaces(self) -> list[Space]:
        return [self.host, *self.pins.values()]

    def leave(self, space: Space) -> None:
        """A pin or a socket is gone; the last one ends the namespace."""
        space.users -= 1
        if space.users == 0:
            space.die()
