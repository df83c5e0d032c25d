"""ConfigMap and Secret: keys that can be file names, a limit on the whole, and data that may be immutable."""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from podwire.kinds.field_checks import Errors, Object, named, unchanged
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import Json, age_of, count, name_of, text
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, required, too_long

LIMIT = 1024 * 1024
SEALED = "field is immutable when `immutable` is set"
_ACCOUNT = "kubernetes.io/service-account.name"


def validate_config_map(obj: Object) -> list[FieldError]:
    errors: Errors = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for key in data:
        named(names.config_key, key, f"data[{key}]", errors)
        if key in binary:
            errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        named(names.config_key, key, f"binaryData[{key}]", errors)
    size = sum(len(text.encode()) for text in data.values()) + sum(
        _decoded_size(encoded) for encoded in binary.values()
    )
    if size > LIMIT:
        errors.append(too_long("", LIMIT))
    return errors


def validate_config_map_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    _sealed(new, old, ("data", "binaryData"), errors)
    return errors + validate_config_map(new)


def validate_secret(obj: Object) -> list[FieldError]:
    errors: Errors = []
    data = obj.get("data") or {}
    for key in data:
        named(names.config_key, key, f"data[{key}]", errors)
    if sum(_decoded_size(encoded) for encoded in data.values()) > LIMIT:
        errors.append(too_long("data", LIMIT))
    if (check := _TYPES.get(obj.get("type", ""))) is not None:
        check(obj, data, errors)
    return errors


def validate_secret_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    unchanged(new.get("type"), old.get("type"), "type", errors)
    _sealed(new, old, ("data",), errors)
    return errors + validate_secret(new)


def _sealed(new: Object, old: Object, fields: tuple[str, ...], errors: Errors) -> None:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        errors.append(forbidden("immutable", SEALED))
    errors += [forbidden(field, SEALED) for field in fields if (new.get(field) or {}) != (old.get(field) or {})]


def _decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=", -2)


def _account_token(obj: Object, _data: Mapping[str, str], errors: Errors) -> None:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if not annotations.get(_ACCOUNT):
        errors.append(required(f"metadata.annotations[{_ACCOUNT}]"))


def _json(key: str) -> Callable[[Object, Mapping[str, str], Errors], None]:
    def check(_obj: Object, data: Mapping[str, str], errors: Errors) -> None:
        if key not in data:
            errors.append(required(f"data[{key}]"))
            return
        try:
            msgspec.json.decode(base64.b64decode(data[key]), type=dict[str, Any])
        except (msgspec.MsgspecError, binascii.Error) as error:
            errors.append(invalid(f"data[{key}]", "<secret contents redacted>", str(error)))

    return check


def _basic_auth(_obj: Object, data: Mapping[str, str], errors: Errors) -> None:
    if "username" not in data and "password" not in data:
        errors += [required("data[username]"), required("data[password]")]


def _ssh_auth(_obj: Object, data: Mapping[str, str], errors: Errors) -> None:
    if not data.get("ssh-privatekey"):
        errors.append(required("data[ssh-privatekey]"))


def _tls(_obj: Object, data: Mapping[str, str], errors: Errors) -> None:
    errors += [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]


_TYPES: Mapping[str, Callable[[Object, Mapping[str, str], Errors], None]] = {
    "kubernetes.io/service-account-token": _account_token,
    "kubernetes.io/dockercfg": _json(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _json(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _basic_auth,
    "kubernetes.io/ssh-auth": _ssh_auth,
    "kubernetes.io/tls": _tls,
}
"""Checks of the data of Secrets, by well-known type."""


def default_secret(obj: dict[str, Any]) -> None:
    """stringData is for writing only: it becomes data."""
    if texts := obj.pop("stringData", None):
        data = obj.setdefault("data", {})
        for key, text in texts.items():
            data[key] = base64.b64encode(text.encode()).decode()
    if not obj.get("type"):
        obj["type"] = "Opaque"


def config_map_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), count(obj, "data") + count(obj, "binaryData"), age_of(obj, now)]


def secret_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), text(obj, "type"), count(obj, "data"), age_of(obj, now)]


CONFIG_MAP = Strategy(
    group="",
    kind="ConfigMap",
    validate_create=validate_config_map,
    validate_update=validate_config_map_update,
    columns="Name|Data|Age",
    row=config_map_row,
)

SECRET = Strategy(
    group="",
    kind="Secret",
    default=default_secret,
    validate_create=validate_secret,
    validate_update=validate_secret_update,
    selectable=(selectable("type"),),
    columns="Name|Type|Data|Age",
    row=secret_row,
)
