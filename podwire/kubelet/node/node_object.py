"""The Node object: as it is registered, and what has to be changed of the one that the API has. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podwire.kubelet.node import conditions
from podwire.kubelet.node.capacity import allocatable, capacity
from podwire.kubelet.node.conditions import Readiness
from podwire.kubelet.node.settings import NodeSettings
from podwire.linux.machine import Facts, FreeResources
from podwire.objects.nodes import ContainerImage
from podwire.objects.quantity import NANO, Quantity
from podwire.protocols.k8sapi.watch import Object

VERSION = "v1.36.0+podwire"
MOST_IMAGES, MOST_NAMES = 50, 5
NOT_READY: Object = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    """What the agent knows of its node at one moment."""

    facts: Facts
    left: FreeResources
    addresses: tuple[str, ...]
    runtime: Readiness
    runtime_version: str = ""
    images: tuple[ContainerImage, ...] = ()
    devices: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    """By resource that plugins bring: how many there are, and how many pods may have; None for one that is gone."""


def labels(seen: NodeSnapshot, settings: NodeSettings) -> dict[str, str]:
    os_and_arch = {"os": "linux", "arch": seen.facts.architecture}
    return {
        **{f"beta.kubernetes.io/{key}": value for key, value in os_and_arch.items()},
        **{f"kubernetes.io/{key}": value for key, value in os_and_arch.items()},
        "kubernetes.io/hostname": settings.name,
        **settings.labels,
    }


def status(seen: NodeSnapshot, settings: NodeSettings) -> Object:
    """All that this node says of itself, its conditions without times."""
    has = capacity(seen.facts, seen.left, settings)
    pressed = conditions.pressures(seen.left, settings.thresholds)
    return {
        "addresses": [
            *({"type": "InternalIP", "address": each} for each in seen.addresses),
            {"type": "Hostname", "address": settings.name},
        ],
        "capacity": {**has, **{name: _count(each, 0) for name, each in seen.devices.items()}},
        "allocatable": {**allocatable(has, settings), **{name: _count(each, 1) for name, each in seen.devices.items()}},
        "conditions": conditions.conditions(seen.runtime, pressed),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.port}},
        "nodeInfo": _info(seen),
        "images": _images(seen.images),
    }


def _count(amounts: tuple[int, int] | None, which: int) -> str | None:
    return None if amounts is None else Quantity(amounts[which] * NANO).canonical()


def _info(seen: NodeSnapshot) -> Object:
    facts = seen.facts
    swap: Object = {"swap": {"capacity": facts.swap}} if facts.swap else {}
    return {
        "machineID": facts.machine_id,
        "systemUUID": facts.system_uuid,
        "bootID": facts.boot_id,
        "kernelVersion": facts.kernel,
        "osImage": facts.os_image,
        "containerRuntimeVersion": seen.runtime_version,
        "kubeletVersion": VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": facts.architecture,
        **swap,
    }


def _images(images: Sequence[ContainerImage]) -> list[Object]:
    """The largest, since they are worth the most to a scheduler that prefers nodes which have them."""
    largest = sorted(images, key=lambda each: (-each.size_bytes, each.names))[:MOST_IMAGES]
    return [{"names": list(each.names[:MOST_NAMES]), "sizeBytes": each.size_bytes} for each in largest]


def node(seen: NodeSnapshot, settings: NodeSettings, now: str) -> Object:
    """As it is registered: whole, so that one request is enough."""
    taints = [_taint(each.key, each.value, each.effect) for each in settings.taints]
    if not seen.runtime.ready:
        taints.append(NOT_READY)
    said = status(seen, settings)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": settings.name, "labels": labels(seen, settings)},
        "spec": {**_networks(settings), **({"taints": taints} if taints else {})},
        "status": {
            **said,
            "capacity": _there(said["capacity"]),
            "allocatable": _there(said["allocatable"]),
            "conditions": conditions.dated(said["conditions"], (), now),
        },
    }


def _there(amounts: Object) -> Object:
    return {name: each for name, each in amounts.items() if each is not None}


def _taint(key: str, value: str, effect: str) -> Object:
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


def _networks(settings: NodeSettings) -> Object:
    cidrs = list(settings.pod_cidrs)
    return {"podCIDR": cidrs[0], "podCIDRs": cidrs} if cidrs else {}


def reconciled(found: Object, seen: NodeSnapshot, settings: NodeSettings) -> Object | None:
    """The merge patch that makes a node which is there already this one's; None if it is.

    Labels that others gave stay, and so do taints. A network is given once: it stays when there is one.
    """
    told = found["metadata"].get("labels") or {}
    missing = {key: value for key, value in labels(seen, settings).items() if told.get(key) != value}
    networks = {} if (found.get("spec") or {}).get("podCIDR") else _networks(settings)
    patch: Object = {
        **({"metadata": {"labels": missing}} if missing else {}),
        **({"spec": networks} if networks else {}),
    }
    return patch or None


def report(found: Object, said: Object, now: str) -> Object:
    """The strategic merge patch that brings a node's status up to date. Conditions and resources of others stay.

    What is None in it, the API removes.
    """
    before = found.get("status") or {}
    return {
        "metadata": {"uid": found["metadata"]["uid"]},
        "status": {
            **said,
            # Merging by type would make one of two addresses of a type.
            "addresses": [*said["addresses"], {"$patch": "replace"}],
            "allocatable": _allocatable(before, said),
            "conditions": conditions.dated(said["conditions"], before.get("conditions") or (), now),
        },
    }


def _allocatable(before: Object, said: Object) -> Object:
    """With all of what others advertise on this node: nothing here reserves any of it."""
    given = {name: amount for name, amount in (before.get("capacity") or {}).items() if name not in said["capacity"]}
    return {**given, **said["allocatable"]}


def differs(found: Object, said: Object) -> bool:
    """Whether the API's status says anything else than this, times aside."""
    before = found.get("status") or {}
    known = {each.get("type"): each for each in before.get("conditions") or ()}
    return (
        any(not _includes(known.get(each["type"]) or {}, each) for each in said["conditions"])
        or any(not _includes(before.get(each) or {}, said[each]) for each in ("capacity", "nodeInfo"))
        or not _includes(before.get("allocatable") or {}, _allocatable(before, said))
        or any((before.get(each) or []) != said[each] for each in ("addresses", "images"))
        or (before.get("daemonEndpoints") or {}) != said["daemonEndpoints"]
    )


def _includes(found: Object, said: Object) -> bool:
    """The API leaves out what is empty."""
    return all(found.get(key, None if value is None else "") == value for key, value in said.items())
