"""Providers of encryption, in upstream's formats, so that a store can be shared with kube-apiserver or taken over.

    k8s:enc:aesgcm:v1:KEY:<12 bytes nonce><ciphertext><16 bytes tag>     authenticated together with the object's key
    k8s:enc:secretbox:v1:KEY:<24 bytes nonce><16 bytes tag><ciphertext>  authenticated, not bound to the object's key
    k8s:enc:aescbc:v1:KEY:<16 bytes IV><padded ciphertext>               not authenticated: only to read old values
    anything else                                                        plain text (identity)

The first provider of a resource encrypts, with its first key; all of them decrypt. A value that another key or provider
encrypted is *stale*: it can be read, and is encrypted anew when it is written.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from podwire.protocols.storage import StorageError

ENCRYPTED = b"k8s:enc:"
"""The prefix of every encrypted value; JSON never begins so."""
NONCE, BLOCK = 12, 16


class CannotDecrypt(StorageError):
    """A stored value cannot be read with the configured keys; the message names it and says what would help."""


class Provider(Protocol):
    prefix: bytes

    def encrypt(self, key: bytes, value: bytes) -> bytes: ...

    def decrypt(self, key: bytes, value: bytes) -> tuple[bytes, bool]:
        """Returns the plain text, and whether another key than the first encrypted it. `value` has the prefix."""
        ...


class Identity:
    """Plain text."""

    prefix = b""

    def encrypt(self, _key: bytes, value: bytes) -> bytes:
        return value

    def decrypt(self, key: bytes, value: bytes) -> tuple[bytes, bool]:
        if value.startswith(ENCRYPTED):
            raise _no_provider(key, value)
        return value, False


class _Keyed:
    """A provider with named keys."""

    prefix: bytes

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = {name.encode(): secret for name, secret in keys.items()}
        self._first = next(iter(self._keys))

    def encrypt(self, key: bytes, value: bytes) -> bytes:
        return b"%b%b:%b" % (self.prefix, self._first, self._seal(self._keys[self._first], key, value))

    def decrypt(self, key: bytes, value: bytes) -> tuple[bytes, bool]:
        name, _, sealed = value[len(self.prefix) :].partition(b":")
        if (secret := self._keys.get(name)) is None:
            raise _no_provider(key, value)
        try:
            return self._open(secret, key, sealed), name != self._first
        except ValueError as error:
            described = f"{self.prefix.decode()}{name.decode('utf-8', 'replace')}:"
            raise CannotDecrypt(
                f"{_shown(key)} cannot be decrypted: {described} has another secret, or the value is damaged"
            ) from error

    def _seal(self, secret: bytes, key: bytes, value: bytes) -> bytes:
        raise NotImplementedError

    def _open(self, secret: bytes, key: bytes, sealed: bytes) -> bytes:
        raise NotImplementedError


class AesGcm(_Keyed):
    """AES in Galois/Counter Mode. Nonces are random: a key is good for some hundred million writes, then rotate it."""

    prefix = b"k8s:enc:aesgcm:v1:"

    def _seal(self, secret: bytes, key: bytes, value: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only where it is configured

        nonce = os.urandom(NONCE)
        return nonce + AESGCM(secret).encrypt(nonce, value, key)

    def _open(self, secret: bytes, key: bytes, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

        try:
            return AESGCM(secret).decrypt(sealed[:NONCE], sealed[NONCE:], key)
        except InvalidTag as error:
            raise ValueError("the tag does not match") from error


class SecretBox(_Keyed):
    """XSalsa20 and Poly1305. Its nonces are long enough to be random for any number of writes.

    Upstream does not authenticate the object's key together with the value: a value that is moved is not noticed.
    """

    prefix = b"k8s:enc:secretbox:v1:"

    def _seal(self, secret: bytes, _key: bytes, value: bytes) -> bytes:
        from nacl.secret import SecretBox as Box  # noqa: PLC0415 - as above

        return bytes(Box(secret).encrypt(value))

    def _open(self, secret: bytes, _key: bytes, sealed: bytes) -> bytes:
        from nacl.exceptions import CryptoError  # noqa: PLC0415 - as above
        from nacl.secret import SecretBox as Box  # noqa: PLC0415 - as above

        try:
            return bytes(Box(secret).decrypt(sealed))
        except (CryptoError, ValueError) as error:
            raise ValueError("the tag does not match") from error


class AesCbc(_Keyed):
    """AES in Cipher Block Chaining mode with PKCS#7 padding, as upstream has it."""

    prefix = b"k8s:enc:aescbc:v1:"

    def _seal(self, secret: bytes, _key: bytes, value: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 - as above

        iv, missing = os.urandom(BLOCK), BLOCK - len(value) % BLOCK
        encryptor = Cipher(algorithms.AES(secret), modes.CBC(iv)).encryptor()
        return iv + encryptor.update(value + bytes([missing]) * missing) + encryptor.finalize()

    def _open(self, secret: bytes, _key: bytes, sealed: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 - as above

        if len(sealed) < 2 * BLOCK or len(sealed) % BLOCK:
            raise ValueError("the value has not a whole number of blocks")
        decryptor = Cipher(algorithms.AES(secret), modes.CBC(sealed[:BLOCK])).decryptor()
        padded = decryptor.update(sealed[BLOCK:]) + decryptor.finalize()
        missing = padded[-1]
        if not 1 <= missing <= BLOCK or padded[-missing:] != bytes([missing]) * missing:
            raise ValueError("the padding is wrong")
        return padded[:-missing]


@dataclass(frozen=True, slots=True)
class Rule:
    """The providers of all keys below some prefixes."""

    prefixes: tuple[str, ...]
    providers: tuple[Provider, ...]

    def decrypt(self, key: bytes, value: bytes) -> tuple[bytes, bool]:
        for number, provider in enumerate(self.providers):
            if value.startswith(provider.prefix) and (provider.prefix or not value.startswith(ENCRYPTED)):
                plain, stale = provider.decrypt(key, value)
                return plain, stale or number > 0
        raise _no_provider(key, value)


class Encryption:
    """Encrypts and decrypts the values of a store by key. The first rule that knows a key decides.

    `raw` is the key under which the store keeps the value: a value that is moved to another key is not accepted.
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = tuple(rules)

    def encrypt(self, key: str, raw: bytes, value: bytes) -> bytes:
        rule = self._rule(key)
        return value if rule is None else rule.providers[0].encrypt(raw, value)

    def decrypt(self, key: str, raw: bytes, value: bytes) -> tuple[bytes, bool]:
        """Returns the plain text, and whether it should be encrypted anew. Raises CannotDecrypt."""
        rule = self._rule(key)
        if rule is not None:
            return rule.decrypt(raw, value)
        if value.startswith(ENCRYPTED):
            raise _no_provider(raw, value)
        return value, False

    def _rule(self, key: str) -> Rule | None:
        for rule in self._rules:
            if key.startswith(rule.prefixes):
                return rule
        return None


PLAIN = Encryption()
"""Encrypts nothing, and says so when it meets an encrypted value."""


def _no_provider(key: bytes, value: bytes) -> CannotDecrypt:
    if not value.startswith(ENCRYPTED):
        why = "it is plain text, and the encryption configuration has no identity provider for it"
    else:
        name = b":".join(value[:200].split(b":")[:5]).decode("utf-8", "replace")
        why = f"no key of the encryption configuration is {name}:"
    return CannotDecrypt(f"{_shown(key)} cannot be decrypted: {why}")


def _shown(key: bytes) -> str:
    return key.decode("utf-8", "replace")
