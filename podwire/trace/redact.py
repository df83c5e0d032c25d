"""Removes secrets from records, by the keys under which they occur. Pure."""

from typing import Any

HIDDEN = "(redacted)"

_KEYS = frozenset({
    "token", "password", "authorization", "auth", "identity_token", "registry_token", "identitytoken", "registrytoken",
    "client-key-data", "privatekey", "bearertoken", "id_token", "refresh-token", "id-token",
})  # fmt: skip
"""In lower case. `auth` is what CRI calls the credentials for an image's registry."""

_SECRET_KINDS = frozenset({"Secret", "SecretList"})
_SECRET_FIELDS = ("data", "stringData", "value", "annotations")
"""Fields of a Secret or of a patch of one; an annotation may hold the whole Secret as it was last applied."""


def redacted(detail: Any, *, secret: bool = False) -> Any:
    """Returns the same detail with every secret value replaced; `secret` marks the content of a Secret of any form."""
    if isinstance(detail, dict):
        return _object(detail, secret)
    return _list(detail, secret) if isinstance(detail, list) else detail


def _object(detail: dict[str, Any], secret: bool) -> dict[str, Any]:
    """Calls no function for scalars: most values are scalars, and there are many."""
    kind = detail.get("kind")
    secret = secret or (isinstance(kind, str) and kind in _SECRET_KINDS)  # an attribute of a device may have that name
    result = {}
    for name, value in detail.items():
        if name.lower() in _KEYS or (secret and name in _SECRET_FIELDS):
            result[name] = _hidden(value)
        elif isinstance(value, dict):
            result[name] = _object(value, secret)
        else:
            result[name] = _list(value, secret) if isinstance(value, list) else value
    return result


def _list(detail: list[Any], secret: bool) -> list[Any]:
    return [redacted(item, secret=secret) for item in detail]


def _hidden(value: Any) -> Any:
    """Keys are not secret; values of other types, such as automountServiceAccountToken, are not either."""
    if isinstance(value, dict):
        return {name: _hidden(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return HIDDEN if isinstance(value, str) and value else value
