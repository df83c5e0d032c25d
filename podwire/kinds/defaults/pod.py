"""Defaults of a pod and of the pod templates inside workloads."""

from typing import Any

from podwire.kinds.defaults.containers import default_container
from podwire.kinds.defaults.resources import default_pod_level, request_limits, round_up, round_up_requirements
from podwire.kinds.defaults.volumes import default_volume

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def default_pod(pod: dict[str, Any]) -> None:
    """What a pod gets and a template does not comes first: requests follow limits before amounts are rounded."""
    spec = pod["spec"]
    if (grace := spec.get("terminationGracePeriodSeconds")) is not None and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            request_limits(container)
    if spec.get("resources") is not None:
        default_pod_level(spec)
    if "enableServiceLinks" not in spec:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        _publish_ports(spec)
    default_pod_spec(spec)
    if status := pod.get("status"):
        _align_addresses(status)


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


def default_pod_template(obj: dict[str, Any]) -> None:
    default_template(obj["template"])


def _align_service_account(spec: dict[str, Any]) -> None:
    """`serviceAccount` is the old name of serviceAccountName; both say the same, the new one wins."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def _publish_ports(spec: dict[str, Any]) -> None:
    """On the host's network a port of the container is a port of the host."""
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            for port in container.get("ports") or ():
                if not port.get("hostPort") and port.get("containerPort"):
                    port["hostPort"] = port["containerPort"]


def _align_addresses(status: dict[str, Any]) -> None:
    """podIP is the first of podIPs; where they differ, podIP is right."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address:
        if not addresses or addresses[0].get("ip") != address:
            status["podIPs"] = [{"ip": address}]
    elif addresses:
        status["podIP"] = addresses[0].get("ip", "")


DEFAULTS = {
    ("", "Pod"): default_pod,
    ("", "PodTemplate"): default_pod_template,
}
