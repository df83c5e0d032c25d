"""Defaults of a pod's volumes and of the same sources in a PersistentVolume."""

from collections.abc import Callable, Mapping
from typing import Any

from podwire.kinds.podspec.container_defaults import default_field_ref, pull_policy
from podwire.kinds.podspec.resource_defaults import round_up_requirements

_MODE = 0o644


def default_volume(volume: dict[str, Any]) -> None:
    """A volume without a source is an emptyDir."""
    if len(volume) <= 1:  # nothing but its name
        volume["emptyDir"] = {}
        return
    for name, source in volume.items():
        if (function := _SOURCES.get(name)) is not None and source is not None:
            function(source)


def default_claim_spec(spec: dict[str, Any]) -> None:
    spec.setdefault("volumeMode", "Filesystem")
    resources = spec.get("resources")
    if resources is None:
        spec["resources"] = {}
    else:
        round_up_requirements(resources)


def default_source(volume: dict[str, Any]) -> None:
    """The sources that pods and PersistentVolumes share."""
    for name in ("hostPath", "rbd", "iscsi", "azureDisk", "scaleIO"):
        if (source := volume.get(name)) is not None:
            _SOURCES[name](source)


def _mode(source: dict[str, Any]) -> None:
    source.setdefault("defaultMode", _MODE)


def _downward_api(source: dict[str, Any]) -> None:
    _mode(source)
    _field_refs(source)


def _field_refs(source: dict[str, Any]) -> None:
    for item in source.get("items") or ():
        if reference := item.get("fieldRef"):
            default_field_ref(reference)


def _projected(source: dict[str, Any]) -> None:
    _mode(source)
    for projection in source.get("sources") or ():
        if (token := projection.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", 3600)
        if (downward := projection.get("downwardAPI")) is not None:
            _field_refs(downward)


def _host_path(source: dict[str, Any]) -> None:
    source.setdefault("type", "")


def _image(source: dict[str, Any]) -> None:
    if not source.get("pullPolicy"):
        source["pullPolicy"] = pull_policy(source.get("reference", ""))


def _ephemeral(source: dict[str, Any]) -> None:
    if (template := source.get("volumeClaimTemplate")) is not None:
        template.setdefault("metadata", {})
        default_claim_spec(template.setdefault("spec", {}))


def _unset(**values: Any) -> Callable[[dict[str, Any]], None]:
    """Sets what is missing or empty."""

    def filled(source: dict[str, Any]) -> None:
        for name, value in values.items():
            if source.get(name) in (None, ""):
                source[name] = value

    return filled


_SOURCES: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "configMap": _mode,
    "secret": _mode,
    "downwardAPI": _downward_api,
    "projected": _projected,
    "hostPath": _host_path,
    "image": _image,
    "ephemeral": _ephemeral,
    "iscsi": _unset(iscsiInterface="default"),
    "rbd": _unset(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
    "azureDisk": _unset(cachingMode="ReadWrite", fsType="ext4", kind="Shared", readOnly=False),
    "scaleIO": _unset(storageMode="ThinProvisioned", fsType="xfs"),
}
