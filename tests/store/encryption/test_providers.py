"""Values in upstream's formats: which key encrypts, which decrypt, and what is said when none does."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from podwire.store.encryption.providers import PLAIN, AesCbc, AesGcm, CannotDecrypt, Encryption, Identity, Rule

SECRETS = "/registry/secrets/"
KEY, RAW = f"{SECRETS}default/s", f"{SECRETS}default/s".encode()
VALUE = b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"}}'
OLD, NEW = b"o" * 32, b"n" * 16


def encryption(*providers) -> Encryption:
    return Encryption([Rule((SECRETS,), providers)])


@pytest.mark.parametrize(("provider", "name"), [(AesGcm, "aesgcm"), (AesCbc, "aescbc")])
def test_a_value_is_encrypted_with_upstreams_prefix_and_decrypted(provider, name):
    made = encryption(provider({"key1": OLD}))
    stored = made.encrypt(KEY, RAW, VALUE)
    assert stored.startswith(f"k8s:enc:{name}:v1:key1:".encode())
    assert b"Secret" not in stored
    assert made.decrypt(KEY, RAW, stored) == (VALUE, False)
    assert made.encrypt(KEY, RAW, VALUE) != stored, "the same value is never encrypted alike"


def test_the_format_of_aesgcm_is_nonce_and_sealed_value_bound_to_the_key():
    stored = encryption(AesGcm({"k": OLD})).encrypt(KEY, RAW, VALUE).removeprefix(b"k8s:enc:aesgcm:v1:k:")
    assert AESGCM(OLD).decrypt(stored[:12], stored[12:], RAW) == VALUE


def test_the_first_key_encrypts_and_all_keys_decrypt():
    old = encryption(AesGcm({"old": OLD}))
    both = encryption(AesGcm({"new": NEW, "old": OLD}))
    stored = old.encrypt(KEY, RAW, VALUE)
    assert both.decrypt(KEY, RAW, stored) == (VALUE, True), "stale: it should be written again"
    assert both.encrypt(KEY, RAW, VALUE).startswith(b"k8s:enc:aesgcm:v1:new:")


def test_plain_text_is_read_where_identity_is_configured_and_is_stale_unless_identity_is_first():
    assert encryption(AesGcm({"k": OLD}), Identity()).decrypt(KEY, RAW, VALUE) == (VALUE, True)
    back = encryption(Identity(), AesGcm({"k": OLD}))
    assert back.decrypt(KEY, RAW, VALUE) == (VALUE, False)
    assert back.decrypt(KEY, RAW, encryption(AesGcm({"k": OLD})).encrypt(KEY, RAW, VALUE)) == (VALUE, True)
    assert back.encrypt(KEY, RAW, VALUE) == VALUE


def test_other_resources_stay_as_they_are():
    made = encryption(AesGcm({"k": OLD}))
    assert made.encrypt("/registry/pods/default/p", b"/registry/pods/default/p", VALUE) == VALUE


@pytest.mark.parametrize(
    ("reader", "stored", "words"),
    [
        pytest.param(
            encryption(AesGcm({"new": NEW})),
            encryption(AesGcm({"old": OLD})).encrypt(KEY, RAW, VALUE),
            "no key of the encryption configuration is k8s:enc:aesgcm:v1:old:",
            id="unknown key",
        ),
        pytest.param(
            encryption(AesGcm({"k": NEW})),
            encryption(AesGcm({"k": OLD})).encrypt(KEY, RAW, VALUE),
            "k8s:enc:aesgcm:v1:k: has another secret, or the value is damaged",
            id="another secret",
        ),
        pytest.param(
            encryption(AesGcm({"k": OLD})),
            encryption(AesGcm({"k": OLD})).encrypt(KEY, b"/registry/secrets/default/other", VALUE),
            "has another secret, or the value is damaged",
            id="moved from another object",
        ),
        pytest.param(encryption(AesGcm({"k": OLD})), VALUE, "it is plain text", id="plain text"),
        pytest.param(encryption(AesGcm({"k": OLD})), b"k8s:enc:aesgcm:v1:k:x", "damaged", id="cut"),
        pytest.param(encryption(AesCbc({"k": OLD})), b"k8s:enc:aescbc:v1:k:" + b"x" * 33, "damaged", id="cut block"),
        pytest.param(encryption(AesCbc({"k": OLD})), b"k8s:enc:aescbc:v1:k:" + b"x" * 48, "damaged", id="bad padding"),
        pytest.param(encryption(Identity()), b"k8s:enc:kms:v2:x:y", "is k8s:enc:kms:v2:x:", id="another provider"),
        pytest.param(PLAIN, b"k8s:enc:aesgcm:v1:k:x", "is k8s:enc:aesgcm:v1:k:", id="no configuration"),
    ],
)
def test_a_value_that_no_key_decrypts_is_named_with_the_reason(reader, stored, words):
    with pytest.raises(CannotDecrypt) as raised:
        reader.decrypt(KEY, RAW, stored)
    assert str(raised.value).startswith("/registry/secrets/default/s cannot be decrypted: ")
    assert words in str(raised.value)
