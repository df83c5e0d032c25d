"""PATCH bodies: format, decoding, and the change to an object."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from podwire.apiserver.request import bodies
from podwire.apiserver.request.bodies import Body
from podwire.apiserver.write.updates import Change
from podwire.kinds.patches import PatchError, json_patch, merge_patch, strategic
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import ApiError, Reason

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
APPLY_CBOR = "application/apply-patch+cbor"
"""Both are handled by server_side_apply.py, because it can also create the object."""

Patch = Callable[[Object, Any, Resource], Any]

_FORMATS: Mapping[str, Patch] = {
    JSON_PATCH: lambda obj, patch, _resource: json_patch.apply(obj, patch),
    MERGE_PATCH: lambda obj, patch, _resource: merge_patch.apply(obj, patch),
    STRATEGIC: lambda obj, patch, resource: strategic.apply(obj, patch, resource.shape),
}


def change(data: bytes, media: str, resource: Resource, validation: str) -> tuple[Body, Change]:
    """Returns the change of a PATCH body; the Body collects warnings when the change is applied."""
    apply = _format(media, resource)
    body = bodies.decode(data, bodies.JSON)
    with_warnings = Body(None)

    def changed(old: Object) -> Object:
        with_warnings.warnings.clear()
        try:
            value = apply(old, body.value, resource)
        except PatchError as error:
            raise _refused(error) from error
        reread = partial(_shaped, body=body, with_warnings=with_warnings, resource=resource, validation=validation)
        return reread(value) if resource.custom or not isinstance(value, dict) else _decode_touched(value, old, reread)

    return with_warnings, changed


def _shaped(value: Any, body: Body, with_warnings: Body, resource: Resource, validation: str) -> Object:
    return bodies.shaped(Body(value, list(body.duplicates), with_warnings.warnings), resource, validation)


def _decode_touched(value: Object, old: Object, reread: Change) -> Object:
    """Decodes only the parts that a patch touched.

    Stored objects are in normal form already, so a patch of a pod's status need not decode its spec or managedFields
    again. Custom resources are decoded whole, because their schema may have changed.
    """
    alone, touched = _split_touched(value, old)
    metadata = touched.get("metadata")
    if not isinstance(metadata, dict):
        return _join(value, alone, reread(touched))
    below, touched["metadata"] = _split_touched(metadata, old["metadata"])
    obj = reread(touched)
    obj["metadata"] = _join(metadata, below, obj["metadata"])
    return _join(value, alone, obj)


def _split_touched(value: Object, old: Object) -> tuple[Object, Object]:
    """Returns the members that a patch left alone (identical objects, because patches copy what they change) and the
    others."""
    alone = {key: item for key, item in value.items() if key in old and item is old[key]}
    return alone, {key: item for key, item in value.items() if key not in alone}


def _join(value: Object, alone: Object, read: Object) -> Object:
    """Joins both in the order of the patched value; decoding may add or drop members."""
    return {key: alone.get(key, read.get(key)) for key in (*value, *read) if key in alone or key in read}


def _format(media: str, resource: Resource) -> Patch:
    if media not in _known(resource):
        raise ApiError(
            Reason.UNSUPPORTED_MEDIA_TYPE,
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join([*_known(resource), APPLY]),
        )
    return _FORMATS[media]


def _known(resource: Resource) -> list[str]:
    """Returns the supported formats; strategic merge needs merge keys, which custom resources do not have."""
    return [format_ for format_ in _FORMATS if format_ != STRATEGIC or not resource.custom]


_REASONS = {400: Reason.BAD_REQUEST, 413: Reason.TOO_LARGE, 422: Reason.INVALID}


def _refused(error: PatchError) -> ApiError:
    return ApiError(_REASONS.get(error.code, Reason.BAD_REQUEST), error.message, code=error.code)
