"""Secret: a ConfigMap whose data are bytes, with rules for well-known types."""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from podwire.kinds.builtin.core.config_map import LIMIT, check_immutable_data, decoded_size
from podwire.kinds.field_checks import Errors, Object, named, unchanged
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import Json, age_of, count, name_of, text
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid, required, too_long

_ACCOUNT = "kubernetes.io/service-account.name"


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    data = obj.get("data") or {}
    for key in data:
        named(names.config_key, key, f"data[{key}]", errors)
    if sum(decoded_size(encoded) for encoded in data.values()) > LIMIT:
        errors.append(too_long("data", LIMIT))
    if (check := _TYPES.get(obj.get("type", ""))) is not None:
        check(obj, data, errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    unchanged(new.get("type"), old.get("type"), "type", errors)
    check_immutable_data(new, old, ("data",), errors)
    return errors + validate_create(new)


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


def default(obj: dict[str, Any]) -> None:
    """stringData is for writing only: it becomes data."""
    if texts := obj.pop("stringData", None):
        data = obj.setdefault("data", {})
        for key, text in texts.items():
            data[key] = base64.b64encode(text.encode()).decode()
    if not obj.get("type"):
        obj["type"] = "Opaque"


def row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), text(obj, "type"), count(obj, "data"), age_of(obj, now)]


def secret_warnings(new: Object, _old: Object | None) -> list[str]:
    """Warns about a TLS secret that no server can use; whether key and certificate match is not looked at."""
    data = new.get("data") or {}
    if new.get("type") != "kubernetes.io/tls":
        return []
    for key, name in (("tls.crt", "certificate"), ("tls.key", "key")):
        if b"-----BEGIN " not in base64.b64decode(data.get(key) or ""):
            return [f"tls: failed to find any PEM data in {name} input"]
    return []


SECRET = Strategy(
    group="",
    kind="Secret",
    default=default,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=secret_warnings,
    selectable=(selectable("type"),),
    columns="Name|Type|Data|Age",
    row=row,
)
