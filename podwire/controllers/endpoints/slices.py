"""Distributes endpoints over EndpointSlices with as few writes as possible. Pure.

All endpoints of a slice have the same ports. A slice that has to be written anyway takes new endpoints first; then an
unchanged one is written if everything fits into it; then new slices are created. A slice that nobody needs is reused
for a new one. Slices are not rebalanced: a few half-full ones are cheaper than watchers that receive everything again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from podwire.protocols.k8sapi.watch import Object

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MOST_ENDPOINTS = 100
"""Endpoints of one slice."""

Endpoint = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """Endpoints that have the same ports."""

    ports: Sequence[Mapping[str, Any]]
    endpoints: Sequence[Endpoint]


def grouped(endpoints: Iterable[tuple[Sequence[Mapping[str, Any]], Endpoint | None]]) -> list[Group]:
    """Groups endpoints by their ports."""
    groups: dict[bytes, tuple[Sequence[Mapping[str, Any]], list[Endpoint]]] = {}
    for ports, endpoint in endpoints:
        if endpoint is not None:
            groups.setdefault(port_key(ports), (ports, []))[1].append(endpoint)
    return [Group(ports, members) for ports, members in groups.values()]


@dataclass(slots=True)
class Changes:
    """The slices to write."""

    create: list[Object] = field(default_factory=list)
    update: list[Object] = field(default_factory=list)
    delete: list[Object] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The metadata of all slices of one object."""

    reference: Mapping[str, Any]
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] | None = None
    """None: annotations are not compared."""

    def owns(self, existing: Object) -> bool:
        owners = existing["metadata"].get("ownerReferences") or ()
        return any(owner.get("uid") == self.reference["uid"] for owner in owners)

    def new(self, family: str, ports: Sequence[Mapping[str, Any]]) -> Object:
        metadata: dict[str, Any] = {
            "generateName": f"{self.name[:57]}-",
            "namespace": self.namespace,
            "labels": dict(self.labels),
            "ownerReferences": [dict(self.reference)],
        }
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": family,
            "endpoints": [],
            "ports": [dict(port) for port in ports],
        }

    def labelled(self, existing: Object) -> Object:
        metadata = {**existing["metadata"], "labels": dict(self.labels)}
        if self.annotations is not None:
            metadata["annotations"] = dict(self.annotations)
        return {**existing, "metadata": metadata}

    def is_labelled(self, existing: Object) -> bool:
        meta = existing["metadata"]
        if self.annotations is not None and (meta.get("annotations") or {}) != self.annotations:
            return False
        return (meta.get("labels") or {}) == self.labels


def port_key(ports: Iterable[Mapping[str, Any]]) -> bytes:
    """Returns a key that is equal for the same ports in any order."""
    rows = [
        [port.get("name") or "", port.get("port") or 0, port.get("protocol") or "TCP", port.get("appProtocol") or ""]
        for port in ports or ()
    ]
    return msgspec.json.encode(sorted(rows))


def _identity(endpoint: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    return tuple(endpoint["addresses"]), (endpoint.get("targetRef") or {}).get("uid", "")


def distribute(
    owner: Owner,
    family: str,
    groups: Sequence[Group],
    existing: Sequence[Object],
    most: int = MOST_ENDPOINTS,
    *,
    placeholder: bool = True,
) -> Changes:
    """Returns the writes that bring the slices of one family to the given endpoints.

    With `placeholder`, an owner without endpoints keeps one empty slice, so that clients know that there are none.
    """
    changes = Changes()
    by_ports: dict[bytes, list[Object]] = {}
    for old in existing:
        if owner.owns(old):
            by_ports.setdefault(port_key(old.get("ports") or ()), []).append(old)
        else:
            changes.delete.append(old)
    for group in groups:
        _fill(owner, family, group, by_ports.pop(port_key(group.ports), []), most, changes)
    for unused in by_ports.values():
        changes.delete += unused
    if placeholder and len(changes.delete) == len(existing) and not changes.create:
        _keep_placeholder(owner, family, changes)
    while changes.create and (reused := next(filter(owner.owns, changes.delete), None)) is not None:
        changes.delete.remove(reused)
        changes.update.append(owner.labelled({**reused, **_content(changes.create.pop())}))
    return changes


def _content(new: Object) -> Object:
    return {key: new[key] for key in ("addressType", "endpoints", "ports")}


def _keep_placeholder(owner: Owner, family: str, changes: Changes) -> None:
    placeholder = owner.new(family, ())
    old = changes.delete[0] if len(changes.delete) == 1 else None
    if (
        old is not None
        and owner.owns(old)
        and owner.is_labelled(old)
        and not old.get("endpoints")
        and not old.get("ports")
    ):
        changes.delete.clear()
    else:
        changes.create.append(placeholder)


def _fill(owner: Owner, family: str, group: Group, existing: Sequence[Object], most: int, changes: Changes) -> None:
    """Distributes the endpoints of one group of ports."""
    missing = {_identity(endpoint): endpoint for endpoint in group.endpoints}
    unchanged: list[Object] = []
    changed: list[Object] = []
    for old in existing:
        before = old.get("endpoints") or []
        kept = [missing.pop(key) for endpoint in before if (key := _identity(endpoint)) in missing]
        if not kept and before:
            changes.delete.append(old)
        elif kept == before and owner.is_labelled(old):
            unchanged.append(old)
        else:
            changed.append({**owner.labelled(old), "endpoints": kept})
    waiting = list(missing.values())
    for slice_ in sorted(changed, key=lambda candidate: -len(candidate["endpoints"])):
        capacity = max(0, most - len(slice_["endpoints"]))
        slice_["endpoints"] += waiting[:capacity]
        del waiting[:capacity]
    changes.update += changed
    while waiting:
        fitting = [old for old in unchanged if len(waiting) + len(old.get("endpoints") or ()) <= most]
        if fitting:
            fullest = max(fitting, key=lambda old: len(old.get("endpoints") or ()))
            endpoints = [*(fullest.get("endpoints") or ()), *waiting]
            changes.update.append({**owner.labelled(fullest), "endpoints": endpoints})
            return
        new = owner.new(family, group.ports)
        new["endpoints"] = waiting[:most]
        del waiting[:most]
        changes.create.append(new)
