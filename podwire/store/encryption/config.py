"""Reads an EncryptionConfiguration, strictly: every error names the field and the reason."""

import base64
import binascii
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from podwire.protocols.settings import BadConfig, Read, list_of, mapped, one_of, parsed
from podwire.store.encryption.providers import AesCbc, AesGcm, Encryption, Identity, Provider, Rule, SecretBox

AES_KEYS, SECRETBOX_KEYS = (16, 24, 32), (32,)
"""Lengths of keys, in bytes."""

Prefixes = Callable[[str], Iterable[str]]
"""Returns the prefixes of the keys of a resource such as `secrets` or `*.apps`; raises ValueError with the reason."""


def read_encryption_configuration(path: str | os.PathLike[str], prefixes: Prefixes) -> Encryption:
    """Raises BadConfig and OSError."""
    return Encryption(_configuration(parsed(Path(path).read_bytes(), path), prefixes))


def _configuration(document: object, prefixes: Prefixes) -> tuple[Rule, ...]:
    def rule(key: str, value: object) -> Rule:
        keys: dict[str, Read] = {"resources": list_of(_prefixes_of(prefixes)), "providers": list_of(_provider)}
        read = mapped(key, value, keys, required=keys)
        return Rule(tuple(prefix for prefixes in read["resources"] for prefix in prefixes), read["providers"])

    keys: dict[str, Read] = {
        "apiVersion": one_of("apiserver.config.k8s.io/v1"),
        "kind": one_of("EncryptionConfiguration"),
        "resources": list_of(rule),
    }
    rules: tuple[Rule, ...] = mapped("", document, keys, required=keys)["resources"]
    return rules


def _prefixes_of(prefixes: Prefixes) -> Read:
    def read(key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, str) or not value:
            raise BadConfig(key, "must be the name of a resource, as in secrets or deployments.apps")
        try:
            return tuple(prefixes(value))
        except ValueError as error:
            raise BadConfig(key, str(error)) from error

    return read


def _provider(key: str, value: object) -> Provider:
    read = mapped(key, value, _PROVIDERS)
    if len(read) != 1:
        raise BadConfig(key, "must have exactly one provider; use another list element for each")
    provider: Provider = next(iter(read.values()))
    return provider


def _identity(key: str, value: object) -> Provider:
    mapped(key, {} if value is None else value, {})
    return Identity()


def _keyed(make: Callable[[Mapping[str, bytes]], Provider], lengths: Sequence[int]) -> Read:
    def read(key: str, value: object) -> Provider:
        found = mapped(key, value, {"keys": list_of(_key(lengths))}, required=("keys",))["keys"]
        names = [name for name, _ in found]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise BadConfig(f"{key}.keys[{index}].name", f"{name!r} is the name of another key, too")
        return make(dict(found))

    return read


def _key(lengths: Sequence[int]) -> Read:
    def read(key: str, value: object) -> tuple[str, bytes]:
        found = mapped(key, value, {"name": _name, "secret": _secret(lengths)}, required=("name", "secret"))
        return found["name"], found["secret"]

    return read


def _name(key: str, value: object) -> str:
    if not isinstance(value, str) or not value or ":" in value or not value.isprintable():
        raise BadConfig(key, "must be a name without colons")
    return value


def _secret(lengths: Sequence[int]) -> Read:
    """The secret itself is never part of an error."""
    allowed = " or ".join(", ".join(map(str, lengths)).rsplit(", ", 1))

    def read(key: str, value: object) -> bytes:
        try:
            secret = base64.b64decode(value if isinstance(value, str) else "", validate=True)
        except (binascii.Error, ValueError):
            raise BadConfig(key, "must be base64") from None
        if len(secret) not in lengths:
            raise BadConfig(key, f"must be base64 of {allowed} bytes, not of {len(secret)}")
        return secret

    return read


def _unsupported(why: str) -> Read:
    def read(key: str, _value: object) -> Provider:
        raise BadConfig(key, f"is not supported: {why}")

    return read


_PROVIDERS: dict[str, Read] = {
    "aesgcm": _keyed(AesGcm, AES_KEYS),
    "aescbc": _keyed(AesCbc, AES_KEYS),
    "secretbox": _keyed(SecretBox, SECRETBOX_KEYS),
    "identity": _identity,
    "kms": _unsupported("podwire calls no key management service; use secretbox or aesgcm"),
}
