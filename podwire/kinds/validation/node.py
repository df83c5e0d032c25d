"""Nodes: what may be created, changed, and reported in the status."""

import re
from collections.abc import Sequence

from podwire.kinds.validation.pod_resources import amount
from podwire.kinds.validation.pod_scheduling import taints
from podwire.kinds.validation.pod_values import Errors, Object, named, one_per_family, positive
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid

_EMPTY: Object = {}
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*")
_LONGEST_FEATURE = 253
_NO_CONFIG_SOURCE = "kubelets do not take their configuration from the API any more"


def create(obj: Object) -> list[FieldError]:
    """A node is created by its kubelet, so it may come with a status."""
    errors: Errors = []
    spec, status = obj.get("spec") or _EMPTY, obj.get("status") or _EMPTY
    taints(spec.get("taints") or (), "metadata.taints", errors)
    _status(status, errors)
    if (swap := ((status.get("nodeInfo") or _EMPTY).get("swap") or _EMPTY).get("capacity")) is not None:
        positive(swap, "metadata.nodeSwapStatus.capacity", errors)
    _pod_cidrs(spec.get("podCIDRs") or (), errors)
    _no_config_source(spec, status, errors)
    return errors


def update(new: Object, old: Object) -> list[FieldError]:
    """A change of labels, taints, schedulability, or of what a node is given once: networks and provider id."""
    errors = create(new)
    _changes(new, old, errors)
    return errors


def update_status(new: Object, old: Object) -> list[FieldError]:
    """A report of the kubelet; the spec is the old one by now, and is checked for that."""
    errors: Errors = []
    spec, status = new.get("spec") or _EMPTY, new.get("status") or _EMPTY
    _status(status, errors)
    taints(spec.get("taints") or (), "metadata.taints", errors)
    _no_config_source(spec, status, errors)
    _changes(new, old, errors)
    return errors


def _changes(new: Object, old: Object, errors: Errors) -> None:
    spec, before = new.get("spec") or _EMPTY, old.get("spec") or _EMPTY
    _addresses((new.get("status") or _EMPTY).get("addresses") or (), errors)
    networks = before.get("podCIDRs") or []
    if networks and networks != (spec.get("podCIDRs") or []):
        detail = 'node updates may not change podCIDR except from "" to valid'
        errors.append(forbidden("spec.podCIDRs", detail))
    if before.get("providerID") and before["providerID"] != spec.get("providerID", ""):
        detail = 'node updates may not change providerID except from "" to valid'
        errors.append(forbidden("spec.providerID", detail))
    if before.get("externalID", "") != spec.get("externalID", ""):
        errors.append(forbidden("spec.externalID", "may not be updated"))


def _status(status: Object, errors: Errors) -> None:
    for kind in ("capacity", "allocatable"):
        for name, text in (status.get(kind) or _EMPTY).items():
            amount(name, text, f"status.{kind}.{name}", errors)
    _features(status.get("declaredFeatures") or (), "status.declaredFeatures", errors)


def _features(features: Sequence[str], path: str, errors: Errors) -> None:
    """Features that a node declares, each once and in order, so that lists of nodes compare cheaply."""
    for index, feature in enumerate(features):
        if len(feature) > _LONGEST_FEATURE:
            detail = f'invalid feature name "{feature}": must be no more than {_LONGEST_FEATURE} characters'
            errors.append(invalid(f"{path}[{index}]", feature, detail))
        elif not _FEATURE.fullmatch(feature):
            detail = (
                f'invalid feature name "{feature}": must start with an UpperCamelCase segment, with subsequent '
                "segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric "
                "characters and slashes"
            )
            errors.append(invalid(f"{path}[{index}]", feature, detail))
        if index and feature == features[index - 1]:
            errors.append(duplicate(f"{path}[{index}]", feature))
        elif index and feature < features[index - 1]:
            errors.append(invalid(f"{path}[{index}]", feature, "list must be sorted alphabetically"))


def _addresses(addresses: Sequence[Object], errors: Errors) -> None:
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(addresses):
        key = (address.get("type", ""), address.get("address", ""))
        if key in seen:
            errors.append(duplicate(f"status.addresses[{index}]", address))
        seen.add(key)


def _pod_cidrs(networks: Sequence[str], errors: Errors) -> None:
    for index, network in enumerate(networks):
        named(names.cidr, network, f"spec.podCIDRs[{index}]", errors)
    if len(networks) > 1 and not one_per_family(networks):
        detail = "may specify no more than one CIDR for each IP family"
        errors.append(invalid("spec.podCIDRs", networks, detail))


def _no_config_source(spec: Object, status: Object, errors: Errors) -> None:
    if "configSource" in spec:
        errors.append(forbidden("spec.configSource", _NO_CONFIG_SOURCE))
    if "config" in status:
        errors.append(forbidden("status.config", _NO_CONFIG_SOURCE))
