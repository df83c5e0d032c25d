"""Selects the links of the host that belong to a pool. Pure."""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from podwire.deviceplugin.config import Interfaces
from podwire.linux.net.sysfs import Hardware
from podwire.linux.values import Link

MARK = "podwire-device:"
"""Begins the alias of a link that a pool has made."""


class Candidate(NamedTuple):
    link: Link
    hardware: Hardware


def wants(pool: Interfaces, each: Candidate) -> bool:
    """Whether every list that is given has a match."""
    hardware = each.hardware
    return (
        (not pool.names or any(fnmatchcase(each.link.name, pattern) for pattern in pool.names))
        and (not pool.drivers or hardware.driver in pool.drivers)
        and (not pool.pci_addresses or any(fnmatchcase(hardware.pci, pattern) for pattern in pool.pci_addresses))
        and (not pool.numa_nodes or hardware.numa in pool.numa_nodes)
    )


def reserved(link: Link, uplinks: Collection[int]) -> str:
    """Why a link must not be handed out, whatever a pool selects; empty when it may."""
    if link.name == "lo":
        return "it is the loopback interface"
    if link.ifindex in uplinks:
        return "the host's default route goes through it"
    if link.master:
        return "it is a port of another link"
    if link.alias.startswith(MARK):
        return "a pool has made it"
    return ""


def ids(found: Mapping[int, Candidate]) -> dict[int, str]:
    """A device's id is its PCI address, or its name when it has none or shares its address with another."""
    addresses = [candidate.hardware.pci for candidate in found.values()]
    return {
        index: candidate.hardware.pci
        if candidate.hardware.pci and addresses.count(candidate.hardware.pci) == 1
        else candidate.link.name
        for index, candidate in found.items()
    }
