"""The addresses of a simulated namespace."""

import errno

from podwire.linux import errors
from podwire.linux.memory.routes import connect, disconnect
from podwire.linux.memory.world import Device, Held, Space
from podwire.linux.values import PROTOCOL, Address, Interface


class MemoryAddresses:
    def __init__(self, space: Space) -> None:
        self._space = space

    def add(self, index: int, interface: Interface, *, dad: bool = False, prefix_route: bool = True) -> None:  # noqa: ARG002 - nobody else is there to ask
        operation = f"add address {interface} to link {index}"
        device = self._space.find(index, operation)
        if any(_same(each.interface, interface) for each in device.addresses):
            raise errors.AddressExists(errno.EEXIST, operation)
        held = Held(interface, PROTOCOL, prefix_route)
        device.addresses.append(held)
        if device.up:
            connect(device, held)

    def delete(self, index: int, interface: Interface) -> None:
        operation = f"delete address {interface} of link {index}"
        device = self._space.find(index, operation)
        found = [each for each in device.addresses if each.interface == interface]
        if not found:
            raise errors.NoSuchAddress(errno.EADDRNOTAVAIL, operation)
        for each in [*found, *_secondaries(device, interface)]:
            device.addresses.remove(each)
            disconnect(device, each)

    def list(self, index: int | None = None) -> list[Address]:
        devices = [each for each in self._space.devices.values() if index in (None, each.index)]
        return [Address(each.index, held.interface, held.protocol) for each in devices for held in each.addresses]


def _same(one: Interface, other: Interface) -> bool:
    """IPv4 may have the same address with another prefix, IPv6 may not."""
    return one == other if one.version == 4 else one.version == other.version and one.ip == other.ip


def _secondaries(device: Device, interface: Interface) -> list[Held]:
    """IPv4's later addresses of the same network: they go with the first."""
    same = [each for each in device.addresses if each.interface.network == interface.network]
    first = interface.version == 4 and bool(same) and same[0].interface == interface
    return same[1:] if first else []
