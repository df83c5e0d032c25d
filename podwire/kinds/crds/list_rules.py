"""Validation of list-type, list-map-keys and map-type: how a schema lets lists and maps be merged."""

from collections.abc import Mapping
from typing import Any

from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, not_supported, required

Json = Mapping[str, Any]

LIST_TYPES = ("atomic", "map", "set")
MAP_TYPES = ("atomic", "granular")

_TYPE = "x-kubernetes-list-type"
_KEYS = "x-kubernetes-list-map-keys"
_MAP = "x-kubernetes-map-type"


def list_errors(schema: Json, path: str) -> list[FieldError]:
    """Returns the errors of list-type, list-map-keys and map-type."""
    list_type, keys, kind = schema.get(_TYPE), schema.get(_KEYS) or [], schema.get("type")
    errors = _map_type(schema, path)
    if list_type is not None and list_type not in LIST_TYPES:
        errors.append(not_supported(f"{path}.{_TYPE}", list_type, LIST_TYPES))
    if list_type is not None and kind != "array":
        detail = f"must be array if {_TYPE} is specified"
        errors.append(invalid(f"{path}.type", kind, detail) if kind else required(f"{path}.type", detail))
    if keys and list_type != "map":
        detail = f"must be map if {_KEYS} is non-empty"
        where = f"{path}.{_TYPE}"
        errors.append(required(where, detail) if list_type is None else invalid(where, list_type, detail))
    if list_type == "map":
        errors += _map_keys(schema, keys, path)
    if list_type == "set":
        errors += _set_items(schema.get("items"), path)
    return errors


def _map_type(schema: Json, path: str) -> list[FieldError]:
    map_type, kind = schema.get(_MAP), schema.get("type")
    errors: list[FieldError] = []
    if map_type is not None and map_type not in MAP_TYPES:
        errors.append(not_supported(f"{path}.{_MAP}", map_type, MAP_TYPES))
    if map_type is not None and kind != "object":
        detail = f"must be object if {_MAP} is specified"
        errors.append(invalid(f"{path}.type", kind, detail) if kind else required(f"{path}.type", detail))
    return errors


def _map_keys(schema: Json, keys: list[Any], path: str) -> list[FieldError]:
    where, items = f"{path}.{_KEYS}", schema.get("items")
    if not keys:
        return [required(where, f"must not be empty if {_TYPE} is map")]
    if not isinstance(items, dict):
        return [required(f"{path}.items", f"must have a schema if {_TYPE} is map")]
    if items.get("type") != "object":
        detail = f"must be object if parent array's {_TYPE} is map"
        return [invalid(f"{path}.items.type", items.get("type", ""), detail)]
    errors = []
    if len(set(map(str, keys))) < len(keys):
        errors.append(invalid(where, keys, "must not contain duplicate entries"))
    for key in dict.fromkeys(map(str, keys)):
        errors += _map_key(items, key, keys, path)
    return errors


def _map_key(items: Json, key: str, keys: list[Any], path: str) -> list[FieldError]:
    properties = items.get("properties")
    key_schema = properties.get(key) if isinstance(properties, dict) else None
    if not isinstance(key_schema, dict):
        return [invalid(f"{path}.{_KEYS}", keys, "entries must all be names of item properties")]
    where = f"{path}.items.properties[{key}]"
    errors = []
    if key_schema.get("type") in ("array", "object"):
        detail = f"must be a scalar type if parent array's {_TYPE} is map"
        errors.append(invalid(f"{where}.type", key_schema["type"], detail))
    if key_schema.get("nullable"):
        errors.append(forbidden(f"{where}.nullable", f"must not be nullable if property is in {_KEYS}"))
    if "default" not in key_schema and key not in (items.get("required") or []):
        detail = f"this property is in {_KEYS}, so it must have a default or be a required property"
        errors.append(required(f"{where}.default", detail))
    return errors


def _set_items(items: Any, path: str) -> list[FieldError]:
    """Checks that the elements of a set can be compared as a whole."""
    if not isinstance(items, dict):
        return [required(f"{path}.items", f"must have a schema if {_TYPE} is set")]
    errors = []
    if items.get("nullable"):
        errors.append(forbidden(f"{path}.items.nullable", f"cannot be true when {_TYPE} is set"))
    for kind, word in (("object", _MAP), ("array", _TYPE)):
        if items.get("type") == kind and items.get(word) != "atomic":
            detail = f"must be atomic as item of a list with {_TYPE}=set"
            errors.append(invalid(f"{path}.items.{word}", items.get(word), detail))
    return errors
