"""Capacity of the node, and what of it is allocatable to pods. Pure."""

from collections.abc import Mapping

from podwire.kubelet.eviction.thresholds import reserved
from podwire.kubelet.node.settings import NodeSettings
from podwire.linux.machine import Facts, FreeResources
from podwire.objects.quantity import NANO, Format, Quantity, parse

CPU, MEMORY, PODS, STORAGE = "cpu", "memory", "pods", "ephemeral-storage"


def capacity(facts: Facts, left: FreeResources, settings: NodeSettings) -> dict[str, str]:
    return {
        CPU: str(facts.cpus),
        STORAGE: binary(left.disk_size),
        **{f"hugepages-{size}": binary(amount) for size, amount in facts.hugepages},
        MEMORY: binary(facts.memory),
        PODS: str(settings.max_pods),
    }


def allocatable(has: Mapping[str, str], settings: NodeSettings) -> dict[str, str]:
    """Capacity minus reservations, huge pages and eviction thresholds."""
    kept = {name: parse(str(amount)) for name, amount in settings.reserved.items()}
    huge = sum(parse(amount).value() for name, amount in has.items() if name.startswith("hugepages-"))
    sizes = {name: parse(has[name]).value() if name in has else 0 for name in (MEMORY, STORAGE)}
    more = {
        MEMORY: huge + reserved(settings.thresholds, "memory.available", sizes[MEMORY]),
        STORAGE: reserved(settings.thresholds, "nodefs.available", sizes[STORAGE]),
    }
    return {name: _less(amount, kept.get(name), more.get(name, 0)) for name, amount in has.items()}


def _less(amount: str, kept: Quantity | None, more: int) -> str:
    if kept is None and not more:
        return amount
    have = parse(amount)
    nano = have.nano - (kept.nano if kept else 0) - more * NANO
    return Quantity(max(0, nano), have.format).canonical()


def binary(amount: int) -> str:
    """In the API's canonical form, so that the status that was sent and the stored one can be compared."""
    return Quantity(amount * NANO, Format.BINARY_SI).canonical()
