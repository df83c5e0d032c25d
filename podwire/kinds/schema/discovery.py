"""Discovery: which groups, versions and resources are served, in the plain and in the aggregated form.

A Discovery is made from the kinds that are served at that moment; when custom kinds come or go, another one is made.
Everything is rendered when it is first asked for.
"""

import base64
import enum
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from podwire.kinds.schema.documents import Document, clauses
from podwire.protocols.k8sapi.kinds import Kind, Subresource
from podwire.protocols.k8sapi.status import ApiError, Reason

JSON = "application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_VERSION = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")
_STAGES = {"": 2, "beta": 1, "alpha": 0}


class Form(enum.Enum):
    """The forms of `/api` and `/apis`."""

    PLAIN = enum.auto()
    AGGREGATED = enum.auto()


@lru_cache(maxsize=64)
def negotiate(accept: str, *, aggregated: bool = True) -> Form:
    """Returns the first form in the header that there is; raises NotAcceptable.

    Aggregated is v2 alone, asked for in full: who asks for v2beta1 and plain JSON (kubectl up to 1.29) must get plain
    JSON, as it takes a v2 answer for an empty list. Only `/api` and `/apis` have the aggregated form.
    """
    for clause in clauses(accept):
        asked = {name: clause.parameters.get(name, "") for name in ("g", "v", "as")}
        if not clause.takes(JSON):
            continue
        if not asked["as"]:
            return Form.PLAIN
        if aggregated and asked == {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}:
            return Form.AGGREGATED
    raise ApiError(Reason.NOT_ACCEPTABLE, f"only the following media types are accepted: {JSON}")


def version_order(version: str) -> tuple[int, int, int, str]:
    """Returns a key that sorts versions as clients prefer them: v2, v1, v1beta2, v1beta1, v1alpha1, then others by
    name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (1, 0, 0, version)
    major, stage, minor = match.groups()
    return (-_STAGES[stage or ""], -int(major), -int(minor or 0), "")


def storage_version_hash(api_version: str, kind: str) -> str:
    """Returns upstream's hash of the version in which objects of a kind are stored. Clients that migrate stored objects
    compare it with the one that they saw before."""
    group, _, version = api_version.rpartition("/")
    return base64.b64encode(hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()


class Discovery:
    """All discovery documents of a set of kinds. Groups keep the order in which they are registered.

    `address` is what `/api` tells clients to connect to, as host:port. `storage_hashes` has the hash of each kind that
    is stored.
    """

    def __init__(
        self, kinds: Iterable[Kind], *, address: str = "", storage_hashes: Mapping[Kind, str] | None = None
    ) -> None:
        self._groups: dict[str, dict[str, list[Kind]]] = {}
        for kind in kinds:
            self._groups.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
        self._address = address
        self._storage_hashes = storage_hashes or {}
        self._documents: dict[tuple[tuple[str, ...], Form], Document | None] = {}

    def document(self, path: str, accept: str = "") -> Document | None:
        """Returns the answer to a GET; None when the path is not a discovery path or names nothing. Raises
        NotAcceptable."""
        words = tuple(path.strip("/").split("/"))
        if words[0] not in ("api", "apis") or len(words) > (2 if words[0] == "api" else 3):
            return None
        form = negotiate(accept, aggregated=len(words) == 1)
        key = (words, form)
        if key not in self._documents:
            rendered = self._aggregated(words[0]) if form is Form.AGGREGATED else self._plain(words)
            if rendered is None:
                return None  # not kept: paths that name nothing are without end
            self._documents[key] = rendered
        return self._documents[key]

    def _plain(self, words: tuple[str, ...]) -> Document | None:
        document: dict[str, Any] | None
        match words:
            case ("api",):
                addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}]
                versions = self._versions("") if "" in self._groups else []
                document = {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": addresses}
            case ("apis",):
                document = self._group_list()
            case ("apis", group):
                known = group in self._groups
                document = {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)} if known else None
            case ("api", version):
                document = self._resource_list("", version)
            case ("apis", group, version) if group:  # the core group has no name and is under /api
                document = self._resource_list(group, version)
            case _:
                document = None
        if not document:
            return None
        body = msgspec.json.encode(document)
        return Document.of(body)

    def _versions(self, group: str) -> list[str]:
        return sorted(self._groups[group], key=version_order)

    def _group_list(self) -> dict[str, Any]:
        groups = [self._group(group) for group in self._groups if group]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _group(self, group: str) -> dict[str, Any]:
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in self._versions(group)]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resource_list(self, group: str, version: str) -> dict[str, Any] | None:
        kinds = self._groups.get(group, {}).get(version)
        if not kinds:
            return None
        resources = [document for kind in _sorted(kinds) for document in self._resources(kind)]
        document = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api_version}
        return {**document, "resources": resources}

    def _resources(self, kind: Kind) -> list[dict[str, Any]]:
        """Returns a resource and its subresources as APIResource objects."""
        entry: dict[str, Any] = {
            "name": kind.resource,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": kind.verbs,
        }
        if kind.short_names:
            entry["shortNames"] = kind.short_names
        if kind.categories:
            entry["categories"] = kind.categories
        if storage_hash := self._storage_hashes.get(kind):
            entry["storageVersionHash"] = storage_hash
        return [entry, *(_subresource(kind, subresource) for subresource in kind.subresources)]

    def _aggregated(self, root: str) -> Document:
        groups = [group for group in self._groups if (group == "") == (root == "api")]
        body = msgspec.json.encode(
            {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": [self._aggregated_group(name) for name in groups],
            }
        )
        etag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
        return Document.of(body, content_type=AGGREGATED, etag=etag, cache_control="public", vary="Accept")

    def _aggregated_group(self, group: str) -> dict[str, Any]:
        versions = [
            {
                "version": version,
                "resources": [_aggregated_resource(kind) for kind in _sorted(self._groups[group][version])],
                "freshness": "Current",
            }
            for version in self._versions(group)
        ]
        return {"metadata": {"name": group} if group else {}, "versions": versions}


def _sorted(kinds: Iterable[Kind]) -> list[Kind]:
    return sorted(kinds, key=lambda each: each.resource)


def _subresource(kind: Kind, subresource: Subresource) -> dict[str, Any]:
    group, version, name = _subresource_kind(kind, subresource)
    entry: dict[str, Any] = {
        "name": f"{kind.resource}/{subresource.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": name,
        "verbs": subresource.verbs,
    }
    if (group, version) != (kind.group, kind.version):
        entry |= {"group": group, "version": version}
    return entry


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": kind.resource,
        "responseKind": _gvk(kind.group, kind.version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    }
    if kind.short_names:
        entry["shortNames"] = kind.short_names
    if kind.categories:
        entry["categories"] = kind.categories
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": subresource.name,
                "responseKind": _gvk(*_subresource_kind(kind, subresource)),
                "verbs": subresource.verbs,
            }
            for subresource in kind.subresources
        ]
    return entry


def _subresource_kind(kind: Kind, subresource: Subresource) -> tuple[str, str, str]:
    if subresource.kind:
        return (subresource.group, subresource.version, subresource.kind)
    return (kind.group, kind.version, kind.kind)


def _gvk(group: str, version: str, kind: str) -> dict[str, str]:
    return {"group": group, "version": version, "kind": kind}
