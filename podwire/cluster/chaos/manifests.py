"""The objects of a run."""

from typing import Any

from podwire.cluster.chaos.service_model import GROUP_LABEL, POD_PORT, SERVICE_PORT
from podwire.protocols.k8sapi.kinds import Kind
from podwire.runtime.images.build import ROOT_REFERENCE

PODS = Kind(group="", version="v1", resource="pods", kind="Pod", namespaced=True)
NODES = Kind(group="", version="v1", resource="nodes", kind="Node", namespaced=False)
NAMESPACES = Kind(group="", version="v1", resource="namespaces", kind="Namespace", namespaced=False)
ACCOUNTS = Kind(group="", version="v1", resource="serviceaccounts", kind="ServiceAccount", namespaced=True)
SERVICES = Kind(group="", version="v1", resource="services", kind="Service", namespaced=True)
CONFIG_MAPS = Kind(group="", version="v1", resource="configmaps", kind="ConfigMap", namespaced=True)
ENDPOINTS = Kind(
    group="discovery.k8s.io", version="v1", resource="endpointslices", kind="EndpointSlice", namespaced=True
)
CLAIMS = Kind(group="resource.k8s.io", version="v1", resource="resourceclaims", kind="ResourceClaim", namespaced=True)
SLICES = Kind(group="resource.k8s.io", version="v1", resource="resourceslices", kind="ResourceSlice", namespaced=False)
CLASSES = Kind(group="resource.k8s.io", version="v1", resource="deviceclasses", kind="DeviceClass", namespaced=False)
DRIVERS = {"gpu.podwire.dev": "chaos-gpu", "net.podwire.dev": "chaos-network"}
"""Drivers whose devices are claimed, if they have published any; and the names of their DeviceClass and template."""
COUNTER = "counter"
_SERVE = (
    "trap 'exit 0' TERM; mkdir -p /tmp/www && hostname > /tmp/www/index.html; "
    f"busybox httpd -f -p {POD_PORT} -h /tmp/www & wait"
)
"""A pod answers with its name."""


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def device_class(driver: str) -> dict[str, Any]:
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVERS[driver]},
        "spec": {"selectors": [selector]},
    }


def template(namespace: str, driver: str) -> dict[str, Any]:
    devices = {"requests": [{"name": "device", "exactly": {"deviceClassName": DRIVERS[driver]}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": DRIVERS[driver], "namespace": namespace},
        "spec": {"spec": {"devices": devices}},
    }


def pod(name: str, namespace: str, group: str, template: str) -> dict[str, Any]:
    """With a claim by a template, unless that is empty."""
    container: dict[str, Any] = {
        "name": "main",
        "image": ROOT_REFERENCE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _SERVE],
    }
    spec: dict[str, Any] = {"containers": [container], "dnsPolicy": "Default", "terminationGracePeriodSeconds": 5}
    if template:
        container["resources"] = {"claims": [{"name": "device"}]}
        spec["resourceClaims"] = [{"name": "device", "resourceClaimTemplateName": template}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {GROUP_LABEL: group}},
        "spec": spec,
    }


def service(name: str, namespace: str, group: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {GROUP_LABEL: group}, "ports": [{"port": SERVICE_PORT, "targetPort": POD_PORT}]},
    }


def counter(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": COUNTER, "namespace": namespace},
        "data": {"value": "0"},
    }
