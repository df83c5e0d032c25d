"""Tokens of Secrets: signed with any key that upstream accepts, and verified."""

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from podwire.apiserver.identity.legacy_tokens import BadKeyFile, LegacyTokenSigner, read_key
from podwire.apiserver.identity.pki import Pki
from podwire.apiserver.identity.request_signing import FileAuthority
from podwire.apiserver.identity.tokens import BadToken, LegacyClaims, Tokens
from podwire.transports.clock import SystemClock

KEYS = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
}


def pem(key):
    private = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_key_file_signs_with_its_algorithm(tmp_path, algorithm):
    key = KEYS[algorithm]()
    (tmp_path / "sa.key").write_bytes(pem(key))

    token = LegacyTokenSigner(read_key(tmp_path / "sa.key")).sign("ns", "robot", "u1", "robot-token")

    assert jwt.decode(token, key.public_key(), algorithms=[algorithm]) == {
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": "ns",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": "u1",
        "sub": "system:serviceaccount:ns:robot",
    }


def test_our_server_accepts_what_its_own_key_signed():
    key = KEYS["ES256"]()
    tokens = Tokens(key, "https://issuer", ["api"], SystemClock())
    token = LegacyTokenSigner(key).sign("ns", "robot", "u1", "robot-token")
    claims = tokens.verify(token)
    assert isinstance(claims, LegacyClaims)
    assert (claims.namespace, claims.name, claims.uid, claims.secret) == ("ns", "robot", "u1", "robot-token")
    assert tokens.verify(token, ["api", "other"]) == claims
    with pytest.raises(BadToken, match="meant for another audience"):
        tokens.verify(token, ["vault"])
    with pytest.raises(BadToken, match="its claims cannot be read"):
        tokens.verify(LegacyTokenSigner(key).sign("ns", "robot", "u1", ""))
    with pytest.raises(BadToken, match="signed with a key that is not ours"):
        tokens.verify(LegacyTokenSigner(KEYS["ES256"]()).sign("ns", "robot", "u1", "robot-token"))


def test_a_file_without_a_usable_key_is_named(tmp_path):
    path = tmp_path / "sa.key"
    path.write_bytes(b"no key")
    with pytest.raises(BadKeyFile, match=r"sa\.key: cannot parse the private key"):
        read_key(path)
    path.write_bytes(pem(ed25519.Ed25519PrivateKey.generate()))
    with pytest.raises(BadKeyFile, match=r"sa\.key: must be an RSA key, or an EC key"):
        read_key(path)


def test_the_files_of_an_authority_must_belong_together(tmp_path):
    pki = Pki.open(tmp_path / "pki", names=[], ips=[])
    authority = FileAuthority.read(pki.authority_path, tmp_path / "pki" / "ca.key")
    assert isinstance(authority.authority, x509.Certificate)
    with pytest.raises(ValueError, match=r"sa\.key: is not the private key of .*ca\.crt"):
        FileAuthority.read(pki.authority_path, tmp_path / "pki" / "sa.key")
    with pytest.raises(ValueError, match=r"ca\.key: cannot parse the certificate"):
        FileAuthority.read(tmp_path / "pki" / "ca.key", tmp_path / "pki" / "ca.key")
