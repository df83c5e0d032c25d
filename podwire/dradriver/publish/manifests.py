"""Manifests that install the driver on every node: identity, policies, classes, config, DaemonSet. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from podwire.dradriver.names import COMPONENT, DRIVER
from podwire.dradriver.parameters.policy import policy

Object = dict[str, Any]
NAME = COMPONENT
LABELS = {"app.kubernetes.io/name": NAME}
WHOLE, SHARED = f"whole.{DRIVER}", f"shared.{DRIVER}"
SLICES_POLICY = f"slices.{DRIVER}"
RBAC, RESOURCES, ADMISSION = "rbac.authorization.k8s.io/v1", "resource.k8s.io/v1", "admissionregistration.k8s.io/v1"
KUBELET, STATE, CDI, NRI = "/var/lib/kubelet", "/var/lib/podwire/network-driver", "/var/run/cdi", "/var/run/nri"
CONFIG, CONFIG_FILE, KUBECONFIG = "/etc/podwire/network-driver", "config.yaml", "/etc/podwire/kubeconfig"
NODE_OF_ACCOUNT = "authentication.kubernetes.io/node-name"
GRACE_SECONDS = 30
_SYSTEM = "kube-system"
_PRIVILEGED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    image: str = "podwire:latest"
    namespace: str = "podwire"
    port: int = 9746
    """Of the pages, on the node's loopback."""
    config: str = "{}\n"
    """The driver's file, the same for every node."""
    api_host: str = ""
    api_port: str = ""
    """Where the API server is, for clusters in which its Service does not reach it from a node."""
    kubeconfig: str = ""
    """A file of the node, for clusters in which service accounts may not do enough."""


def network_driver(deployment: Deployment) -> list[Object]:
    """In the order in which they are applied."""
    namespace = deployment.namespace
    own = [] if namespace == _SYSTEM else [_object("v1", "Namespace", name=namespace, labels=LABELS | _PRIVILEGED)]
    return [
        *own,
        _object("v1", "ServiceAccount", namespace),
        {**_object(RBAC, "ClusterRole"), "rules": _rules()},
        {
            **_object(RBAC, "ClusterRoleBinding"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        },
        *_slices_policy(namespace),
        *({**manifest, "metadata": {**manifest["metadata"], "labels": LABELS}} for manifest in policy()),
        *_classes(),
        {**_object("v1", "ConfigMap", namespace), "data": {CONFIG_FILE: deployment.config}},
        {**_object("apps/v1", "DaemonSet", namespace), "spec": _daemon_set(deployment)},
    ]


def _object(
    api_version: str, kind: str, namespace: str = "", *, name: str = NAME, labels: dict[str, str] | None = None
) -> Object:
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels or LABELS}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


# Who the driver is.


def _rules() -> list[Object]:
    """Its slices, the status of its claims' devices, and what it reads for that; nothing else."""
    driver = _rule("resource.k8s.io", "resourceclaims/driver", ("associated-node:update", "associated-node:patch"))
    return [
        _rule("resource.k8s.io", "resourceslices", ("get", "list", "watch", "create", "update", "delete")),
        _rule("resource.k8s.io", "resourceclaims", ("get",)),
        _rule("resource.k8s.io", "resourceclaims/status", ("patch",)),
        {**driver, "resourceNames": [DRIVER]},
        _rule("", "nodes", ("get",)),
        _rule("", "pods", ("get",)),
        _rule("", "events", ("create", "patch")),
    ]


def _rule(group: str, resource: str, verbs: Sequence[str]) -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _slices_policy(namespace: str) -> list[Object]:
    """Roles cannot say whose slices: of each driver, those of its own node."""
    extra = "request.userInfo.extra"
    node = f"has({extra}) && '{NODE_OF_ACCOUNT}' in {extra} ? {extra}['{NODE_OF_ACCOUNT}'][0] : ''"
    slice_ = "(request.operation == 'DELETE' ? oldObject : object)"
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1", "v1beta1", "v1beta2"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["resourceslices"],
        "scope": "*",
    }
    account = f"request.userInfo.username == 'system:serviceaccount:{namespace}:{NAME}'"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "is-the-driver", "expression": account}],
        "variables": [{"name": "node", "expression": node}],
        "validations": [
            {
                "expression": "variables.node != ''",
                "message": "the token does not say on which node the driver is",
            },
            {
                "expression": f"has({slice_}.spec.nodeName) && {slice_}.spec.nodeName == variables.node",
                "message": "the driver of a node changes the slices of that node alone",
            },
            {
                "expression": f"{slice_}.spec.driver == '{DRIVER}'",
                "message": "the slices of other drivers are theirs",
            },
        ],
    }
    bound = {"policyName": SLICES_POLICY, "validationActions": ["Deny"]}
    return [
        {**_object(ADMISSION, "ValidatingAdmissionPolicy", name=SLICES_POLICY), "spec": spec},
        {**_object(ADMISSION, "ValidatingAdmissionPolicyBinding", name=SLICES_POLICY), "spec": bound},
    ]


