"""AdmissionReview: the request that a webhook is sent, and its answer, checked. Pure."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from podwire.kinds import stored
from podwire.kinds.policies.webhook import Webhook
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import ApiError, Reason

GROUP = "admission.k8s.io"
_BAD_REQUEST = 400


class BadAnswer(Exception):
    """An answer that is not an AdmissionReview as it must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a webhook."""

    allowed: bool
    operations: Any = None
    """A JSON patch; None without one."""
    result: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def encode_review(
    webhook: Webhook, uid: str, request: Mapping[str, Any], new: Object | None, old: Object | None
) -> bytes:
    """Returns the review for a webhook, in the version that it prefers."""
    return stored.encode(
        {
            "kind": "AdmissionReview",
            "apiVersion": f"{GROUP}/{webhook.review_version}",
            "request": {"uid": uid, **request, "object": new, "oldObject": old},
        }
    )


def read_answer(webhook: Webhook, uid: str, review: Any, *, mutating: bool) -> Answer:
    """Returns the answer in a review; raises BadAnswer. Of v1beta1, neither uid nor types are checked, as upstream."""
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise BadAnswer("webhook response was absent")
    try:
        answer = msgspec.convert(response, _Response)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"webhook response cannot be decoded: {error}") from error
    strict = webhook.review_version == "v1"
    if strict:
        if answer.uid != uid:
            raise BadAnswer(f'expected response.uid="{uid}", got "{answer.uid}"')
        kind = f"{review.get('apiVersion') or '/'}, Kind={review.get('kind') or ''}"
        if kind != f"{GROUP}/v1, Kind=AdmissionReview":
            raise BadAnswer(f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {kind}")
        _check_patch(answer, mutating=mutating)
    return Answer(
        allowed=answer.allowed,
        operations=_operations(answer, strict=strict) if mutating and answer.patch else None,
        result=answer.status or {},
        warnings=tuple(answer.warnings or ()),
        annotations=answer.auditAnnotations or {},
    )


class _Response(msgspec.Struct):
    uid: str = ""
    allowed: bool = False
    patch: str | None = None
    patchType: str | None = None  # noqa: N815 - the name on the wire
    status: dict[str, Any] | None = None
    warnings: list[str] | None = None
    auditAnnotations: dict[str, str] | None = None  # noqa: N815 - the name on the wire


def _check_patch(answer: _Response, *, mutating: bool) -> None:
    if not mutating:
        if answer.patch:
            raise BadAnswer("validating webhook may not return response.patch")
        if answer.patchType is not None:
            raise BadAnswer("validating webhook may not return response.patchType")
    elif answer.patch and answer.patchType is None:
        raise BadAnswer("webhook returned response.patch but not response.patchType")
    elif not answer.patch and answer.patchType is not None:
        raise BadAnswer("webhook returned response.patchType but not response.patch")
    elif answer.patchType == "":
        raise BadAnswer('webhook returned invalid response.patchType of ""')


def _operations(answer: _Response, *, strict: bool) -> Any:
    if strict and answer.patchType != "JSONPatch":
        raise BadAnswer(f'unsupported patch type "{answer.patchType}"')
    try:
        return msgspec.json.decode(base64.b64decode(answer.patch or "", validate=True))
    except (binascii.Error, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadAnswer(f"received undecodable patch in webhook response: {error}") from error


def denied(webhook: Webhook, result: Mapping[str, Any]) -> ApiError:
    """Returns the refusal of a webhook, with the code, reason and details that it gave."""
    by = f'admission webhook "{webhook.name}" denied the request'
    code = result.get("code")
    message, reason = result.get("message"), result.get("reason")
    text = f"{by}: {message or reason}" if message or reason else f"{by} without explanation"
    known = Reason(str(reason)) if reason in {*Reason} else Reason.UNKNOWN
    details = result.get("details")
    return ApiError(
        known,
        text,
        code=code if isinstance(code, int) and _BAD_REQUEST <= code < 600 else _BAD_REQUEST,
        details=details if isinstance(details, dict) else None,
    )
