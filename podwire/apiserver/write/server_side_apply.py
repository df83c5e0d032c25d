"""Server-side apply: reads and checks a configuration, and builds its change."""

from collections.abc import Callable, Mapping
from typing import Any

from podwire.apiserver.request import bodies
from podwire.apiserver.request.bodies import Body
from podwire.apiserver.request.call import Call, boolean_option
from podwire.apiserver.write import patches
from podwire.apiserver.write.field_managers import MANAGED_FIELDS, Tracker
from podwire.apiserver.write.updates import Change
from podwire.kinds.apply.errors import configuration_errors, joined
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi import cbor
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request, conflict, invalid_object, required

MEDIA: Mapping[str, str] = {patches.APPLY: bodies.YAML, patches.APPLY_CBOR: cbor.MEDIA}
"""The media types of apply, and the type of their bodies. JSON is sent as YAML, which it is."""


def require_manager(request: Request) -> None:
    """Refuses an apply request without a field manager."""
    if not request.option("fieldManager"):
        error = required("fieldManager", "is required for apply patch")
        raise invalid_object("PatchOptions", "", [error], group="meta.k8s.io")


def configuration(data: bytes, call: Call, validation: str) -> Body:
    """Returns the configuration in a body, restricted to the subresource; raises BadRequest."""
    body = bodies.decode(data, MEDIA[bodies.media_type(call.request)])
    resource, config = call.resource, body.value
    if not isinstance(config, dict):
        raise bad_request("error decoding YAML: the body must be an object")
    _check_kind(config, resource.kind)
    metadata = config.get("metadata")
    if not isinstance(metadata, dict):
        if metadata is not None:
            raise bad_request("error decoding YAML: metadata must be an object")
        metadata = config["metadata"] = {}
    if metadata.get(MANAGED_FIELDS) is not None:
        raise bad_request("metadata.managedFields must be nil")
    if found := configuration_errors(resource.typed, config):
        place = f"{metadata.get('namespace') or ''}/{metadata.get('name') or call.name}"
        what = f"failed to create typed patch object ({place}; {_named(config)})"
        raise ApiError(Reason.UNKNOWN, f"{what}: {joined(found)}", code=500)
    _report_duplicates(body, validation)
    body.value = _restricted(resource, call.target.subresource, config)
    return body


def _check_kind(config: Object, kind: Kind) -> None:
    if (config.get("apiVersion"), config.get("kind")) != (kind.api_version, kind.kind):
        raise bad_request(f"invalid object type: {_named(config)}")


def _named(config: Object) -> str:
    """Formats a group, version and kind as Go does."""
    api_version = str(config.get("apiVersion") or "")
    place = api_version if "/" in api_version else f"/{api_version}"
    return f"{place}, Kind={config.get('kind') or ''}"


def _report_duplicates(body: Body, validation: str) -> None:
    problems = [f"error converting YAML to JSON: {problem}" for problem in body.duplicates]
    if not problems or validation == "Ignore":
        return
    if validation == "Strict":
        raise bad_request(f"error strict decoding YAML: {', '.join(problems)}")
    body.warnings += problems


def _restricted(resource: Resource, subresource: str, config: Object) -> Object:
    """Returns the part of a configuration that the subresource can change; the rest is not claimed."""
    if subresource in ("status", "approval"):
        kept = {"apiVersion", "kind", "metadata", "status"}
        metadata = config["metadata"]
        if resource.custom:
            metadata = {key: value for key, value in metadata.items() if key in _IDENTITY}
        return {key: metadata if key == "metadata" else value for key, value in config.items() if key in kept}
    if subresource in _PARTS:
        spec = config.get("spec")
        return {**config, "spec": _PARTS[subresource](spec)} if isinstance(spec, dict) else config
    if resource.has_status and not subresource:
        return {key: value for key, value in config.items() if key != "status"}
    return config


_IDENTITY = ("name", "namespace", "uid", "resourceVersion")


def _ephemeral(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if key == "ephemeralContainers"}


def _resized(spec: Object) -> Object:
    kept = ("name", "resources", "resizePolicy")
    return {
        part: [{key: value for key, value in container.items() if key in kept} for container in spec[part]]
        for part in ("containers", "initContainers")
        if spec.get(part)
    }


def _finalized(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if key == "finalizers"}


_PARTS: Mapping[str, Callable[[Object], Object]] = {
    "ephemeralcontainers": _ephemeral,
    "finalize": _finalized,
    "resize": _resized,
}


def change(tracker: Tracker, call: Call, config: Object) -> Change:
    """Returns the change that a configuration makes to an existing object."""
    force = boolean_option(call.request, "force")

    def applied(old: Object) -> Object:
        return _shaped(call.resource, *tracker.applied(call.resource, old, config, call.field_manager, force=force))

    return applied


def first(tracker: Tracker, call: Call, config: Object) -> Object:
    """Returns the object that a configuration creates."""
    if uid := config["metadata"].get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(call.resource.name, call.name, why, group=call.resource.group)
    return _shaped(call.resource, *tracker.applied(call.resource, None, config, call.field_manager, force=True))


def _shaped(resource: Resource, obj: Object, entries: list[Object]) -> Object:
    """Returns the object in normal form. Unknown fields were refused already, except those that older schemas
    allowed."""
    shaped: dict[str, Any] = bodies.shaped(Body(obj), resource, "Ignore")
    shaped["metadata"][MANAGED_FIELDS] = entries
    return shaped
