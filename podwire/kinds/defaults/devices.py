"""Defaults of resource.k8s.io: claims, their templates, slices, taint rules."""

from collections.abc import Callable
from typing import Any

from podwire.objects import times

GROUP = "resource.k8s.io"


def _claim(obj: dict[str, Any]) -> None:
    _claim_spec(obj["spec"])
    allocation = obj["status"].get("allocation")
    if allocation is not None:
        for result in allocation.setdefault("devices", {}).get("results") or ():
            _tolerations(result)


def _claim_template(obj: dict[str, Any]) -> None:
    _claim_spec(obj["spec"]["spec"])


def _claim_spec(spec: dict[str, Any]) -> None:
    for request in spec["devices"].get("requests") or ():
        if (exactly := request.get("exactly")) is not None:
            _request(exactly)
        for each in request.get("firstAvailable") or ():
            _request(each)


def _request(request: dict[str, Any]) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    _tolerations(request)


def _tolerations(part: dict[str, Any]) -> None:
    for toleration in part.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def _date_slice(obj: dict[str, Any], now: Callable[[], float]) -> None:
    for device in obj["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            _date(taint, now)


def _date_rule(obj: dict[str, Any], now: Callable[[], float]) -> None:
    _date(obj["spec"]["taint"], now)


def _date(taint: dict[str, Any], now: Callable[[], float]) -> None:
    """A taint without a time was added now."""
    if not taint.get("timeAdded"):
        taint["timeAdded"] = times.rfc3339(now())


DEFAULTS = {
    (GROUP, "ResourceClaim"): _claim,
    (GROUP, "ResourceClaimTemplate"): _claim_template,
}

DATED = {
    (GROUP, "DeviceTaintRule"): _date_rule,
    (GROUP, "ResourceSlice"): _date_slice,
}
"""Kinds whose taints carry the time of their coming."""
