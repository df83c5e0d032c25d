"""Decodes request bodies: media type, kind check, schema, unknown fields by `fieldValidation`."""

from typing import Any

import msgspec

from podwire.apiserver.request import offload
from podwire.kinds.resource import Resource
from podwire.kinds.shape import Report, Shape, TypeMismatch
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi import cbor, codec, protobuf, yamls
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import BodyTooLarge, Request
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request

BODY_LIMIT = 3 * 1024 * 1024

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


class Body(msgspec.Struct):
    """A decoded body that was not checked against a schema; `warnings` become Warning headers."""

    value: Any
    duplicates: list[str] = []
    """The error of keys that are given more than once."""
    warnings: list[str] = []


async def read(request: Request) -> bytes:
    """Reads the whole body, at most 3 MiB. Compressed bodies are refused, because their real size is unknown."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise ApiError(
            Reason.UNSUPPORTED_MEDIA_TYPE,
            f'a body with content encoding "{encoding}" is not supported; send it without',
            headers=(("Accept-Encoding", "identity"),),
        )
    try:
        data = await request.read(BODY_LIMIT)
    except BodyTooLarge as error:
        raise ApiError(
            Reason.TOO_LARGE, f"Request entity too large: limit is {BODY_LIMIT}", headers=(("Connection", "close"),)
        ) from error
    offload.note_size(len(data))
    return data


def media_type(request: Request) -> str:
    """Returns the body's media type without parameters; JSON by default."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def decode(data: bytes, media: str, *, custom: bool = False) -> Body:
    """Decodes a body to its JSON value."""
    if not data:
        raise bad_request("couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)")
    try:
        if media in (JSON, "*/*"):
            decoded = codec.decode_json(data)
        elif media == YAML:
            decoded = yamls.decode_yaml(data)
        elif media == PROTOBUF and not custom:
            return Body(protobuf.decode(data))
        elif media == cbor.MEDIA:
            return Body(cbor.decode(data))
        else:
            raise unknown_format(custom=custom)
    except codec.BadBody as error:
        raise bad_request(str(error)) from error
    if decoded.repeated:
        return Body(decoded.value, ["yaml: unmarshal errors:\n  " + "\n  ".join(decoded.repeated)])
    return Body(decoded.value, [f'duplicate field "{path}"' for path in decoded.duplicates])


def unknown_format(*, custom: bool) -> ApiError:
    known = ", ".join([JSON, YAML] if custom else [JSON, YAML, PROTOBUF])
    return ApiError(
        Reason.UNSUPPORTED_MEDIA_TYPE,
        f"the body of the request was in an unknown format - accepted media types include: {known}",
    )


def shaped(body: Body, resource: Resource, validation: str) -> Object:
    """Returns the body as an object of the resource's kind, in normal form."""
    return shape_as(body, resource.kind, resource.shape, validation, custom=resource.custom)


def shape_as(body: Body, kind: Kind, shape: Shape, validation: str, *, custom: bool = False) -> Object:
    """Returns the body as an object of `kind`; unknown fields are refused, warned about or dropped."""
    value = body.value
    if not isinstance(value, dict):
        raise bad_request(f"{_handled(kind)}: the body must be a JSON object")
    _check_kind(value, kind, custom=custom)
    report = Report(duplicates=body.duplicates)
    try:
        obj: Object = shape.decode(value, "", report)
    except TypeMismatch as error:
        raise bad_request(f"{_handled(kind)}: {error}") from error
    _report_unknown_fields(report, kind, validation, body.warnings)
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    if not isinstance(obj.get("metadata"), dict):
        obj["metadata"] = {}
    return obj


def _check_kind(value: Object, kind: Kind, *, custom: bool) -> None:
    """Checks that a body is of the URL's kind. Built-in kinds may omit apiVersion and kind; custom ones may not."""
    api_version, name = value.get("apiVersion"), value.get("kind")
    for word, found in (("apiVersion", api_version), ("kind", name)):
        if not isinstance(found, str | None):
            raise bad_request(f"couldn't get version/kind; json parse error: .{word} must be a string")
    if custom and not name:
        raise bad_request("Object 'Kind' is missing in the body")
    given = api_version or ""
    if (given or custom) and given != kind.api_version:
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({kind.api_version})"
        )
    if name and name != kind.kind:
        raise bad_request(f"the kind in the data ({name}) does not match the expected kind ({kind.kind})")


def _handled(kind: Kind) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def _report_unknown_fields(report: Report, kind: Kind, validation: str, warnings: list[str]) -> None:
    complaints = [f'unknown field "{field}"' for field in report.unknown]
    complaints += report.duplicates
    if not complaints or validation == "Ignore":
        return
    if validation == "Strict":
        raise bad_request(f"{_handled(kind)}: strict decoding error: {', '.join(complaints)}")
    warnings += complaints
