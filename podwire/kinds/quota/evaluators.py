"""The usage of objects: how much of each resource that a quota can limit. Pure.

Every kind is counted; pods, services, volume claims and device claims also use resources of their own.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from podwire.kinds.podspec.resource_rules import is_extended
from podwire.kinds.podspec.resource_totals import ZERO, Amounts, amounts, is_pod_level, used_limits, used_requests
from podwire.kinds.quota.scopes import Requirement, is_terminating, pod_matches, volume_claim_matches
from podwire.objects import quantity
from podwire.objects.quantity import NANO, Quantity
from podwire.objects.times import parse

Object = Mapping[str, Any]
ONE = Quantity(NANO)

STORAGE_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
DEVICE_CLASS_SUFFIX = ".deviceclass.resource.k8s.io/devices"
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
MOST_DEVICES = 32
"""Devices that count for a request for all of a class: as many as one claim can get."""

IGNORED = frozenset({("", "events"), ("events.k8s.io", "events"), ("", "bindings"), ("", "componentstatuses")})
"""Kinds that no quota counts."""
ALIASES: Mapping[tuple[str, str], str] = {
    ("", "configmaps"): "configmaps",
    ("", "resourcequotas"): "resourcequotas",
    ("", "replicationcontrollers"): "replicationcontrollers",
    ("", "secrets"): "secrets",
}
"""Kinds that could be counted before there was `count/…`."""


class Evaluator:
    """Counts objects of one kind."""

    def __init__(self, group: str, resource: str) -> None:
        self.count_name = f"count/{resource}.{group}" if group else f"count/{resource}"
        alias = ALIASES.get((group, resource))
        self.names = frozenset({self.count_name, *([alias] if alias else [])})

    updates: frozenset[str] = frozenset()
    """The subresources through which an update can change what an object uses; empty text for the object itself."""

    def handles(self, verb: str, subresource: str, obj: Object, old: Object | None) -> bool:
        """Returns whether a write may change what the object uses."""
        if verb == "UPDATE" and old is not None:
            return subresource in self.updates and self.concerned(subresource, obj, old)
        return verb == "CREATE" and not subresource

    def concerned(self, _subresource: str, _obj: Object, _old: Object, /) -> bool:
        """Returns whether this update may."""
        return True

    def matching(self, names: Iterable[str]) -> list[str]:
        """Returns the resources that objects of this kind can use."""
        return [name for name in names if name in self.names]

    def matches_scope(self, _requirement: Requirement, _obj: Object, /) -> bool:
        """Returns whether an object is in a scope; most kinds are in none, so no quota with scopes counts them."""
        return False

    def usage(self, _obj: Object, _now: float, /) -> Amounts:
        return dict.fromkeys(self.names, ONE)

    def unspecified(self, _names: Iterable[str], _obj: Object, /) -> str:
        """Returns what an object must specify because a quota limits it; empty if nothing is missing."""
        return ""


_HUGE_PAGES = ("hugepages-", "requests.hugepages-")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")


class PodEvaluator(Evaluator):
    """Counts requests and limits of pods that are not finished."""

    updates = frozenset({"", "resize"})

    def __init__(self) -> None:
        super().__init__("", "pods")
        prefixes = ("", "requests.", "limits.")
        self.names |= {"pods", *(f"{prefix}{name}" for prefix in prefixes for name in _COMPUTE)}

    def concerned(self, subresource: str, obj: Object, old: Object, /) -> bool:
        return subresource == "resize" or is_terminating(old) != is_terminating(obj)

    def matching(self, names: Iterable[str]) -> list[str]:
        return [
            name
            for name in names
            if name in self.names
            or name.startswith(("hugepages-", "requests.hugepages-"))
            or _is_extended_request(name)
        ]

    def matches_scope(self, requirement: Requirement, obj: Object, /) -> bool:
        return pod_matches(requirement, obj)

    def usage(self, obj: Object, now: float, /) -> Amounts:
        counted = {self.count_name: ONE}
        return (
            {**counted, "pods": ONE, **_computed(used_requests(obj), used_limits(obj))} if uses(obj, now) else counted
        )

    def unspecified(self, names: Iterable[str], obj: Object, /) -> str:
        spec = obj.get("spec") or {}
        whole = spec.get("resources") or {}
        if any(is_pod_level(name) for part in ("requests", "limits") for name in whole.get(part) or ()):
            return ""
        checked = {f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory")}
        required = sorted(checked.intersection(names))
        missing: dict[str, set[str]] = {}
        for part in ("containers", "initContainers"):
            for container in spec.get(part) or ():
                resources = container.get("resources") or {}
                given = _computed(amounts(resources.get("requests")), amounts(resources.get("limits")))
                for name in required:
                    if name not in given:
                        missing.setdefault(name, set()).add(container["name"])
        parts = [f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing)]
        return f"must specify {'; '.join(parts)}" if parts else ""


def _is_extended_request(name: str) -> bool:
    """Returns whether a quota names an extended resource, or the devices of a class that pods request as one."""
    if not name.startswith("requests."):
        return False
    resource = name.removeprefix("requests.")
    return resource.startswith(DEVICE_CLASS_PREFIX) or is_extended(resource)


def _computed(requests: Amounts, limits: Amounts) -> Amounts:
    used: Amounts = {}
    for name in _COMPUTE:
        if name in requests:
            used[name] = used[f"requests.{name}"] = requests[name]
        if name in limits:
            used[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith("hugepages-"):
            used[name] = used[f"requests.{name}"] = amount
        elif name.startswith(DEVICE_CLASS_PREFIX) or is_extended(name):
            used[f"requests.{name}"] = amount
    return used


def uses(pod: Object, now: float) -> bool:
    """Returns whether a pod still uses resources: it is not finished, and its grace period has not passed twice."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    metadata = pod["metadata"]
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return not (deleted and grace is not None and now > parse(deleted) + grace)


