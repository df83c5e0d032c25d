"""One request to one resource, with its options read and checked."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from podwire.apiserver.identity.authentication import User
from podwire.apiserver.request.negotiation import Form
from podwire.apiserver.write.field_managers import FieldManager, manager_name
from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi.codec import MAX_INT, MIN_INT
from podwire.protocols.k8sapi.paths import Target
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import ApiError, FieldError, Problem, bad_request, invalid_object

FIELD_MANAGER_LIMIT = 128
FIELD_VALIDATIONS = ("Ignore", "Strict", "Warn")
_INTEGER = re.compile("[-+]?[0-9]{1,19}", re.ASCII)


def _nothing() -> None: ...


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A user's verb on a resource, and the form of the answer."""

    request: Request
    user: User
    verb: str
    resource: Resource
    target: Target
    form: Form
    initialized: Callable[[], None] = _nothing
    """Called by a watch that has collected its initial state."""

    @property
    def namespace(self) -> str:
        return self.target.namespace

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def field_manager(self) -> FieldManager:
        """The field manager of the request."""
        manager, program = self.request.option("fieldManager"), self.request.headers.get("user-agent", "")
        return FieldManager(manager_name(manager, program), self.target.subresource)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The query parameters of every write."""

    dry_run: bool = False
    field_validation: str = "Warn"


_NO_OPTIONS = WriteOptions()


def write_options(request: Request, options_kind: str) -> WriteOptions:
    """Reads and checks the options; `options_kind` (CreateOptions, …) is named in errors."""
    if not request.query:
        return _NO_OPTIONS
    errors = []
    dry_run = [value for value in request.query.get("dryRun", []) if value]
    if any(value != "All" for value in dry_run):
        errors.append(FieldError(Problem.NOT_SUPPORTED, "dryRun", dry_run, 'supported values: "All"'))
    manager = request.option("fieldManager")
    if len(manager.encode()) > FIELD_MANAGER_LIMIT:
        errors.append(FieldError(Problem.TOO_LONG, "fieldManager", "", "may not be more than 128 bytes"))
    elif not manager.isprintable():
        errors.append(FieldError(Problem.INVALID, "fieldManager", manager, "should only contain printable characters"))
    validation = request.option("fieldValidation", "Warn") or "Warn"
    if validation not in FIELD_VALIDATIONS:
        allowed = ", ".join(f'"{field_validation}"' for field_validation in ("", *FIELD_VALIDATIONS))
        detail = f"supported values: {allowed}"
        errors.append(FieldError(Problem.NOT_SUPPORTED, "fieldValidation", validation, detail))
    if errors:
        raise invalid_object(options_kind, "", errors, group="meta.k8s.io")
    return WriteOptions(dry_run=bool(dry_run), field_validation=validation)


def integer_option(request: Request, name: str) -> int | None:
    """Reads a query parameter as Go reads an int64; None when it is absent."""
    text = request.option(name)
    if not text:
        return None
    if not _INTEGER.fullmatch(text) or not MIN_INT <= (number := int(text)) <= MAX_INT:
        raise bad_request(f'invalid query parameter {name}: "{text[:40]}" is not an integer')
    return number


def boolean_option(request: Request, name: str) -> bool:
    """Reads a query parameter as Go reads booleans: present and empty counts as true."""
    values = request.query.get(name)
    if not values:
        return False
    text = values[0]
    if text in ("", "1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise bad_request(f'invalid query parameter {name}: "{text}" is not a boolean')


def revision_option(request: Request) -> int | None:
    """Returns the requested resourceVersion; None when absent."""
    text = request.option("resourceVersion")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or (revision := int(text)) > MAX_INT:
        raise _bad_revision(text)
    return revision


def _bad_revision(text: str) -> ApiError:
    error = FieldError(
        Problem.INVALID, "resourceVersion", text, f'strconv.ParseUint: parsing "{text[:40]}": invalid syntax'
    )
    return bad_request(f"invalid resource version: {error}")
