"""Discovery documents as kinds: what a server announces, in the aggregated form or the plain one. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from podwire.protocols.k8sapi.kinds import Kind, Subresource

Document = Mapping[str, Any]

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def aggregated_kinds(document: Document) -> Iterator[Kind]:
    """The kinds of an APIGroupDiscoveryList, in the server's order of preference."""
    for group in document.get("items", ()):
        name = group.get("metadata", {}).get("name", "")
        for version in group.get("versions", ()):
            for resource in version.get("resources", ()):
                yield _aggregated(name, version["version"], resource)


def _aggregated(group: str, version: str, resource: Document) -> Kind:
    return Kind(
        group=group,
        version=version,
        resource=resource["resource"],
        kind=resource.get("responseKind", {}).get("kind", ""),
        namespaced=resource.get("scope") == "Namespaced",
        singular=resource.get("singularResource", ""),
        short_names=tuple(resource.get("shortNames", ())),
        categories=tuple(resource.get("categories", ())),
        verbs=tuple(resource.get("verbs", ())),
        subresources=tuple(
            Subresource(
                subresource["subresource"],
                tuple(subresource.get("verbs", ())),
                *_gvk(subresource.get("responseKind", {})),
            )
            for subresource in resource.get("subresources", ())
        ),
    )


def _gvk(kind: Document) -> tuple[str, str, str]:
    return kind.get("kind", ""), kind.get("group", ""), kind.get("version", "")


def group_versions(groups: Document) -> list[tuple[str, str]]:
    """Group and version of every entry of an APIGroupList, the preferred version of a group first."""
    found = []
    for group in groups.get("groups", ()):
        preferred = group.get("preferredVersion", {}).get("version", "")
        versions = [version["version"] for version in group.get("versions", ())]
        found += [(group["name"], version) for version in sorted(versions, key=lambda name: name != preferred)]
    return found


def plain_kinds(group: str, version: str, resources: Document) -> Iterator[Kind]:
    """The kinds of an APIResourceList."""
    rows = resources.get("resources", ())
    for row in rows:
        if "/" not in row["name"]:
            yield Kind(
                group=group,
                version=version,
                resource=row["name"],
                kind=row.get("kind", ""),
                namespaced=bool(row.get("namespaced")),
                singular=row.get("singularName", ""),
                short_names=tuple(row.get("shortNames") or ()),
                categories=tuple(row.get("categories") or ()),
                verbs=tuple(row.get("verbs") or ()),
                subresources=tuple(_below(row["name"], rows)),
            )


def _below(resource: str, rows: Iterable[Document]) -> Iterator[Subresource]:
    for row in rows:
        parent, _, name = row["name"].partition("/")
        if parent == resource and name:
            yield Subresource(name, tuple(row.get("verbs") or ()), *_gvk(row))
