"""ConfigMap: keys that can be file names, a limit on the whole, and data that may be immutable."""

from typing import Any

from podwire.kinds.field_checks import Errors, Object, named
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, age_of, count, name_of
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, too_long

LIMIT = 1024 * 1024
SEALED = "field is immutable when `immutable` is set"


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for key in data:
        named(names.config_key, key, f"data[{key}]", errors)
        if key in binary:
            errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        named(names.config_key, key, f"binaryData[{key}]", errors)
    size = sum(len(text.encode()) for text in data.values()) + sum(decoded_size(encoded) for encoded in binary.values())
    if size > LIMIT:
        errors.append(too_long("", LIMIT))
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    check_immutable_data(new, old, ("data", "binaryData"), errors)
    return errors + validate_create(new)


def check_immutable_data(new: Object, old: Object, fields: tuple[str, ...], errors: Errors) -> None:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        errors.append(forbidden("immutable", SEALED))
    errors += [forbidden(field, SEALED) for field in fields if (new.get(field) or {}) != (old.get(field) or {})]


def decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=", -2)


def row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), count(obj, "data") + count(obj, "binaryData"), age_of(obj, now)]


CONFIG_MAP = Strategy(
    group="",
    kind="ConfigMap",
    validate_create=validate_create,
    validate_update=validate_update,
    columns="Name|Data|Age",
    row=row,
)
