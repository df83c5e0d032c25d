"""Node."""

import re
from collections.abc import Sequence
from typing import Any

from podwire.kinds.field_checks import Errors, Object, named, one_per_family, positive
from podwire.kinds.podspec.resource_defaults import round_up
from podwire.kinds.podspec.resource_rules import amount
from podwire.kinds.podspec.scheduling_rules import taints
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import NONE, UNKNOWN, Json, age_of, condition, elements, name_of, part, text
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid

_EMPTY: Object = {}
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*")
_LONGEST_FEATURE = 253
_NO_CONFIG_SOURCE = "kubelets do not take their configuration from the API any more"

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_NODE_INFO = (
    "architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion kubeletVersion "
    "machineID operatingSystem osImage systemUUID"
)


def validate_create(obj: Object) -> list[FieldError]:
    """Checks a new node; its kubelet creates it and may set its status."""
    errors: Errors = []
    spec, status = obj.get("spec") or _EMPTY, obj.get("status") or _EMPTY
    taints(spec.get("taints") or (), "metadata.taints", errors)
    _validate_status(status, errors)
    if (swap := ((status.get("nodeInfo") or _EMPTY).get("swap") or _EMPTY).get("capacity")) is not None:
        positive(swap, "metadata.nodeSwapStatus.capacity", errors)
    networks = spec.get("podCIDRs") or ()
    for index, network in enumerate(networks):
        named(names.cidr, network, f"spec.podCIDRs[{index}]", errors)
    if len(networks) > 1 and not one_per_family(networks):
        detail = "may specify no more than one CIDR for each IP family"
        errors.append(invalid("spec.podCIDRs", networks, detail))
    _no_config_source(spec, status, errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    """Checks a change of labels, taints, schedulability; networks and provider id can be set once."""
    errors = validate_create(new)
    _changes(new, old, errors)
    return errors


def validate_status(new: Object, old: Object) -> list[FieldError]:
    """Checks a kubelet's report; the spec has been restored from the old node."""
    errors: Errors = []
    spec, status = new.get("spec") or _EMPTY, new.get("status") or _EMPTY
    _validate_status(status, errors)
    taints(spec.get("taints") or (), "metadata.taints", errors)
    _no_config_source(spec, status, errors)
    _changes(new, old, errors)
    return errors


def _changes(new: Object, old: Object, errors: Errors) -> None:
    spec, before = new.get("spec") or _EMPTY, old.get("spec") or _EMPTY
    addresses = (new.get("status") or _EMPTY).get("addresses") or ()
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(addresses):
        key = (address.get("type", ""), address.get("address", ""))
        if key in seen:
            errors.append(duplicate(f"status.addresses[{index}]", address))
        seen.add(key)
    networks = before.get("podCIDRs") or []
    if networks and networks != (spec.get("podCIDRs") or []):
        detail = 'node updates may not change podCIDR except from "" to valid'
        errors.append(forbidden("spec.podCIDRs", detail))
    if before.get("providerID") and before["providerID"] != spec.get("providerID", ""):
        detail = 'node updates may not change providerID except from "" to valid'
        errors.append(forbidden("spec.providerID", detail))
    if before.get("externalID", "") != spec.get("externalID", ""):
        errors.append(forbidden("spec.externalID", "may not be updated"))


def _validate_status(status: Object, errors: Errors) -> None:
    for kind in ("capacity", "allocatable"):
        for name, quantity in (status.get(kind) or _EMPTY).items():
            amount(name, quantity, f"status.{kind}.{name}", errors)
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


def _no_config_source(spec: Object, status: Object, errors: Errors) -> None:
    if "configSource" in spec:
        errors.append(forbidden("spec.configSource", _NO_CONFIG_SOURCE))
    if "config" in status:
        errors.append(forbidden("status.config", _NO_CONFIG_SOURCE))


def default(obj: dict[str, Any]) -> None:
    status = obj["status"]
    capacity = status.get("capacity")
    if status.get("allocatable") is None and capacity is not None:
        status["allocatable"] = dict(capacity)
    round_up(capacity)
    round_up(status.get("allocatable"))


def row(obj: Json, now: float) -> list[Any]:
    status, labels = part(obj, "status"), part(obj, "metadata", "labels")
    info, ready = part(status, "nodeInfo"), condition(status, "Ready")
    state = "Unknown" if not ready else "Ready" if ready.get("status") == "True" else "NotReady"
    if part(obj, "spec").get("unschedulable") is True:
        state = f"{state},SchedulingDisabled"
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(text(labels, _ROLE_LABEL))
    return [
        name_of(obj),
        state,
        ",".join(sorted(roles - {""})) or NONE,
        age_of(obj, now),
        text(info, "kubeletVersion"),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        text(info, "osImage", UNKNOWN),
        text(info, "kernelVersion", UNKNOWN),
        text(info, "containerRuntimeVersion", UNKNOWN),
    ]


def _address(status: Json, kind: str) -> str:
    for address in elements(status, "addresses"):
        if address.get("type") == kind:
            return text(address, "address")
    return NONE


def node_warnings(new: Object, _old: Object | None) -> list[str]:
    warnings = []
    if new["spec"].get("configSource") is not None:
        warnings.append("spec.configSource: the feature is removed")
    if new["spec"].get("externalID"):
        warnings.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    return warnings


NODE = Strategy(
    group="",
    kind="Node",
    stored_as="minions",
    parts={
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": dict.fromkeys(_NODE_INFO.split(), ""),
        },
    },
    default=default,
    status_on_create=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=node_warnings,
    validate_subresources={"status": validate_status},
    selectable=(selectable("spec.unschedulable", absent="false"),),
    columns=("Name|Status|Roles|Age|Version|Internal-IP*|External-IP*|OS-Image*|Kernel-Version*|Container-Runtime*"),
    row=row,
)
