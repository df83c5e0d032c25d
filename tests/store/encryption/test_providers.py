"""Values in upstream's formats: which key encrypts, which decrypt, and what is said when none does."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from podwire.store.encryption.providers import (
    PLAIN,
    AesCbc,
    AesGcm,
    CannotDecrypt,
    Encryption,
    Identity,
    Rule,
    SecretBox,
)

SECRETS = "/registry/secrets/"
KEY, RAW = f"{SECRETS}default/s", f"{SECRETS}default/s".encode()
VALUE = b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"}}'
OLD, NEW = b"o" * 32, b"n" * 16


def encryption(*providers) -> Encryption:
    return Encryption([Rule((SECRETS,), providers)])


@pytest.mark.parametrize(("provider", "name"), [(AesGcm, "aesgcm"), (SecretBox, "secretbox"), (AesCbc, "aescbc")])
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


def test_the_format_of_secretbox_is_that_of_nacl():
    """The vector of NaCl's own tests (`secretbox.c`): nonce, then tag and ciphertext."""
    key = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
    nonce = "69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37"
    sealed = (
        "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b"
        "4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da"
        "99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5"
    )
    stored = b"k8s:enc:secretbox:v1:k:" + bytes.fromhex(nonce + sealed)
    plain, stale = encryption(SecretBox({"k": key})).decrypt(KEY, RAW, stored)
    assert not stale
    assert plain.hex() == (
        "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f4"
        "1db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52"
        "f0a089bc76897040e082f937763848645e0705"
    )


@pytest.mark.parametrize("provider", [AesGcm, SecretBox])
def test_the_first_key_encrypts_and_all_keys_decrypt(provider):
    old, new = {"old": OLD}, {"new": b"n" * 32}
    stored = encryption(provider(old)).encrypt(KEY, RAW, VALUE)
    both = encryption(provider(new | old))
    assert both.decrypt(KEY, RAW, stored) == (VALUE, True), "stale: it should be written again"
    assert both.encrypt(KEY, RAW, VALUE).startswith(provider.prefix + b"new:")


def test_values_of_another_provider_are_read_and_are_stale():
    stored = encryption(AesCbc({"k": OLD})).encrypt(KEY, RAW, VALUE)
    assert encryption(SecretBox({"k": OLD}), AesCbc({"k": OLD})).decrypt(KEY, RAW, stored) == (VALUE, True)


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
        pytest.param(
            encryption(SecretBox({"k": b"n" * 32})),
            encryption(SecretBox({"k": OLD})).encrypt(KEY, RAW, VALUE),
            "k8s:enc:secretbox:v1:k: has another secret, or the value is damaged",
            id="another secret of a box",
        ),
        pytest.param(encryption(SecretBox({"k": OLD})), b"k8s:enc:secretbox:v1:k:x", "damaged", id="cut box"),
        pytest.param(encryption(SecretBox({"k": OLD})), b"k8s:enc:secretbox:v1:k:", "damaged", id="empty box"),
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
