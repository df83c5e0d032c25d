"""The kinds that a CustomResourceDefinition makes: one for each version that it serves."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.schema.discovery import version_order
from podwire.protocols.k8sapi.kinds import Kind, Subresource

Json = Mapping[str, Any]

_VERBS = ("get", "patch", "update")


def names_of(crd: Json) -> Json:
    """Returns the names that are in force: the accepted ones, or before any are accepted those asked for."""
    accepted: Json = (crd.get("status") or {}).get("acceptedNames") or {}
    requested: Json = crd["spec"]["names"]
    return accepted if accepted.get("plural") and accepted.get("kind") else requested


def kinds_of(crd: Json) -> list[Kind]:
    """Returns one kind for each served version, in the definition's order."""
    return [_kind(crd, version) for version in crd["spec"]["versions"] if version.get("served")]


def storage_version(crd: Json) -> str:
    """Returns the version in which objects are stored."""
    return next(str(version["name"]) for version in crd["spec"]["versions"] if version.get("storage"))


def selectable_fields(version: Json) -> tuple[str, ...]:
    """Returns the field-selector paths that a version adds, such as `spec.color`."""
    return tuple(field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or [])


def scale_path(version: Json, name: str) -> tuple[str, ...]:
    """Returns the words of a path that the scale subresource of a version names, such as `specReplicasPath`."""
    scale: Json = (version.get("subresources") or {}).get("scale") or {}
    return tuple(filter(None, scale.get(name, "").split(".")))


def written_otherwise(crd: Json) -> bool:
    """Returns whether stored objects may not fit a version's schema: versions have different schemas, or the
    definition has changed since it was created."""
    schemas = [version.get("schema") for version in crd["spec"]["versions"]]
    return (crd["metadata"].get("generation") or 1) > 1 or any(schema != schemas[0] for schema in schemas)


def deprecation(crd: Json, version: Json) -> str:
    """Returns the warning for users of a deprecated version: the author's words, or the newer version to use."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    group, kind = crd["spec"]["group"], names_of(crd)["kind"]
    newer = [other["name"] for other in crd["spec"]["versions"] if other.get("served") and not other.get("deprecated")]
    newer = [name for name in newer if version_order(name) < version_order(version["name"])]
    warning = f"{group}/{version['name']} {kind} is deprecated"
    return f"{warning}; use {group}/{min(newer, key=version_order)} {kind}" if newer else warning


def _kind(crd: Json, version: Json) -> Kind:
    spec, names = crd["spec"], names_of(crd)
    kind = names["kind"]
    return Kind(
        group=spec["group"],
        version=version["name"],
        resource=names["plural"],
        kind=kind,
        namespaced=spec.get("scope") == "Namespaced",
        singular=names.get("singular") or kind.lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(_subresources(version.get("subresources") or {})),
        listed_as=names.get("listKind") or "",
    )


def _subresources(asked: Json) -> list[Subresource]:
    subresources = []
    if asked.get("scale") is not None:
        subresources.append(Subresource("scale", _VERBS, "Scale", "autoscaling", "v1"))
    if asked.get("status") is not None:
        subresources.append(Subresource("status", _VERBS))
    return subresources
