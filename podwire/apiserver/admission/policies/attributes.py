"""A request as policies see it, in the version that a policy names."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.identity.users import User
from podwire.kinds.policies.matching import Target
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.cel.admission import REQUEST_RESOURCE
from podwire.protocols.cel.functions.authorization import Principal, ResourceCheck
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.storage import Item

_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_TIMES = ("creationTimestamp", "deletionTimestamp")


@dataclass(frozen=True)
class RequestAttributes:
    """One write, connection or deletion in progress."""

    operation: Operation

    @cached_property
    def target(self) -> Target:
        operation = self.operation
        kind, name = operation.resource.kind, operation.name
        itself = kind.resource == "namespaces" and not kind.group
        return Target(
            verb=operation.verb,
            kind=kind,
            subresource=operation.subresource,
            namespace=name if itself else operation.namespace,
            name=name,
        )

    @property
    def objects(self) -> tuple[Object | None, Object | None]:
        """The new object and the old one: a deletion has no new object, a creation no old one."""
        operation = self.operation
        return None if operation.verb == "DELETE" else operation.obj, operation.old

    def known(self, resource: Resource, namespace: Object | None, params: Object | None) -> Mapping[str, Any]:
        """Returns the values of all CEL variables for a policy that matches this resource."""
        new, old = self.seen_as(resource)
        return {
            "object": new,
            "oldObject": old,
            "request": self.request(resource.kind),
            "namespaceObject": _namespace(namespace),
            "params": params,
            **self._authorization,
        }

    @cached_property
    def _authorization(self) -> Mapping[str, Any]:
        """The variables through which expressions ask the authorizer about the user."""
        from podwire.protocols.cel.environment import kept  # noqa: PLC0415 - protobuf, which comes with the first policy

        user, target = self.operation.user, self.target
        principal = Principal(user.name, user.uid, user.groups, dict(user.extra))
        kind, part = target.kind, target.subresource
        requested = ResourceCheck(principal, kind.group, kind.resource, part, target.namespace, target.name)
        return {"authorizer": kept(principal), REQUEST_RESOURCE: kept(requested)}

    def _seen_as(self, resource: Resource, obj: Object | None) -> Object | None:
        own = self.operation.resource
        if obj is None or resource is own or obj.get("kind") != own.kind.kind:
            return obj
        revision = int(obj["metadata"].get("resourceVersion") or 0)
        return resource.unpack(Item("", own.pack(obj), revision, revision))

    def seen_as(self, resource: Resource) -> tuple[Object | None, Object | None]:
        """Returns the new object and the old one in the version of a resource."""
        new, old = self.objects
        return self._seen_as(resource, new), self._seen_as(resource, old)

    def request(self, kind: Kind) -> Mapping[str, Any]:
        """Returns what an AdmissionReview says of the request, without its objects."""
        operation, target = self.operation, self.target
        part = operation.subresource
        attributes: dict[str, Any] = {
            "kind": _kind(kind, part),
            "resource": _resource(kind),
            "requestKind": _kind(target.kind, part),
            "requestResource": _resource(target.kind),
            "operation": operation.verb,
            "userInfo": _user(operation.user),
            "dryRun": operation.dry_run,
        }
        if part:
            attributes |= {"subResource": part, "requestSubResource": part}
        if target.name:
            attributes["name"] = target.name
        if target.namespace:
            attributes["namespace"] = target.namespace
        if operation.verb in _OPTIONS:
            attributes["options"] = {"kind": _OPTIONS[operation.verb], "apiVersion": "meta.k8s.io/v1"}
            if operation.dry_run:
                attributes["options"]["dryRun"] = ["All"]
        return attributes


def _kind(kind: Kind, part: str) -> Mapping[str, str]:
    found = kind.subresource(part) if part else None
    if found is not None and found.kind:
        return {"group": found.group, "version": found.version, "kind": found.kind}
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(kind: Kind) -> Mapping[str, str]:
    return {"group": kind.group, "version": kind.version, "resource": kind.resource}


def _user(user: User) -> Mapping[str, Any]:
    info = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra.items()},
    }
    return {name: value for name, value in info.items() if value}


def _namespace(namespace: Object | None) -> Object | None:
    """Returns a namespace with its times as CEL times, and its uid under the name that the CEL type has."""
    if namespace is None:
        return None
    from podwire.protocols.cel.environment import kept_time  # noqa: PLC0415 - protobuf, which comes with the first policy

    metadata = {**namespace["metadata"]}
    metadata["UID"] = metadata.pop("uid", "")
    metadata |= {name: kept_time(datetime.fromisoformat(metadata[name])) for name in _TIMES if metadata.get(name)}
    status = {**(namespace.get("status") or {})}
    if conditions := status.get("conditions"):
        status["conditions"] = [_condition(condition) for condition in conditions]
    return {"metadata": metadata, "spec": namespace.get("spec") or {}, "status": status}


def _condition(condition: Object) -> Object:
    from podwire.protocols.cel.environment import kept_time  # noqa: PLC0415 - as above

    since = condition.get("lastTransitionTime")
    return {**condition, "lastTransitionTime": kept_time(datetime.fromisoformat(since))} if since else condition
