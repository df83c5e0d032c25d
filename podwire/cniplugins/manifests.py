"""Manifests that install the CNI plugins on every node of a cluster: a service account and a DaemonSet. Pure.

The plugins on the host are small forwarders. Their daemon is a container of the DaemonSet, on the host's network and
with the host's directories under their own paths, so hosts need neither Python nor podwire.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
NAME = "podwire-cni-plugins"
LABELS = {"app.kubernetes.io/name": NAME}
NETWORK = "/etc/podwire/cni"
RUN, SOCKET_NAME = "/run/podwire-cni", "cni.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    image: str = "podwire:latest"
    namespace: str = "kube-system"
    bin_dir: str = "/opt/cni/bin"
    conf_dir: str = "/etc/cni/net.d"
    network: str = ""
    """A network configuration list; empty installs plugins alone."""
    network_name: str = "10-podwire-pods.conflist"
    """Name of its file in `conf_dir`: runtimes use the first one in the order of names."""
    force: bool = False
    """Overwrite plugins of others with the same names."""


def manifests(settings: Settings) -> list[Object]:
    """In the order in which they are applied."""
    network = {**_object("v1", "ConfigMap", settings), "data": {settings.network_name: settings.network}}
    return [
        {**_object("v1", "ServiceAccount", settings), "automountServiceAccountToken": False},
        *([network] if settings.network else []),
        {**_object("apps/v1", "DaemonSet", settings), "spec": _daemon_set(settings)},
    ]


def removal_command(settings: Settings, root: str) -> list[str]:
    """The command that removes from a node, whose root directory is `root`, what the DaemonSet put there."""
    network = ["--network-file", f"{settings.conf_dir}/{settings.network_name}"] if settings.network else []
    return ["podwire", "cni", "uninstall", settings.bin_dir, *_socket(), *network, "--root", root]


def _object(api_version: str, kind: str, settings: Settings) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": NAME, "namespace": settings.namespace, "labels": LABELS},
    }


def _socket() -> list[str]:
    return ["--socket", f"{RUN}/{SOCKET_NAME}"]


def _daemon_set(settings: Settings) -> Object:
    """A change of the network changes an annotation, and so replaces the pods."""
    digest = hashlib.sha256(settings.network.encode()).hexdigest()[:16]
    meta = {"labels": LABELS, **({"annotations": {"net.podwire.dev/network": digest}} if settings.network else {})}
    return {
        "selector": {"matchLabels": LABELS},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "template": {"metadata": meta, "spec": _pod(settings)},
    }


def _pod(settings: Settings) -> Object:
    """On the host's network, so that it starts before there is any other."""
    paths = _paths(settings)
    volumes = [{"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in paths]
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"operator": "Exists"}],
        "initContainers": [_install(settings)],
        "containers": [_daemon(settings)],
        "volumes": [*volumes, *([{"name": "network", "configMap": {"name": NAME}}] if settings.network else [])],
    }


def _paths(settings: Settings) -> list[tuple[str, str]]:
    """The host's directories, under the same paths in the pod: calls name files by their paths on the host."""
    return [
        ("bin", settings.bin_dir),
        ("conf", settings.conf_dir),
        ("run", RUN),
        ("leases", "/var/lib/cni"),
        ("state", "/var/lib/podwire/cni"),
        ("netns", "/run/netns"),
    ]


def _install(settings: Settings) -> Object:
    network = [
        *("--network", f"{NETWORK}/{settings.network_name}"),
        *("--network-file", f"{settings.conf_dir}/{settings.network_name}"),
    ]
    return {
        "name": "install",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["podwire", "cni", "install", settings.bin_dir],
        "args": [
            *_socket(),
            "--daemon-only",
            *(["--force"] if settings.force else []),
            *(network if settings.network else []),
        ],
        "volumeMounts": [
            {"name": "bin", "mountPath": settings.bin_dir},
            {"name": "conf", "mountPath": settings.conf_dir},
            *([{"name": "network", "mountPath": NETWORK, "readOnly": True}] if settings.network else []),
        ],
    }


def _daemon(settings: Settings) -> Object:
    return {
        "name": "daemon",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["podwire", "cni", "daemon"],
        "args": [*_socket(), "--any-mounts", "--log-format", "json"],
        "securityContext": {"privileged": True},
        "readinessProbe": {"exec": {"command": ["test", "-S", f"{RUN}/{SOCKET_NAME}"]}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "20m", "memory": "60Mi"}},
        "volumeMounts": [
            *({"name": name, "mountPath": path} for name, path in _paths(settings) if name != "netns"),
            # Namespaces are mounts that come and go while the container runs, by either path as the runtime has it.
            {"name": "netns", "mountPath": "/run/netns", "mountPropagation": "HostToContainer"},
            {"name": "netns", "mountPath": "/var/run/netns", "mountPropagation": "HostToContainer"},
        ],
    }
