"""The Strategy of Pod."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.builtin.core.pod import defaults, table, validate
from podwire.kinds.podspec.warnings import pod_warnings
from podwire.kinds.strategy import Object, SelectableField, Strategy, selectable


def _addresses(pod: Mapping[str, Any]) -> str:
    return ",".join(address.get("ip", "") for address in (pod.get("status") or {}).get("podIPs") or ())


def _grace_seconds(pod: Object, requested: int | None) -> int:
    """Only a pod that runs on a node gets time to stop: the request's, else its own."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    grace: int = spec.get("terminationGracePeriodSeconds", 30) if requested is None else requested
    return grace


POD = Strategy(
    group="",
    kind="Pod",
    parts={"spec": {}, "status": {}},
    default=defaults.default_pod,
    prepare_create=defaults.prepare_create,
    counts_generation=True,
    prepare_status=defaults.prepare_status,
    validate_create=validate.create,
    validate_update=validate.update,
    warnings=pod_warnings,
    validate_subresources={
        "ephemeralcontainers": validate.update_ephemeral_containers,
        "resize": validate.update_resources,
        "status": validate.update_status,
    },
    returns_deleted=True,
    grace_seconds=_grace_seconds,
    selectable=(
        selectable("spec.nodeName"),
        selectable("spec.restartPolicy"),
        selectable("spec.schedulerName"),
        selectable("spec.serviceAccountName"),
        selectable("spec.hostNetwork", absent="false"),
        selectable("status.phase"),
        selectable("status.podIP"),
        SelectableField("status.podIPs", (), read=_addresses),
        selectable("status.nominatedNodeName"),
    ),
    columns="Name|Ready|Status|Restarts|Age|IP*|Node*|Nominated Node*|Readiness Gates*",
    row=table.row,
)