# What claims name.


def _classes() -> list[Object]:
    ours = f'device.driver == "{DRIVER}"'
    shared = f'device.attributes["{DRIVER}"].shared'
    return [_class(WHOLE, f"{ours} && !{shared}"), _class(SHARED, f"{ours} && {shared}")]


def _class(name: str, expression: str) -> Object:
    return {
        **_object(RESOURCES, "DeviceClass", name=name),
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


# The driver itself.


def _daemon_set(deployment: Deployment) -> Object:
    """A new instance is there before the old one goes; a change of the file is a change of the pod."""
    seen = hashlib.sha256(deployment.config.encode()).hexdigest()[:16]
    meta = {"labels": LABELS, "annotations": {f"{DRIVER}/config": seen}}
    return {
        "selector": {"matchLabels": LABELS},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": meta, "spec": _pod(deployment)},
    }


def _pod(deployment: Deployment) -> Object:
    """On the host's network: its links are what the driver offers."""
    places = [{"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path, _ in _PLACES]
    own = deployment.kubeconfig
    return {
        "serviceAccountName": NAME,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(deployment)],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            *places,
            *([{"name": "kubeconfig", "hostPath": {"path": own, "type": "File"}}] if own else []),
        ],
    }


_PLACES = (
    ("registry", f"{KUBELET}/plugins_registry", False),
    ("plugins", f"{KUBELET}/plugins", False),
    ("device-plugins", f"{KUBELET}/device-plugins", False),
    ("pod-resources", f"{KUBELET}/pod-resources", False),
    ("nri", NRI, False),
    ("cdi", CDI, False),
    ("state", STATE, True),
    ("dev", "/dev", False),
    ("netns", "/run/netns", True),
)
"""Directories that the driver shares with the host, under the same paths: others find there by name what it put there.
Namespaces are mounts that come and go while it runs."""


def _container(deployment: Deployment) -> Object:
    health = {"host": "127.0.0.1", "path": "/healthz", "port": deployment.port}
    return {
        "name": "network-driver",
        "image": deployment.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["podwire", "network-driver"],
        "args": _arguments(deployment),
        "env": _environment(deployment),
        "securityContext": {"privileged": True},
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {"httpGet": health, "periodSeconds": 10},
        "readinessProbe": {"exec": {"command": ["sh", "-c", _READY]}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}},
        "volumeMounts": _mounts(deployment),
    }


_READY = f"test -S {KUBELET}/plugins/{DRIVER}/dra-$POD_UID.sock"
"""Whether this very instance serves: while two are there, the port of the pages is that of either."""


def _arguments(deployment: Deployment) -> list[str]:
    return [
        *("--config", f"{CONFIG}/{CONFIG_FILE}"),
        *("--nri-socket", f"{NRI}/nri.sock"),
        *("--listen", f"127.0.0.1:{deployment.port}"),
        *("--log-format", "json"),
        *(("--kubeconfig", KUBECONFIG) if deployment.kubeconfig else ()),
    ]


def _mounts(deployment: Deployment) -> list[Object]:
    found: list[Object] = [{"name": "config", "mountPath": CONFIG, "readOnly": True}]
    for name, path, both_ways in _PLACES:
        mount = {"name": name, "mountPath": path}
        found.append({**mount, "mountPropagation": "Bidirectional"} if both_ways else mount)
    found.append({"name": "netns", "mountPath": "/var/run/netns", "mountPropagation": "Bidirectional"})
    if deployment.kubeconfig:
        found.append({"name": "kubeconfig", "mountPath": KUBECONFIG, "readOnly": True})
    return found


def _environment(deployment: Deployment) -> list[Object]:
    address = {"KUBERNETES_SERVICE_HOST": deployment.api_host, "KUBERNETES_SERVICE_PORT": deployment.api_port}
    return [
        _field("NODE_NAME", "spec.nodeName"),
        _field("POD_UID", "metadata.uid"),
        *({"name": name, "value": value} for name, value in address.items() if value),
    ]


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
