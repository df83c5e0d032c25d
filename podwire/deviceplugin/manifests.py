"""Manifests that install the device plugin on every node of a cluster: service account, pools, DaemonSet. Pure.

The plugin uses the kubelet's sockets only, so its service account may do nothing.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from podwire.deviceplugin.config import DOMAIN

Object = dict[str, Any]
NAME = "podwire-device-plugin"
LABELS = {"app.kubernetes.io/name": NAME}
CONFIG, CONFIG_FILE = "/etc/podwire/device-plugin", "pools.yaml"
KUBELET, STATE, CDI = "/var/lib/kubelet", "/var/lib/podwire/device-plugin", "/var/run/cdi"
TUN = "pools:\n- name: tun\n  files: {paths: [/dev/net/tun], count: 100}\n"
"""A pool that every Linux host has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    image: str = "podwire:latest"
    namespace: str = "kube-system"
    port: int = 9747
    """The port of the HTTP endpoints, on the node's loopback."""
    pools: str = TUN
    """The plugin's file, the same for every node."""


def manifests(settings: Settings) -> list[Object]:
    """In the order in which they are applied."""
    return [
        {**_object("v1", "ServiceAccount", settings), "automountServiceAccountToken": False},
        {**_object("v1", "ConfigMap", settings), "data": {CONFIG_FILE: settings.pools}},
        {**_object("apps/v1", "DaemonSet", settings), "spec": _daemon_set(settings)},
    ]


def _object(api_version: str, kind: str, settings: Settings) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": NAME, "namespace": settings.namespace, "labels": LABELS},
    }


def _daemon_set(settings: Settings) -> Object:
    """A change of the pools changes an annotation, and so replaces the pods."""
    digest = hashlib.sha256(settings.pools.encode()).hexdigest()[:16]
    return {
        "selector": {"matchLabels": LABELS},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "template": {
            "metadata": {"labels": LABELS, "annotations": {f"{DOMAIN}/pools": digest}},
            "spec": _pod(settings),
        },
    }


_PATHS = (
    ("device-plugins", f"{KUBELET}/device-plugins"),
    ("pod-resources", f"{KUBELET}/pod-resources"),
    ("state", STATE),
    ("cdi", CDI),
    ("dev", "/dev"),
)
"""Directories of the host, under the same paths in the pod: kubelet and runtime use what the plugin puts there."""


def _pod(settings: Settings) -> Object:
    """On the host's network: its links are what the plugin offers."""
    volumes = [{"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in _PATHS]
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(settings)],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}, *volumes],
    }


def _container(settings: Settings) -> Object:
    probe = {"host": "127.0.0.1", "port": settings.port}
    return {
        "name": "device-plugin",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["podwire", "device-plugin"],
        "args": [
            *("--config", f"{CONFIG}/{CONFIG_FILE}"),
            *("--listen", f"127.0.0.1:{settings.port}"),
            *("--log-format", "json"),
        ],
        "securityContext": {"privileged": True},
        "livenessProbe": {"httpGet": {**probe, "path": "/healthz"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {**probe, "path": "/readyz"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "20m", "memory": "60Mi"}},
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG, "readOnly": True},
            *({"name": name, "mountPath": path} for name, path in _PATHS),
        ],
    }
