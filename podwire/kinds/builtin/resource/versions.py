"""Conversion of the beta versions of resource.k8s.io, which are stored as v1.

v1beta2 has the fields of v1. v1beta1 differs in two places: the fields of `exactly` are in the request itself, and the
fields of a device are in its `basic`.
"""

from collections.abc import Callable, Mapping
from functools import partial

from podwire.kinds.strategy import Conversion, Object
from podwire.protocols.k8sapi.builtin import BUILTIN

GROUP = "resource.k8s.io"

Convert = Callable[[Object], Object]

_REQUESTED = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")
"""Fields of a v1beta1 request that v1 has in `exactly`."""


def conversions(kind: str) -> Mapping[str, Conversion]:
    """Returns the conversions of a kind by version."""
    stored = BUILTIN[f"{GROUP}/v1", kind]
    to_v1, from_v1 = _V1BETA1.get(kind, (_same, _same))
    return {
        "v1beta2": Conversion(
            stored, partial(_as_version, "v1"), partial(_as_version, "v1beta2"), validated_as_stored=True
        ),
        "v1beta1": Conversion(
            stored,
            partial(_converted, "v1", to_v1),
            partial(_converted, "v1beta1", from_v1),
            validated_as_stored=True,
        ),
    }


def _as_version(version: str, obj: Object) -> Object:
    return {**obj, "apiVersion": f"{GROUP}/{version}"}


def _converted(version: str, spec: Convert, obj: Object) -> Object:
    converted = _as_version(version, obj)
    if converted.get("spec"):
        converted["spec"] = spec(converted["spec"])
    return converted


def _same(spec: Object) -> Object:
    return spec


def _claim_spec(request: Convert, spec: Object) -> Object:
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return spec
    return {**spec, "devices": {**devices, "requests": [request(requested) for requested in devices["requests"]]}}


def _template_spec(request: Convert, spec: Object) -> Object:
    return {**spec, "spec": _claim_spec(request, spec["spec"])} if spec.get("spec") else spec


def _slice_spec(device: Convert, spec: Object) -> Object:
    return {**spec, "devices": [device(published) for published in spec["devices"]]} if spec.get("devices") else spec


def _request_to_v1(request: Object) -> Object:
    """Returns a v1 request; one without alternatives has an `exactly`, if only with defaults."""
    exactly = {key: request[key] for key in _REQUESTED if key in request}
    rest = {key: value for key, value in request.items() if key not in _REQUESTED}
    return {**rest, "exactly": exactly} if exactly or not request.get("firstAvailable") else rest


def _request_from_v1(request: Object) -> Object:
    rest = {key: value for key, value in request.items() if key != "exactly"}
    return {**rest, **(request.get("exactly") or {})}


def _device_to_v1(device: Object) -> Object:
    rest = {key: value for key, value in device.items() if key != "basic"}
    return {**rest, **(device.get("basic") or {})}


def _device_from_v1(device: Object) -> Object:
    basic = {key: value for key, value in device.items() if key != "name"}
    return {"name": device.get("name", ""), "basic": basic}


_V1BETA1: dict[str, tuple[Convert, Convert]] = {
    "ResourceClaim": (partial(_claim_spec, _request_to_v1), partial(_claim_spec, _request_from_v1)),
    "ResourceClaimTemplate": (partial(_template_spec, _request_to_v1), partial(_template_spec, _request_from_v1)),
    "ResourceSlice": (partial(_slice_spec, _device_to_v1), partial(_slice_spec, _device_from_v1)),
}
"""Conversions of the spec, to v1 and back, by kind."""
