"""The links of a simulated namespace."""

import errno
import os
from itertools import count

from podwire.linux import errors
from podwire.linux.links import checked_name, mac_bytes
from podwire.linux.memory.routes import came_up, went_down
from podwire.linux.memory.world import Device, Space, World
from podwire.linux.values import Bridge, Ifb, Link, Macvlan, NewLink, Path, Veth

_LEAST_MTU, _MOST_MTU = 68, 65535
_MODES = ("private", "vepa", "bridge", "passthru")
_macs = count(1)


class MemoryLinks:
    def __init__(self, world: World, space: Space) -> None:
        self._world, self._space = world, space

    def list(self) -> list[Link]:
        return [each.told() for _, each in sorted(self._space.devices.items())]

    def get(self, link: int | str) -> Link:
        return self._find(link, "find").told()

    def _find(self, link: int | str, verb: str) -> Device:
        return self._space.find(checked_name(link) if isinstance(link, str) else link, f"{verb} link {link}")

    def add(self, new: NewLink) -> None:
        match new:
            case Veth():
                self._add_veth(new)
            case Bridge() | Ifb():
                kind, mac = ("ifb", "") if isinstance(new, Ifb) else ("bridge", new.mac)
                device = self._made(self._space, new.name, kind, new.mtu, mac)
                device.alias = new.alias
                self._space.add(device)
                self._set_up(device, new.up)
            case Macvlan():
                self._add_macvlan(new)

    def _add_veth(self, new: Veth) -> None:
        there = self._space if new.peer_netns is None else self._world.at(new.peer_netns)
        master = self._space.find(new.master, f"add veth {new.name}") if new.master else None
        device = self._made(self._space, new.name, "veth", new.mtu, new.mac)
        if there is self._space and new.name == new.peer:
            raise errors.LinkExists(errno.EEXIST, f"add veth {new.name}")
        peer = self._made(there, new.peer, "veth", new.mtu, new.peer_mac, new.peer_index, of=new.name)
        there.add(peer)
        device.index = self._space.free_index()
        self._space.add(device)
        device.other, peer.other = peer, device
        device.alias, device.master = new.alias, master
        self._set_up(device, new.up)

    def _add_macvlan(self, new: Macvlan) -> None:
        if new.mode not in _MODES:
            raise errors.Refused(errno.EINVAL, f"add macvlan {new.name}")
        if new.alias and new.netns is not None:
            raise errors.Refused(errno.EINVAL, f"add macvlan {new.name}", "it is marked first, and then moved")
        parent = self._space.find(new.parent, f"add macvlan {new.name}")
        there = self._space if new.netns is None else self._world.at(new.netns)
        device = self._made(there, new.name, "macvlan", new.mtu or parent.mtu, new.mac)
        there.add(device)
        device.other, device.mode, device.alias = parent, new.mode, new.alias

    def _made(self, space: Space, name: str, kind: str, mtu: int, mac: str, index: int = 0, of: str = "") -> Device:
        checked_name(name)
        operation = f"add {kind} {of or name}"
        if any(each.name == name for each in space.devices.values()):
            raise errors.LinkExists(errno.EEXIST, operation)
        if index in space.devices:
            raise errors.Busy(errno.EBUSY, operation)
        number = next(_macs)
        own = ":".join(f"{each:02x}" for each in (0x02, 0x50, *number.to_bytes(4, "big")))
        packed = mac_bytes(mac).hex(":") if mac else own
        return Device(space, index or space.free_index(), name, kind, packed, _mtu(mtu or 1500, operation))

    def change(
        self,
        link: int | str,
        *,
        up: bool | None = None,
        name: str | None = None,
        mtu: int | None = None,
        mac: str | None = None,
        alias: str | None = None,
        master: int | None = None,
        promiscuous: bool | None = None,
        all_multicast: bool | None = None,
        queue: int | None = None,
    ) -> None:
        operation = f"change link {link}"
        if name is not None and isinstance(link, str):
            raise errors.Refused(errno.EINVAL, operation, "a link is renamed by its index")
        device = self._find(link, "change")
        if name is not None:
            self._rename(device, checked_name(name), operation)
        device.mtu = device.mtu if mtu is None else _mtu(mtu, operation, least=0 if device.kind == "" else _LEAST_MTU)
        device.mac = device.mac if mac is None else mac_bytes(mac).hex(":")
        device.alias = device.alias if alias is None else alias
        device.promiscuous = device.promiscuous if promiscuous is None else promiscuous
        device.all_multicast = device.all_multicast if all_multicast is None else all_multicast
        device.queue = device.queue if queue is None else queue
        if master is not None:
            device.master = self._master(device, master, operation)
        if up is not None:
            self._set_up(device, up)

    def _rename(self, device: Device, name: str, operation: str) -> None:
        if any(each.name == name and each is not device for each in self._space.devices.values()):
            raise errors.LinkExists(errno.EEXIST, operation)
        device.name = name

    def _master(self, device: Device, index: int, operation: str) -> Device | None:
        if index == 0:
            return None
        if index not in self._space.devices:
            raise errors.Refused(errno.EINVAL, operation, "no such master")
        if self._space.devices[index].kind != "bridge":
            raise errors.Unsupported(errno.EOPNOTSUPP, operation)
        if device.kind in ("bridge", ""):
            raise errors.Refused(errno.ELOOP, operation, "no port of a bridge")
        return self._space.devices[index]

    def _set_up(self, device: Device, up: bool) -> None:
        if device.up == up:
            return
        device.up = up
        if up:
            came_up(device)
        else:
            went_down(device)

    def set_port(self, link: int, *, hairpin: bool | None = None, isolated: bool | None = None) -> None:
        device = self._space.find(link, f"change bridge port {link}")
        if device.master is None:
            raise errors.Unsupported(errno.EOPNOTSUPP, f"change bridge port {link}")
        device.hairpin = device.hairpin if hairpin is None else hairpin
        device.isolated = device.isolated if isolated is None else isolated

    def move(self, link: int | str, netns: Path, name: str | None = None) -> None:
        operation = f"move link {link} to {os.fspath(netns)}"
        there = self._world.at(netns)
        device = self._find(link, "move")
        wanted = checked_name(name) if name is not None else device.name
        if there is self._space:
            self._rename(device, wanted, operation)
            return
        taken = any(each.name == wanted for each in there.devices.values())
        if device.kind in ("bridge", "") and not (taken and wanted != device.name):
            raise errors.Refused(errno.EINVAL, operation)
        if taken:
            raise errors.LinkExists(errno.EEXIST, operation)
        self._space.forget(device)
        device.up, device.master, device.name = False, None, wanted
        device.addresses = []
        if device.index in there.devices:
            device.index = there.free_index()
        there.add(device)

    def delete(self, link: int | str) -> None:
        device = self._find(link, "delete")
        if device.kind == "":
            raise errors.Unsupported(errno.EOPNOTSUPP, f"delete link {link}")
        for space in self._world.spaces():
            for each in [*space.devices.values()]:
                if each.kind == "macvlan" and each.other is device:
                    space.remove(each)
        self._space.remove(device)


def _mtu(mtu: int, operation: str, least: int = _LEAST_MTU) -> int:
    if not least <= mtu <= _MOST_MTU:
        raise errors.Refused(errno.EINVAL, operation, "no such mtu")
    return mtu
