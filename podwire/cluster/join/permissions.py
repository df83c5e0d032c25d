"""The objects without which no machine can join: rights of tokens and nodes, `cluster-info`, and the settings.

A cluster has none of them until its first token is created: then everybody may read `cluster-info`, and machines with a
token may request certificates. Names are kubeadm's where kubeadm has the same object.
"""

from collections.abc import Iterable
from typing import Any

from podwire.cluster.join import settings as cluster_settings
from podwire.cluster.join.settings import ClusterSettings
from podwire.protocols.k8sapi.bootstrap_tokens import (
    INFO_NAME,
    INFO_NAMESPACE,
    KUBECONFIG_KEY,
    NODES_GROUP,
    cluster_info,
)
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError

_GROUP = "rbac.authorization.k8s.io"
_NODES = "system:nodes"


def kind_of(api_version: str, kind: str) -> Kind:
    """Returns a built-in kind."""
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(f"{api_version} {kind}")
    return found


CONFIG_MAPS, NODES, SECRETS = kind_of("v1", "ConfigMap"), kind_of("v1", "Node"), kind_of("v1", "Secret")


def _role(name: str, namespace: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _binding(name: str, role: str, groups: Iterable[str], namespace: str = "") -> dict[str, Any]:
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _read_one(name: str) -> list[dict[str, Any]]:
    return [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get"]}]


def rights() -> list[dict[str, Any]]:
    """Returns roles and bindings.

    A token may request a node's client certificate, which is approved at once; nodes renew their own. Everybody reads
    `cluster-info`. Nodes delete their own Node when they leave: NodeRestriction refuses others.
    """
    requests = "system:certificates.k8s.io:certificatesigningrequests"
    everybody = ("system:unauthenticated", "system:authenticated")
    info, shared, leave = "kubeadm:bootstrap-signer-clusterinfo", "podwire:cluster-settings", "podwire:node-leave"
    return [
        _binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", [NODES_GROUP]),
        _binding("kubeadm:node-autoapprove-bootstrap", f"{requests}:nodeclient", [NODES_GROUP]),
        _binding("kubeadm:node-autoapprove-certificate-rotation", f"{requests}:selfnodeclient", [_NODES]),
        _role(info, INFO_NAMESPACE, _read_one(INFO_NAME)),
        _binding(info, info, everybody, INFO_NAMESPACE),
        _role(shared, cluster_settings.NAMESPACE, _read_one(cluster_settings.NAME)),
        _binding(shared, shared, [_NODES, NODES_GROUP], cluster_settings.NAMESPACE),
        _role(leave, "", [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}]),
        _binding(leave, leave, [_NODES]),
    ]


def config_map(namespace: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def ensure(api: Client, server: str, ca: str, settings: ClusterSettings | None = None) -> None:
    """Creates what is missing; another server or CA, and other settings, replace those before. Raises ApiError."""
    for object_ in rights():
        await create_missing(api, object_)
    await _publish(api, INFO_NAMESPACE, INFO_NAME, {KUBECONFIG_KEY: cluster_info(server, ca)})
    if settings is not None:
        await _publish(api, cluster_settings.NAMESPACE, cluster_settings.NAME, cluster_settings.to_data(settings))


async def create_missing(api: Client, object_: dict[str, Any]) -> bool:
    """Creates an object; returns False if there is one of this name, whatever it says."""
    try:
        await api.create(object_)
    except ApiError as error:
        if error.code != 409:
            raise
        return False
    return True


async def _publish(api: Client, namespace: str, name: str, data: dict[str, str]) -> None:
    """Writes values of a ConfigMap; others that it has stay: signatures belong to their controller."""
    if await create_missing(api, config_map(namespace, name, data)):
        return
    known = await api.get(CONFIG_MAPS, name, namespace)
    if any((known.get("data") or {}).get(key) != value for key, value in data.items()):
        await api.patch(CONFIG_MAPS, name, {"data": data}, namespace)
