"""A device as a ResourceSlice has it: attributes, capacity, taints. Pure.

Attributes that the API would refuse are left out and reported: one of them must not cost a node its slice.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from podwire.dradriver.inventory.config import LEAST_BANDWIDTH, Shared
from podwire.dradriver.names import DRIVER
from podwire.linux.net.sysfs import Hardware, Rdma
from podwire.linux.values import Interface, Link
from podwire.objects.quantity import parse

LONGEST = 64
"""Bytes of a text."""
MOST = 32
"""Attributes and capacities of one device."""
PHYSICAL = "physical"
"""The kind of a link of hardware, for which the kernel has no word."""
NO_CARRIER, GONE = f"{DRIVER}/no-carrier", f"{DRIVER}/gone"
"""Taints."""

_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?/)?[A-Za-z_][A-Za-z0-9_]{0,31}", re.ASCII)
_MEGABIT = 1_000_000

Value = str | int | bool
Object = dict[str, Any]


class Programs(NamedTuple):
    """Of eBPF, that look at what passes a link."""

    xdp: bool = False
    tc: tuple[str, ...] = ()
    tcx: tuple[str, ...] = ()
    """By name."""


class Facts(NamedTuple):
    """All that is known of one link that is offered."""

    link: Link
    hardware: Hardware = Hardware()
    place: Hardware = Hardware()
    """The hardware that it is on, its own or that of the link which it was made on."""
    addresses: tuple[Interface, ...] = ()
    speed: int | None = None
    """Megabits per second."""
    rdma: Rdma = Rdma()
    programs: Programs = Programs()
    parent: Shared | None = None
    parent_mtu: int | None = None


def attributes(facts: Facts) -> dict[str, Value | None]:
    """By name; None for what is not known. Yes and no are always there, so that selectors need not ask for them."""
    link, hardware, place = facts.link, facts.hardware, facts.place
    return {
        "interface": link.name,
        "kind": link.kind or PHYSICAL,
        "mac": link.mac or None,
        "mtu": link.mtu,
        "speed": facts.speed,
        "carrier": carries(link),
        "ipv4": joined(_known([address for address in facts.addresses if address.version == 4])),
        "ipv6": joined(_known([address for address in facts.addresses if address.version == 6])),
        "driver": hardware.driver or None,
        "pciAddress": hardware.pci or None,
        "pciVendor": hardware.vendor or None,
        "pciDevice": hardware.device or None,
        "numaNode": place.numa,
        "sriov": hardware.total_vfs > 0,
        "sriovVfs": hardware.vfs if hardware.total_vfs else None,
        "isSriovVf": bool(hardware.parent),
        "sriovPf": hardware.parent or None,
        "rdma": bool(facts.rdma.name),
        "rdmaDevice": facts.rdma.name or None,
        "ebpf": any(facts.programs),
        "tcPrograms": joined(sorted(set(facts.programs.tc))),
        "tcxPrograms": joined(sorted(set(facts.programs.tcx))),
        "alias": link.alias or None,
        "virtual": not hardware.driver and not hardware.pci,
        "shared": facts.parent is not None,
        "resource.kubernetes.io/pcieRoot": place.root or None,
        "resource.kubernetes.io/numaNode": place.numa,
    }


def carries(link: Link) -> bool:
    return link.up and link.state in ("up", "unknown", "dormant")


def joined(words: Iterable[object]) -> str | None:
    """Joins as many words as fit; none is truncated."""
    text = ""
    for word in words:
        longer = f"{text},{word}" if text else str(word)
        if len(longer.encode()) > LONGEST:
            break
        text = longer
    return text or None


def _known(addresses: Iterable[Interface]) -> list[Interface]:
    """Those that other machines can reach, in order."""
    reachable = set()
    for address in addresses:
        ip = address.ip
        if not (ip.is_link_local or ip.is_loopback or ip.is_multicast or ip.is_unspecified):
            reachable.add(address)
    return sorted(reachable)


def published(values: Mapping[str, Value | None]) -> tuple[dict[str, Object], dict[str, str]]:
    """Attributes as the API has them; and those that it would not take, with the reason."""
    good: dict[str, Object] = {}
    bad: dict[str, str] = {}
    for name, value in values.items():
        if value is None:
            continue
        if why := trouble(name, value):
            bad[name] = why
        elif len(good) >= MOST - 2:  # there may be two capacities
            bad[name] = f"a device has no more than {MOST} attributes and capacities"
        else:
            good[name] = {_TYPES[type(value)]: value}
    return good, bad


_TYPES = {bool: "bool", int: "int", str: "string"}


def trouble(name: str, value: object) -> str:
    """Why the API would not take an attribute; empty when it would."""
    if not _NAME.fullmatch(name):
        return "is not a valid attribute name"
    if type(value) not in _TYPES:
        return f"{value!r} is not a string, integer or boolean"
    if isinstance(value, int):
        return "" if -(2**63) <= value < 2**63 else f"{value} is too large"
    text = str(value)
    if "\ufffd" in text or any(0xD800 <= ord(character) < 0xE000 for character in text):
        return "is not valid UTF-8"
    if not text.isprintable():
        return f"{text!r} has characters that cannot be shown"
    size = len(text.encode())
    return f"{text!r} has {size} bytes, more than {LONGEST}" if size > LONGEST else ""


def capacity(facts: Facts) -> dict[str, Object]:
    """How much of a device there is: the link's speed, and of one that is shared the places."""
    given = facts.parent.bandwidth if facts.parent else None
    bits = given if given is not None else (facts.speed or 0) * _MEGABIT
    if facts.parent is None:
        return {"bandwidth": {"value": _quantity(bits)}} if bits else {}
    slots: Object = {
        "value": str(facts.parent.slots),
        "requestPolicy": {"default": "1", "validValues": ["1"]},
    }
    if bits < LEAST_BANDWIDTH:
        return {"slots": slots}
    unit = _quantity(LEAST_BANDWIDTH)
    even = max(bits // facts.parent.slots // LEAST_BANDWIDTH, 1) * LEAST_BANDWIDTH
    steps = {"step": unit} if bits >= 2 * LEAST_BANDWIDTH else {}  # the API needs space for one step
    policy = {"default": _quantity(even), "validRange": {"min": unit, **steps}}
    return {"bandwidth": {"value": _quantity(bits), "requestPolicy": policy}, "slots": slots}


def _quantity(number: int) -> str:
    return parse(str(number)).canonical()


def entry(name: str, facts: Facts, values: Mapping[str, Object]) -> Object:
    """A device of a slice, without taints; `values` are what `published` made."""
    shared = {"allowMultipleAllocations": True} if facts.parent is not None else {}
    amount = capacity(facts)
    return {"name": name, "attributes": dict(values), **({"capacity": amount} if amount else {}), **shared}


def tainted(device: Object, key: str, effect: str, since: float) -> Object:
    """The same device, with a taint that began at a time of the wall clock."""
    added = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**device, "taints": [{"key": key, "effect": effect, "timeAdded": added}]}


def split(devices: Sequence[Object]) -> list[list[Object]]:
    """In as many slices as are needed; at least one, so that everybody sees that there is nothing."""
    most = MOST_TAINTED if any(device.get("taints") for device in devices) else MOST_DEVICES
    return [list(devices[at : at + most]) for at in range(0, len(devices), most)] or [[]]


MOST_DEVICES, MOST_TAINTED = 128, 64
"""Of one slice; the second when any of them has taints."""
