"""The files of sysfs for a profile, as paths below /sys with their content. Pure.

What the kernel knows of a card's link (carrier, MTU, counters, …) is not copied: those entries are symlinks to the
link's own directory, and so they are live.
"""

import os
from collections.abc import Iterable, Iterator
from struct import pack
from typing import NamedTuple

from podwire.cluster.hardware.pci_functions import Function, bridges, functions, links
from podwire.cluster.hardware.profile import Profile, parts

LIVE = "devices/virtual/net"
"""The directory in which the kernel shows links without hardware."""
CLASS_NET = "class/net"
VERBS_MAJOR, VERBS_MINOR = 231, 192
"""Device numbers of verbs files."""
_ROCE_RATES = {1000: "1 Gb/sec (1X SDR)", 10_000: "10 Gb/sec (4X SDR)", 25_000: "25 Gb/sec (1X EDR)"}


class Machine(NamedTuple):
    """CPUs and memory of the real machine, to be divided among NUMA nodes."""

    cpus: int
    kilobytes: int


class Symlink(NamedTuple):
    target: str


Entries = dict[str, str | bytes | Symlink]
"""Paths below /sys: the content of a file, or the target of a symlink."""

EntryIterator = Iterator[tuple[str, str | bytes | Symlink]]


def tree(profile: Profile, machine: Machine) -> Entries:
    """Returns everything but what follows the present names of links, which is in `shown`."""
    all_functions = functions(profile)
    entries = dict(_numa(profile, machine))
    for bridge in (*bridges(profile), *all_functions):
        entries |= dict(_pci(bridge, profile, machine))
    for function in all_functions:
        if function.physical:
            entries[f"{function.place}/physfn"] = _to(
                f"{function.place}/physfn", _placed(all_functions, function.physical)
            )
        elif function.nic is not None:
            entries |= dict(_sriov(function, [vf for vf in all_functions if vf.physical == function.pci]))
        if function.rdma:
            entries |= dict(_rdma(function))
    for number, function in enumerate(rdma_functions(profile)):
        entries |= dict(_verbs(function, f"uverbs{number}", number))
    return entries


def rdma_functions(profile: Profile) -> list[Function]:
    """Returns RDMA functions in the order of their verbs files."""
    return [function for function in functions(profile) if function.rdma]


def directories(profile: Profile) -> list[str]:
    """Returns directories that exist even if they are empty."""
    below = ["bus/pci/devices", "bus/pci/drivers", "bus/pci/slots", CLASS_NET, "class/infiniband"]
    return below + [f"{link.place}/net" for link in links(functions(profile))]


def _to(path: str, target: str) -> Symlink:
    """Returns a relative symlink from one path below /sys to another."""
    return Symlink(os.path.relpath(target, path.rpartition("/")[0]))


def _placed(every: Iterable[Function], pci: str) -> str:
    return next(function.place for function in every if function.pci == pci)


# PCI.


def _pci(function: Function, profile: Profile, machine: Machine) -> EntryIterator:
    cpus = share(profile.numa_nodes, machine.cpus, function.numa) if function.numa is not None else range(machine.cpus)
    ids = f"{function.vendor.upper()}:{function.device.upper()}"
    alias = f"pci:v0000{function.vendor.upper()}d0000{function.device.upper()}sv00000000sd00000000"
    alias += f"bc{function.kind >> 16:02X}sc{function.kind >> 8 & 0xFF:02X}i{function.kind & 0xFF:02X}"
    values: dict[str, str | bytes] = {
        "vendor": f"0x{function.vendor}",
        "device": f"0x{function.device}",
        "subsystem_vendor": "0x0000",
        "subsystem_device": "0x0000",
        "class": f"0x{function.kind:06x}",
        "revision": "0x00",
        "numa_node": "-1" if function.numa is None else str(function.numa),
        "local_cpulist": cpu_list(cpus),
        "local_cpus": f"{cpu_mask(cpus):x}",
        "enable": "1",
        "irq": "0",
        "modalias": alias,
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
        "uevent": f"DRIVER={function.driver}\nPCI_CLASS={function.kind:X}\nPCI_ID={ids}\nPCI_SUBSYS_ID=0000:0000\n"
        f"PCI_SLOT_NAME={function.pci}\nMODALIAS={alias}",
        "config": _header(function),
    }
    for name, value in values.items():
        yield f"{function.place}/{name}", value if isinstance(value, bytes) else f"{value}\n"
    driver = f"bus/pci/drivers/{function.driver}"
    yield f"{function.place}/subsystem", _to(f"{function.place}/subsystem", "bus/pci")
    yield f"{function.place}/driver", _to(f"{function.place}/driver", driver)
    for path in (f"bus/pci/devices/{function.pci}", f"{driver}/{function.pci}"):
        yield path, _to(path, function.place)


def _header(function: Function) -> bytes:
    """Returns the first 64 bytes of the configuration space, which is enough for lspci."""
    bridge = function.kind >> 16 == 0x06
    head = pack("<HHHH", int(function.vendor, 16), int(function.device, 16), 0x0006, 0)
    head += pack("<BBBB", 0, function.kind & 0xFF, function.kind >> 8 & 0xFF, function.kind >> 16)
    return (head + pack("<BBBB", 0, 0, int(bridge), 0)).ljust(64, b"\0")


