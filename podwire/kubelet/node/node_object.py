"""The Node object: as it is registered, and the patches of the one that the API has. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podwire.kubelet.eviction.thresholds import met, observations, pressed_conditions
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
    """The state of the node at one moment."""

    facts: Facts
    left: FreeResources
    addresses: tuple[str, ...]
    runtime: Readiness
    runtime_version: str = ""
    images: tuple[ContainerImage, ...] = ()
    devices: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    """By resource of device plugins: capacity and allocatable; None for one that is gone."""
    pressures: frozenset[str] | None = None
    """Conditions of pressure as the eviction manager sees them; None before its first look."""


def labels(seen: NodeSnapshot, settings: NodeSettings) -> dict[str, str]:
    os_and_arch = {"os": "linux", "arch": seen.facts.architecture}
    return {
        **{f"beta.kubernetes.io/{key}": value for key, value in os_and_arch.items()},
        **{f"kubernetes.io/{key}": value for key, value in os_and_arch.items()},
        "kubernetes.io/hostname": settings.name,
        **settings.labels,
    }


def status(seen: NodeSnapshot, settings: NodeSettings) -> Object:
    """The status of this node, its conditions without times."""
    has = capacity(seen.facts, seen.left, settings)
    pressed = seen.pressures
    if pressed is None:
        observed = observations(seen.facts.memory, seen.left)
        pressed = pressed_conditions(met(settings.thresholds, observed))
    return {
        "addresses": [
            *({"type": "InternalIP", "address": address} for address in seen.addresses),
            {"type": "Hostname", "address": settings.name},
        ],
        "capacity": {**has, **{name: _count(amounts, 0) for name, amounts in seen.devices.items()}},
        "allocatable": {
            **allocatable(has, settings),
            **{name: _count(amounts, 1) for name, amounts in seen.devices.items()},
        },
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
    """The largest images: they matter most to the scheduler's image locality score."""
    largest = sorted(images, key=lambda image: (-image.size_bytes, image.names))[:MOST_IMAGES]
    return [{"names": list(image.names[:MOST_NAMES]), "sizeBytes": image.size_bytes} for image in largest]


def node(seen: NodeSnapshot, settings: NodeSettings, now: str) -> Object:
    """The Node as it is registered, with its status, so that one request is enough."""
    taints = [
        {"key": taint.key, **({"value": taint.value} if taint.value else {}), "effect": taint.effect}
        for taint in settings.taints
    ]
    if not seen.runtime.ready:
        taints.append(NOT_READY)
    current = status(seen, settings)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": settings.name, "labels": labels(seen, settings)},
        "spec": {**_networks(settings), **({"taints": taints} if taints else {})},
        "status": {
            **current,
            "capacity": _existing(current["capacity"]),
            "allocatable": _existing(current["allocatable"]),
            "conditions": conditions.dated(current["conditions"], (), now),
        },
    }


def _existing(amounts: Object) -> Object:
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _networks(settings: NodeSettings) -> Object:
    cidrs = list(settings.pod_cidrs)
    return {"podCIDR": cidrs[0], "podCIDRs": cidrs} if cidrs else {}


def reconciled(stored: Object, seen: NodeSnapshot, settings: NodeSettings) -> Object | None:
    """The merge patch by which this kubelet takes over an existing Node; None if nothing differs.

    Labels and taints that others set stay. A pod CIDR is set once: an existing one stays.
    """
    existing = stored["metadata"].get("labels") or {}
    missing = {key: value for key, value in labels(seen, settings).items() if existing.get(key) != value}
    networks = {} if (stored.get("spec") or {}).get("podCIDR") else _networks(settings)
    patch: Object = {
        **({"metadata": {"labels": missing}} if missing else {}),
        **({"spec": networks} if networks else {}),
    }
    return patch or None


def report(stored: Object, current: Object, now: str) -> Object:
    """The strategic merge patch to the current status. Conditions and resources of others stay; null removes one."""
    before = stored.get("status") or {}
    return {
        "metadata": {"uid": stored["metadata"]["uid"]},
        "status": {
            **current,
            # A merge by type would keep only one of two addresses of the same type.
            "addresses": [*current["addresses"], {"$patch": "replace"}],
            "allocatable": _allocatable(before, current),
            "conditions": conditions.dated(current["conditions"], before.get("conditions") or (), now),
        },
    }


def _allocatable(before: Object, current: Object) -> Object:
    """Includes the whole capacity that others advertise on this node: nothing of it is reserved."""
    capacity_ = before.get("capacity") or {}
    others = {name: amount for name, amount in capacity_.items() if name not in current["capacity"]}
    return {**others, **current["allocatable"]}


def differs(stored: Object, current: Object) -> bool:
    """Whether the API's status differs from the current one, apart from times."""
    before = stored.get("status") or {}
    known = {condition.get("type"): condition for condition in before.get("conditions") or ()}
    return (
        any(not _includes(known.get(new["type"]) or {}, new) for new in current["conditions"])
        or any(not _includes(before.get(field_) or {}, current[field_]) for field_ in ("capacity", "nodeInfo"))
        or not _includes(before.get("allocatable") or {}, _allocatable(before, current))
        or any((before.get(field_) or []) != current[field_] for field_ in ("addresses", "images"))
        or (before.get("daemonEndpoints") or {}) != current["daemonEndpoints"]
    )


def _includes(stored: Object, current: Object) -> bool:
    """Whether the stored object has all these values; the API omits empty ones."""
    return all(stored.get(key, None if value is None else "") == value for key, value in current.items())
