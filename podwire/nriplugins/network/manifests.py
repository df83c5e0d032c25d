"""Manifests for a cluster: definitions, service account, RBAC and DaemonSet. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from podwire.nriplugins.network import admin_crds, crds
from podwire.nriplugins.network.kinds import ADMIN_KINDS, CUSTOM
from podwire.nriplugins.network.resources import GROUP

Object = dict[str, Any]
NAME = "podwire-nri-network"
LABELS = {"app.kubernetes.io/name": NAME}
TOLERATE = f"{GROUP}/tolerate-missing"
"""On containerd that requires the plugin, the plugin's own pods need this; see docs/nri-network.md."""
NRI, KUBECONFIG = "/var/run/nri", "/etc/podwire/kubeconfig"
READ = ("get", "list", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    image: str = "podwire:latest"
    namespace: str = "kube-system"
    port: int = 9745
    """The port of the HTTP endpoints, on the node's loopback."""
    api_host: str = ""
    api_port: str = ""
    """The address of the API server, for clusters in which its Service does not reach it from a node."""
    kubeconfig: str = ""
    """A file of the node, for clusters in which service accounts may not see enough."""


def manifests(settings: Settings) -> list[Object]:
    """In the order in which they are applied."""
    return [
        *crds.ALL,
        _object("v1", "ServiceAccount", settings.namespace),
        {**_object("rbac.authorization.k8s.io/v1", "ClusterRole"), "rules": _rules()},
        {**_object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), **_binding(settings.namespace)},
        {**_object("apps/v1", "DaemonSet", settings.namespace), "spec": _daemon_set(settings)},
    ]


def _object(api_version: str, kind: str, namespace: str = "") -> Object:
    meta = {"name": NAME, **({"namespace": namespace} if namespace else {}), "labels": LABELS}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def _rules() -> list[Object]:
    custom = [kind.resource for kind in CUSTOM]
    return [
        _rule([""], ["pods", "namespaces", "nodes"], READ),
        _rule(["networking.k8s.io"], ["networkpolicies"], READ),
        _rule([admin_crds.GROUP], [kind.resource for kind in ADMIN_KINDS], READ),
        _rule(["discovery.k8s.io"], ["endpointslices"], READ),
        _rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], READ),
        _rule([GROUP], custom, READ),
        _rule([GROUP], [f"{resource}/status" for resource in custom], ("patch",)),
        _rule([""], ["events"], ("create", "patch")),
    ]


def _rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def _binding(namespace: str) -> Object:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def _daemon_set(settings: Settings) -> Object:
    return {
        "selector": {"matchLabels": LABELS},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "template": {"metadata": {"labels": LABELS, "annotations": {TOLERATE: "true"}}, "spec": _pod(settings)},
    }


def _pod(settings: Settings) -> Object:
    """On the host's network, so that it starts before there is any other, and none that it waits for itself."""
    own = bool(settings.kubeconfig)
    return {
        "serviceAccountName": NAME,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 10,
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(settings)],
        "volumes": [
            {"name": "nri", "hostPath": {"path": NRI, "type": "DirectoryOrCreate"}},
            {"name": "netns", "hostPath": {"path": "/run/netns", "type": "DirectoryOrCreate"}},
            *([{"name": "kubeconfig", "hostPath": {"path": settings.kubeconfig, "type": "File"}}] if own else []),
        ],
    }


def _container(settings: Settings) -> Object:
    probe = {"httpGet": {"host": "127.0.0.1", "path": "/healthz", "port": settings.port}, "periodSeconds": 10}
    ready = {"httpGet": {"host": "127.0.0.1", "path": "/readyz", "port": settings.port}, "periodSeconds": 5}
    listen = f"127.0.0.1:{settings.port}"
    identity = ["--kubeconfig", KUBECONFIG] if settings.kubeconfig else []
    mount = [{"name": "kubeconfig", "mountPath": KUBECONFIG, "readOnly": True}] if settings.kubeconfig else []
    return {
        "name": "nri-network",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["podwire", "nri-network"],
        "args": ["--socket", f"{NRI}/nri.sock", "--listen", listen, "--log-format", "json", *identity],
        "env": _environment(settings),
        "securityContext": {"privileged": True},
        "livenessProbe": probe,
        "readinessProbe": ready,
        "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}},
        "volumeMounts": [
            {"name": "nri", "mountPath": NRI},
            # Namespaces are mounts that come and go while the container runs, by either path as the runtime has it.
            {"name": "netns", "mountPath": "/run/netns", "mountPropagation": "Bidirectional"},
            {"name": "netns", "mountPath": "/var/run/netns", "mountPropagation": "Bidirectional"},
            *mount,
        ],
    }


def _environment(settings: Settings) -> list[Object]:
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    variables = {"KUBERNETES_SERVICE_HOST": settings.api_host, "KUBERNETES_SERVICE_PORT": settings.api_port}
    return [node, *({"name": name, "value": value} for name, value in variables.items() if value)]
