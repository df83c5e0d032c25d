"""Addresses of load balancers on the links of this node: lent for some seconds, with our protocol number."""

import contextlib
import ipaddress

from podwire.linux.errors import NoSuchAddress
from podwire.linux.net.announcements import announce
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import IP, PROTOCOL, Address


class AnnouncedAddresses:
    """Those of the present network namespace."""

    def __init__(self) -> None:
        self._network = KernelNetwork()

    def present(self) -> set[IP]:
        return {row.interface.ip for row in self._own()}

    def extend(self, address: IP, seconds: int) -> bool:
        """Adds an address, or extends its time; returns False if no link is in its network."""
        ifindex = self._link_of(address)
        if ifindex:
            self._network.addresses.lend(ifindex, ipaddress.ip_interface(address), seconds)
        return bool(ifindex)

    def announce(self, address: IP) -> None:
        """Tells the neighbours that the address is here."""
        if ifindex := self._link_of(address):
            announce(ifindex, address)

    def remove(self, address: IP) -> None:
        for row in self._own():
            if row.interface.ip == address:
                with contextlib.suppress(NoSuchAddress):
                    self._network.addresses.delete(row.ifindex, row.interface)

    def close(self) -> None:
        self._network.close()

    def _own(self) -> list[Address]:
        rows = self._network.addresses.list()
        return [row for row in rows if row.protocol == PROTOCOL and row.lent and _is_single(row)]

    def _link_of(self, address: IP) -> int:
        """Returns the link whose network has the address; 0 if there is none."""
        rows = (row for row in self._network.addresses.list() if not row.lent and not _is_single(row))
        return next((row.ifindex for row in rows if address in row.interface.network), 0)


def _is_single(row: Address) -> bool:
    return row.interface.network.num_addresses == 1


def remove_all() -> bool:
    """Removes the addresses of this network namespace; returns whether there were any."""
    addresses = AnnouncedAddresses()
    try:
        present = addresses.present()
        for address in present:
            addresses.remove(address)
        return bool(present)
    finally:
        addresses.close()
