"""Errors of the Kubernetes API: what goes wrong, as the Status object that every client understands.

    ApiError                an error with its HTTP code, reason and details; components raise it, the server renders it
    FieldError              one thing wrong with one field; several make an Invalid (422)

Both sides use these: the server renders an ApiError as a Status, the client turns a Status back into an ApiError.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec


class Reason(enum.StrEnum):
    BAD_REQUEST = "BadRequest"
    UNAUTHORIZED = "Unauthorized"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "NotFound"
    METHOD_NOT_ALLOWED = "MethodNotAllowed"
    NOT_ACCEPTABLE = "NotAcceptable"
    ALREADY_EXISTS = "AlreadyExists"
    CONFLICT = "Conflict"
    GONE = "Gone"
    EXPIRED = "Expired"
    TOO_LARGE = "RequestEntityTooLarge"
    UNSUPPORTED_MEDIA_TYPE = "UnsupportedMediaType"
    INVALID = "Invalid"
    TOO_MANY_REQUESTS = "TooManyRequests"
    INTERNAL_ERROR = "InternalError"
    SERVER_TIMEOUT = "ServerTimeout"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    TIMEOUT = "Timeout"
    UNKNOWN = ""


CODES: Mapping[Reason, int] = {
    Reason.BAD_REQUEST: 400,
    Reason.UNAUTHORIZED: 401,
    Reason.FORBIDDEN: 403,
    Reason.NOT_FOUND: 404,
    Reason.METHOD_NOT_ALLOWED: 405,
    Reason.NOT_ACCEPTABLE: 406,
    Reason.ALREADY_EXISTS: 409,
    Reason.CONFLICT: 409,
    Reason.GONE: 410,
    Reason.EXPIRED: 410,
    Reason.TOO_LARGE: 413,
    Reason.UNSUPPORTED_MEDIA_TYPE: 415,
    Reason.INVALID: 422,
    Reason.TOO_MANY_REQUESTS: 429,
    Reason.INTERNAL_ERROR: 500,
    Reason.SERVER_TIMEOUT: 500,
    Reason.SERVICE_UNAVAILABLE: 503,
    Reason.TIMEOUT: 504,
}


class Problem(enum.StrEnum):
    """Problems of a field; the value is upstream's text, the cause's reason is `cause`."""

    REQUIRED = "Required value"
    INVALID = "Invalid value"
    NOT_SUPPORTED = "Unsupported value"
    DUPLICATE = "Duplicate value"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "Not found"
    TOO_LONG = "Too long"
    TOO_MANY = "Too many"

    @property
    def cause(self) -> str:
        return _CAUSES[self]


_CAUSES = {
    Problem.REQUIRED: "FieldValueRequired",
    Problem.INVALID: "FieldValueInvalid",
    Problem.NOT_SUPPORTED: "FieldValueNotSupported",
    Problem.DUPLICATE: "FieldValueDuplicate",
    Problem.FORBIDDEN: "FieldValueForbidden",
    Problem.NOT_FOUND: "FieldValueNotFound",
    Problem.TOO_LONG: "FieldValueTooLong",
    Problem.TOO_MANY: "FieldValueTooMany",
}

MOST_TOLD = 100
"""Problems of one object that are reported; a body may hold a hundred thousand, and each answer is for one reader."""
LONGEST_SHOWN = 1000
"""Characters of a value, and of what is said about it, that a problem repeats."""

OMITTED = object()
"""A value that a problem does not repeat, because it is too large to be read."""

_SILENT = (Problem.REQUIRED, Problem.FORBIDDEN, Problem.TOO_LONG)
"""Problems whose text does not repeat the value."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field, one problem: `spec.containers[0].image: Required value`."""

    problem: Problem
    field: str
    value: Any = None
    detail: str = ""

    def __str__(self) -> str:
        text = f"{self.field}: {self.body}"
        return text if self.field else self.body

    @property
    def body(self) -> str:
        """The text without the field, as a Status cause carries it."""
        parts = [str(self.problem.value)]
        if self.problem not in _SILENT and self.value is not OMITTED:
            parts.append(_shown(self.value))
        if self.detail:
            parts.append(_short(self.detail))
        return ": ".join(parts)


