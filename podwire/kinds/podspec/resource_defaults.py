"""Resource lists: amounts rounded to thousandths, requests that follow limits, what a pod's containers sum up to."""

from collections.abc import Mapping
from typing import Any

from podwire.objects import quantity
from podwire.objects.quantity import Quantity

MILLI = 10**6


def round_up(resources: dict[str, Any] | None) -> None:
    """Amounts finer than a thousandth are rounded up, as they always were."""
    if not resources:
        return
    for name, amount in resources.items():
        # Of canonical forms only these can be finer; all others cost two looks.
        if amount[-1] in "nu" or "e-" in amount:
            parsed = quantity.parse(amount)
            if parsed.nano % MILLI:
                resources[name] = Quantity(parsed.milli() * MILLI, parsed.format).canonical()


def round_up_requirements(requirements: dict[str, Any] | None) -> None:
    if requirements:
        round_up(requirements.get("limits"))
        round_up(requirements.get("requests"))


def request_limits(container: dict[str, Any]) -> None:
    """A resource that is limited but not requested is requested up to its limit."""
    resources = container.get("resources")
    limits = resources.get("limits") if resources else None
    if not resources or not limits:
        return
    requests = resources.get("requests")
    if requests is None:
        requests = resources["requests"] = {}
    for name, amount in limits.items():
        requests.setdefault(name, amount)


def default_pod_level(spec: dict[str, Any]) -> None:
    """Completes pod-level limits and requests from the containers, where the pod sets some of them."""
    resources = spec.get("resources")
    if not resources or not (resources.get("limits") or resources.get("requests")):
        return
    limits = dict(resources.get("limits") or {})
    requests = dict(resources.get("requests") or {})
    for name, amount in _aggregated(spec, "limits").items():
        if name.startswith("hugepages-") and name not in requests:
            limits.setdefault(name, amount.canonical())
    if limits:
        resources["limits"] = limits
        _request_at_pod_level(spec, requests, limits)
    if requests:
        resources["requests"] = requests


def _request_at_pod_level(spec: dict[str, Any], requests: dict[str, str], limits: Mapping[str, str]) -> None:
    for name, amount in _aggregated(spec, "requests").items():
        if name in ("cpu", "memory"):
            requests.setdefault(name, amount.canonical())
    for name, text in limits.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            requests.setdefault(name, text)


def _aggregated(spec: Mapping[str, Any], which: str) -> dict[str, Quantity]:
    """Returns the most that the containers need at one time: all that run together, or an init container with its
    sidecars."""
    running: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(running, _amounts(container, which))
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        needed = _amounts(container, which)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, needed)
            needed = {}
        now = dict(sidecars)
        _add(now, needed)
        _raise(peak, now)
    _add(running, sidecars)
    _raise(running, peak)
    return running


def _amounts(container: Mapping[str, Any], which: str) -> dict[str, Quantity]:
    resources = container.get("resources") or {}
    return {name: quantity.parse(amount) for name, amount in (resources.get(which) or {}).items()}


def _add(total: dict[str, Quantity], more: Mapping[str, Quantity]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(highest: dict[str, Quantity], other: Mapping[str, Quantity]) -> None:
    for name, amount in other.items():
        if name not in highest or highest[name] < amount:
            highest[name] = amount
