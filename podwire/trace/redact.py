"""What must not be written down, by the keys under which it travels. Pure."""

from typing import Any

HIDDEN = "(redacted)"

_KEYS = frozenset({
    "token", "password", "authorization", "auth", "identity_token", "registry_token", "identitytoken", "registrytoken",
    "client-key-data", "privatekey", "bearertoken", "id_token", "refresh-token", "id-token",
})  # fmt: skip
"""In lower case. `auth` is what CRI calls the credentials for an image's registry."""

_SECRET_KINDS = frozenset({"Secret", "SecretList"})
_SECRET_FIELDS = ("data", "stringData", "value", "annotations")
"""Of a Secret, of a patch of one; an annotation may hold the whole Secret as it was last applied."""


def redacted(detail: Any, *, secret: bool = False) -> Any:
    """The same, with every secret value replaced; `secret` says that it is about a Secret, whatever its form."""
    if isinstance(detail, list):
        return [redacted(each, secret=secret) for each in detail]
    if not isinstance(detail, dict):
        return detail
    secret = secret or detail.get("kind") in _SECRET_KINDS
    return {name: _value(name, value, secret=secret) for name, value in detail.items()}


def _value(name: str, value: Any, *, secret: bool) -> Any:
    if name.lower() in _KEYS or (secret and name in _SECRET_FIELDS):
        return _hidden(value)
    return redacted(value, secret=secret)


def _hidden(value: Any) -> Any:
    """Which keys there are is no secret; `automountServiceAccountToken` and its like are values of other types."""
    if isinstance(value, dict):
        return {name: _hidden(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each) for each in value]
    return HIDDEN if isinstance(value, str) and value else value
