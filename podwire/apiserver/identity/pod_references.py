"""The API objects that pods and persistent volumes refer to. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of pods that kubelets create for static pods."""

Reference = tuple[str, str, str]
"""Resource, namespace and name."""

_SECRET_SOURCES = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
"""Volume sources with a field `secretRef`."""
_CSI_SECRETS = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")
"""Secrets that are used on nodes; others are for controllers."""


class _Key(msgspec.Struct, frozen=True):
    name: str = ""


class _ValueFrom(msgspec.Struct, frozen=True, rename="camel"):
    secret_key_ref: _Key | None = None
    config_map_key_ref: _Key | None = None


class _Env(msgspec.Struct, frozen=True, rename="camel"):
    value_from: _ValueFrom | None = None


class _EnvFrom(msgspec.Struct, frozen=True, rename="camel"):
    secret_ref: _Key | None = None
    config_map_ref: _Key | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    env: list[_Env] = []
    env_from: list[_EnvFrom] = []


class _Claim(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_claim_name: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    service_account_name: str = ""
    image_pull_secrets: list[_Key] = []
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    ephemeral_containers: list[_Container] = []
    volumes: list[dict[str, Any]] = []
    resource_claims: list[_Claim] = []


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    resource_claim_statuses: list[_Claim] = []
    extended_resource_claim_status: _Claim | None = None


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] = {}


class BoundPod(msgspec.Struct, frozen=True):
    """The parts of a pod that refer to other objects."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def node(self) -> str:
        return self.spec.node_name

    @property
    def is_mirror(self) -> bool:
        return MIRROR in self.metadata.annotations

    def references(self) -> Iterator[Reference]:
        """Yields everything that the pod needs on its node. A mirror pod needs nothing: its kubelet created it."""
        if self.is_mirror:
            return
        namespace, spec = self.metadata.namespace, self.spec
        if spec.service_account_name:
            yield "serviceaccounts", namespace, spec.service_account_name
        for resource, name in self.secrets_and_config_maps():
            yield resource, namespace, name
        for volume in spec.volumes:
            if name := _claim_of(volume, self.metadata.name):
                yield "persistentvolumeclaims", namespace, name
        for name in self._resource_claims():
            yield "resourceclaims", namespace, name

    def secrets_and_config_maps(self) -> Iterator[tuple[str, str]]:
        spec = self.spec
        for secret in spec.image_pull_secrets:
            yield from _named("secrets", secret)
        for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
            for source in container.env_from:
                yield from _named("secrets", source.secret_ref)
                yield from _named("configmaps", source.config_map_ref)
            for variable in container.env:
                if (value := variable.value_from) is not None:
                    yield from _named("secrets", value.secret_key_ref)
                    yield from _named("configmaps", value.config_map_key_ref)
        for volume in spec.volumes:
            yield from _in_volume(volume)

    def _resource_claims(self) -> Iterator[str]:
        """Yields the names of claims; one from a template is named in the status once it exists."""
        generated = {claim.name: claim.resource_claim_name for claim in self.status.resource_claim_statuses}
        for claim in self.spec.resource_claims:
            if name := claim.resource_claim_name or generated.get(claim.name, ""):
                yield name
        extended = self.status.extended_resource_claim_status
        if extended is not None and extended.resource_claim_name:
            yield extended.resource_claim_name


read_pod = msgspec.json.Decoder(BoundPod).decode


class _Outline(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _Status = _Status()


_read_outline = msgspec.json.Decoder(_Outline).decode


def fingerprint(value: bytes) -> int:
    """Returns a number that changes with everything of a stored pod that `references` reads.

    Most writes to a pod change its status alone; this costs a tenth of reading the references again.
    """
    outline = _read_outline(value)
    claims = tuple((claim.name, claim.resource_claim_name) for claim in outline.status.resource_claim_statuses)
    extended = outline.status.extended_resource_claim_status
    return hash((bytes(outline.spec), claims, extended.resource_claim_name if extended else ""))


def _named(resource: str, key: _Key | None) -> Iterator[tuple[str, str]]:
    if key is not None and key.name:
        yield resource, key.name


def _claim_of(volume: Mapping[str, Any], pod: str) -> str:
    """Returns the PersistentVolumeClaim of a volume; that of an ephemeral one is named after pod and volume."""
    if claim := volume.get("persistentVolumeClaim"):
        return str(claim.get("claimName", ""))
    return f"{pod}-{volume.get('name', '')}" if volume.get("ephemeral") else ""


def _in_volume(volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    found = [
        ("secrets", (volume.get("secret") or {}).get("secretName")),
        ("secrets", (volume.get("azureFile") or {}).get("secretName")),
        ("secrets", ((volume.get("csi") or {}).get("nodePublishSecretRef") or {}).get("name")),
        ("configmaps", (volume.get("configMap") or {}).get("name")),
        *(("secrets", ((volume.get(kind) or {}).get("secretRef") or {}).get("name")) for kind in _SECRET_SOURCES),
    ]
    for source in (volume.get("projected") or {}).get("sources") or ():
        found.append(("secrets", (source.get("secret") or {}).get("name")))
        found.append(("configmaps", (source.get("configMap") or {}).get("name")))
    for resource, name in found:
        if name:
            yield resource, name


def claim_of_volume(volume: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns namespace and name of the claim that a PersistentVolume is bound to."""
    claim = (volume.get("spec") or {}).get("claimRef") or {}
    namespace, name = claim.get("namespace", ""), claim.get("name", "")
    return (namespace, name) if namespace and name else None


def secrets_of_volume(volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields namespace and name of the secrets that nodes need for a PersistentVolume."""
    spec = volume.get("spec") or {}
    own = (spec.get("claimRef") or {}).get("namespace", "")
    azure, csi = spec.get("azureFile") or {}, spec.get("csi") or {}
    found = [{"name": azure.get("secretName"), "namespace": azure.get("secretNamespace")}]
    found += [csi.get(field) or {} for field in _CSI_SECRETS]
    found += [(spec.get(kind) or {}).get("secretRef") or {} for kind in _SECRET_SOURCES]
    for secret in found:
        if name := secret.get("name"):
            yield secret.get("namespace") or own, name


_FREE_VOLUMES = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def any_reference(pod: Mapping[str, Any]) -> str:
    """Returns what kind of API object a pod refers to, in upstream's words; empty when it refers to none."""
    bound = msgspec.convert(pod, BoundPod)
    if bound.spec.service_account_name:
        return "serviceaccounts"
    for resource, _ in sorted(bound.secrets_and_config_maps(), reverse=True):
        return resource
    if bound.spec.resource_claims:
        return "resourceclaims"
    for volume in bound.spec.volumes:
        kinds = [kind for kind, source in volume.items() if kind != "name" and source is not None]
        if kinds == ["projected"]:
            sources = [kind for source in volume["projected"].get("sources") or () for kind in source]
            if refused := next((kind for kind in sources if kind != "downwardAPI"), ""):
                return _PROJECTED.get(refused, f"unknown source for projected volume {volume.get('name')}")
        elif not _FREE_VOLUMES.issuperset(kinds):
            return next((_VOLUMES[kind] for kind in kinds if kind in _VOLUMES), f"unknown volume {volume.get('name')}")
    return ""