class ServiceEvaluator(Evaluator):
    """Counts node ports and load balancers."""

    def __init__(self) -> None:
        super().__init__("", "services")
        self.names |= {"services", "services.nodeports", "services.loadbalancers"}

    updates = frozenset({""})

    def usage(self, obj: Object, _now: float, /) -> Amounts:
        spec = obj.get("spec") or {}
        ports = spec.get("ports") or ()
        balanced, node_ports = spec.get("type") == "LoadBalancer", 0
        if spec.get("type") == "NodePort" or (balanced and spec.get("allocateLoadBalancerNodePorts", True)):
            node_ports = len(ports)
        elif balanced:
            node_ports = sum(1 for port in ports if port.get("nodePort"))
        return {
            self.count_name: ONE,
            "services": ONE,
            "services.loadbalancers": ONE if balanced else ZERO,
            "services.nodeports": Quantity(node_ports * NANO),
        }


class VolumeClaimEvaluator(Evaluator):
    """Counts claims and the storage that they request, in all and of each storage class."""

    def __init__(self) -> None:
        super().__init__("", "persistentvolumeclaims")
        self._own = ("persistentvolumeclaims", "requests.storage")
        self.names |= {*self._own}

    updates = frozenset({"", "status"})

    def matching(self, names: Iterable[str]) -> list[str]:
        suffixes = tuple(f"{STORAGE_CLASS_SUFFIX}{name}" for name in self._own)
        return [name for name in names if name in self.names or name.endswith(suffixes)]

    def matches_scope(self, requirement: Requirement, obj: Object, /) -> bool:
        return volume_claim_matches(requirement, obj)

    def usage(self, obj: Object, _now: float, /) -> Amounts:
        spec, annotations = obj.get("spec") or {}, obj["metadata"].get("annotations") or {}
        used = {self.count_name: ONE, "persistentvolumeclaims": ONE}
        requested = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
        if requested is not None:
            allocated = ((obj.get("status") or {}).get("allocatedResources") or {}).get("storage") or "0"
            used["requests.storage"] = max(quantity.parse(requested), quantity.parse(allocated))
        class_ = annotations.get("volume.beta.kubernetes.io/storage-class") or spec.get("storageClassName")
        if class_:
            used.update({f"{class_}{STORAGE_CLASS_SUFFIX}{name}": used[name] for name in self._own if name in used})
        return used


class DeviceClaimEvaluator(Evaluator):
    """Counts the devices of each class that a claim requests; alternatives count by the largest of each class."""

    def __init__(self) -> None:
        super().__init__("resource.k8s.io", "resourceclaims")

    updates = frozenset({""})

    def matching(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.names or name.endswith(DEVICE_CLASS_SUFFIX)]

    def usage(self, obj: Object, _now: float, /) -> Amounts:
        devices: dict[str, int] = {}
        for request in ((obj.get("spec") or {}).get("devices") or {}).get("requests") or ():
            most: dict[str, int] = {}
            for choice in request.get("firstAvailable") or [request.get("exactly") or {}]:
                class_ = choice.get("deviceClassName")
                if class_:
                    every = choice.get("allocationMode") == "All"
                    most[class_] = max(most.get(class_, 0), MOST_DEVICES if every else choice.get("count", 1))
            for class_, count in most.items():
                devices[class_] = devices.get(class_, 0) + count
        counted = {f"{class_}{DEVICE_CLASS_SUFFIX}": Quantity(count * NANO) for class_, count in devices.items()}
        return {self.count_name: ONE, **counted}


SPECIAL: Mapping[tuple[str, str], Callable[[], Evaluator]] = {
    ("", "pods"): PodEvaluator,
    ("", "services"): ServiceEvaluator,
    ("", "persistentvolumeclaims"): VolumeClaimEvaluator,
    ("resource.k8s.io", "resourceclaims"): DeviceClaimEvaluator,
}


@lru_cache(maxsize=4096)
def evaluator_of(group: str, resource: str) -> Evaluator | None:
    """Returns the evaluator of a kind; None for kinds that no quota counts."""
    if (group, resource) in IGNORED:
        return None
    special = SPECIAL.get((group, resource))
    return special() if special else Evaluator(group, resource)


def counted_kind(name: str) -> tuple[str, str] | None:
    """Returns group and resource of the kind that uses a resource; None if that does not follow from the name."""
    if name.startswith("count/"):
        resource, _, group = name.removeprefix("count/").partition(".")
        return group, resource
    for kind, alias in ALIASES.items():
        if name == alias:
            return kind
    for kind in SPECIAL:
        evaluator = evaluator_of(*kind)
        if evaluator is not None and evaluator.matching([name]):
            return kind
    return None