def _sriov(card: Function, virtual: list[Function]) -> EntryIterator:
    if not virtual:
        return
    _, _, first = parts(virtual[0].pci)
    _, _, own = parts(card.pci)
    values = {
        "sriov_totalvfs": len(virtual),
        "sriov_numvfs": len(virtual),
        "sriov_drivers_autoprobe": 1,
        "sriov_offset": first - own,
        "sriov_stride": 1,
        "sriov_vf_device": virtual[0].device,
    }
    for name, value in values.items():
        yield f"{card.place}/{name}", f"{value}\n"
    for number, vf in enumerate(virtual):
        path = f"{card.place}/virtfn{number}"
        yield path, _to(path, vf.place)


# NUMA.


def share(nodes: int, cpus: int, node: int) -> range:
    """Returns the CPUs of one NUMA node."""
    return range(node * cpus // nodes, (node + 1) * cpus // nodes)


def cpu_list(cpus: range) -> str:
    if not cpus:
        return ""
    return str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]}-{cpus[-1]}"


def cpu_mask(cpus: range) -> int:
    return sum(1 << cpu for cpu in cpus)


def _numa(profile: Profile, machine: Machine) -> EntryIterator:
    below, nodes = "devices/system/node", range(profile.numa_nodes)
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        yield f"{below}/{name}", f"{cpu_list(nodes)}\n"
    for node in nodes:
        cpus, kilobytes = share(len(nodes), machine.cpus, node), machine.kilobytes // len(nodes)
        place = f"{below}/node{node}"
        yield f"{place}/cpulist", f"{cpu_list(cpus)}\n"
        yield f"{place}/cpumap", f"{cpu_mask(cpus):x}\n"
        yield f"{place}/distance", " ".join("10" if other == node else "21" for other in nodes) + "\n"
        yield f"{place}/meminfo", f"Node {node} MemTotal:       {kilobytes} kB\n"
        for cpu in cpus:
            yield f"{place}/cpu{cpu}", _to(f"{place}/cpu{cpu}", f"devices/system/cpu/cpu{cpu}")


# RDMA.


def _rdma(function: Function) -> EntryIterator:
    place = f"{function.place}/infiniband/{function.rdma}"
    guid = _guid(function.mac)
    speed = function.nic.speed if function.nic else 0
    values = {
        "node_type": "1: CA",
        "node_guid": guid,
        "sys_image_guid": guid,
        "node_desc": function.rdma,
        "fw_ver": "0.0.0",
        "hca_type": function.device,
        "ports/1/state": "4: ACTIVE",
        "ports/1/phys_state": "5: LinkUp",
        "ports/1/link_layer": "Ethernet",
        "ports/1/rate": _ROCE_RATES.get(speed, f"{speed // 1000} Gb/sec (4X EDR)"),
        "ports/1/lid": "0x0",
        "ports/1/gids/0": _gid(function.mac),
        "ports/1/gid_attrs/types/0": "RoCE v2",
        "ports/1/gid_attrs/ndevs/0": function.name,
    }
    for name, value in values.items():
        yield f"{place}/{name}", f"{value}\n"
    yield f"{place}/device", _to(f"{place}/device", function.place)
    yield f"{place}/subsystem", _to(f"{place}/subsystem", "class/infiniband")
    yield f"class/infiniband/{function.rdma}", _to(f"class/infiniband/{function.rdma}", place)


def _verbs(function: Function, name: str, number: int) -> EntryIterator:
    """The files that programs open: `/dev/infiniband/uverbs0`."""
    place = f"{function.place}/infiniband_verbs/{name}"
    yield f"{place}/ibdev", f"{function.rdma}\n"
    yield f"{place}/abi_version", "1\n"
    yield f"{place}/dev", f"{VERBS_MAJOR}:{VERBS_MINOR + number}\n"
    yield f"{place}/device", _to(f"{place}/device", function.place)
    yield f"class/infiniband_verbs/{name}", _to(f"class/infiniband_verbs/{name}", place)


def _guid(mac: str) -> str:
    first, *rest = mac.split(":")
    text = "".join([f"{int(first, 16) ^ 2:02x}", *rest[:2], "fffe", *rest[2:]])
    return ":".join(text[at : at + 4] for at in range(0, 16, 4))


def _gid(mac: str) -> str:
    return f"fe80:0000:0000:0000:{_guid(mac)}"


# Links.


def shown(function: Function, name: str, attributes: Iterable[str]) -> Entries:
    """Returns the directory of a card's link under its present name; `attributes` are the files that the kernel has for
    any link."""
    place = f"{function.place}/net/{name}"
    entries: Entries = {
        f"{place}/{attribute}": _to(f"{place}/{attribute}", f"{LIVE}/{name}/{attribute}") for attribute in attributes
    }
    entries[f"{place}/iflink"] = _to(f"{place}/iflink", f"{LIVE}/{name}/ifindex")  # hardware has no peer
    entries[f"{place}/device"] = _to(f"{place}/device", function.place)
    entries[f"{place}/subsystem"] = _to(f"{place}/subsystem", CLASS_NET)
    entries[f"{place}/speed"] = f"{function.nic.speed if function.nic else 0}\n"
    entries[f"{place}/duplex"] = "full\n"
    return entries


def class_entry(name: str, function: Function | None) -> str:
    """Returns the target of a link in class/net: its card, or where the kernel shows it."""
    return _to(f"{CLASS_NET}/{name}", f"{function.place}/net/{name}" if function else f"{LIVE}/{name}").target
