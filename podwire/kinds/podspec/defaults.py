"""Defaults of a pod spec, in a Pod or in the template of a workload."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.podspec.container_defaults import default_container
from podwire.kinds.podspec.resource_defaults import round_up, round_up_requirements
from podwire.kinds.podspec.volume_defaults import default_volume

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")

POD_TEMPLATE: Mapping[str, Any] = {"template": {"metadata": {}, "spec": {}}}
"""The parts that every pod template has (see `Strategy.parts`)."""


def default_pod_spec(spec: dict[str, Any]) -> None:
    _align_service_account(spec)
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    for name in _CONTAINERS:
        for container in spec.get(name) or ():
            default_container(container)
    round_up(spec.get("overhead"))
    round_up_requirements(spec.get("resources"))


def default_template(template: dict[str, Any]) -> None:
    """A PodTemplateSpec; its metadata and spec are there."""
    default_pod_spec(template["spec"])


def _align_service_account(spec: dict[str, Any]) -> None:
    """Sets serviceAccount, the old name, and serviceAccountName to the same value; the new one wins."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name