def _shown(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return _short(msgspec.json.encode(value).decode())


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(Problem.REQUIRED, field, "", detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(Problem.INVALID, field, value, detail)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(Problem.FORBIDDEN, field, "", detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(Problem.DUPLICATE, field, value)


def not_supported(field: str, value: Any, allowed: Iterable[str]) -> FieldError:
    quoted = ", ".join(f'"{value}"' for value in sorted(allowed))
    return FieldError(Problem.NOT_SUPPORTED, field, value, f"supported values: {quoted}")


def too_long(field: str, limit: int) -> FieldError:
    return FieldError(Problem.TOO_LONG, field, "", f"may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError(Problem.TOO_MANY, field, count, f"must have at most {limit} items")


class ApiError(Exception):
    """A refusal in the API's own form. `headers` are extra response headers (Retry-After)."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        code: int | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Sequence[tuple[str, str]] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.code = code if code is not None else CODES.get(reason, 500)
        self.details = dict(details) if details else {}
        self.headers = tuple(headers)
        self.metadata = dict(metadata) if metadata else {}

    def status(self) -> dict[str, Any]:
        """The Status object that goes over the wire."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": str(self.reason.value),
            "details": self.details,
            "code": self.code,
        }
        if not self.details:
            del status["details"]
        if not self.reason.value:
            del status["reason"]
        return status

    @classmethod
    def from_status(cls, status: Mapping[str, Any], *, code: int = 500) -> Self:
        """Converts a peer's Status; a missing code is taken from the HTTP answer."""
        try:
            reason = Reason(status.get("reason") or "")
        except ValueError:
            reason = Reason.UNKNOWN
        return cls(
            reason,
            str(status.get("message") or f"HTTP {code}"),
            code=int(status.get("code") or code),
            details=status.get("details"),
            metadata=status.get("metadata"),
        )


def bad_request(message: str) -> ApiError:
    return ApiError(Reason.BAD_REQUEST, message)


def not_found(resource: str, name: str, *, group: str = "") -> ApiError:
    return ApiError(
        Reason.NOT_FOUND,
        f'{qualified(resource, group)} "{name}" not found',
        details=named(resource, name, group),
    )


def no_such_resource() -> ApiError:
    return ApiError(Reason.NOT_FOUND, "the server could not find the requested resource")


def already_exists(resource: str, name: str, *, group: str = "") -> ApiError:
    return ApiError(
        Reason.ALREADY_EXISTS,
        f'{qualified(resource, group)} "{name}" already exists',
        details=named(resource, name, group),
    )


def conflict(resource: str, name: str, why: str, *, group: str = "") -> ApiError:
    return ApiError(
        Reason.CONFLICT,
        f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}',
        details=named(resource, name, group),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def invalid_object(kind: str, name: str, errors: Sequence[FieldError], *, group: str = "") -> ApiError:
    """422 with one cause per field error; one error is message plainly, several in brackets."""
    name = _short(name)
    texts = list(dict.fromkeys(str(error) for error in errors[:MOST_TOLD]))
    if len(errors) > MOST_TOLD:
        texts.append(f"and {len(errors) - MOST_TOLD} more")
    message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [
        {"reason": error.problem.cause, "message": error.body, "field": error.field} for error in errors[:MOST_TOLD]
    ]
    shown = f"{kind}.{group}" if group else kind
    return ApiError(
        Reason.INVALID,
        f'{shown} "{name}" is invalid: {message}',
        details={**named(kind, name, group), "causes": causes},
    )


def access_denied(message: str, *, resource: str = "", name: str = "", group: str = "") -> ApiError:
    return ApiError(Reason.FORBIDDEN, message, details=named(resource, name, group))


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> ApiError:
    return ApiError(Reason.METHOD_NOT_ALLOWED, message)


def qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def named(resource: str, name: str, group: str) -> dict[str, Any]:
    """Status details, without the parts that are empty."""
    parts = {"name": name, "group": group, "kind": resource}
    return {key: value for key, value in parts.items() if value}
