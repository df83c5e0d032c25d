"""Bootstrap tokens: their form, their Secrets, what they sign, and hashes of a CA."""

import base64
import json
import subprocess
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from podwire.protocols.k8sapi.bootstrap_tokens import (
    NODES_GROUP,
    BadToken,
    Token,
    TokenRecord,
    authority_of,
    ca_cert_hash,
    check_ca_hash,
    cluster_info,
    is_signed,
    matching_authorities,
    read_secret,
    secret_of,
    server_of,
    sign,
    signed_info,
    verified_kubeconfig,
)

TOKEN = Token("abcdef", "0123456789abcdef")


@pytest.mark.parametrize(
    "text", ["", "abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde", "abcdef.0123456789abcdef\n"]
)
def test_a_text_of_another_form_is_not_a_token(text):
    with pytest.raises(BadToken, match="six characters, a dot and sixteen"):
        Token.parse(text)


def test_a_random_token_has_the_form_of_one_and_hides_its_secret():
    token = Token.random()
    assert Token.parse(str(token)) == token
    assert token.secret not in repr(token)
    assert Token.random() != token


def test_a_secret_says_all_about_its_token():
    record = TokenRecord(token=TOKEN, description="rack 7", expires=1_800_000_000.0)
    secret = secret_of(record)
    assert secret["metadata"] == {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    assert base64.b64decode(secret["data"]["expiration"]) == b"2027-01-15T08:00:00Z"
    assert read_secret(secret) == record
    assert record.is_expired(1_800_000_000.0)
    assert not record.is_expired(1_799_999_999.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"type": "Opaque"}, "is not of type bootstrap.kubernetes.io/token"),
        ({"metadata": {"name": "bootstrap-token-zzzzzz"}}, "has the token-id of bootstrap-token-abcdef"),
        ({"data": {"token-id": "!"}}, "token-id is not base64"),
        ({"data": {}}, "six characters"),
    ],
)
def test_a_secret_that_contradicts_itself_is_not_a_token(change, why):
    with pytest.raises(BadToken, match=why):
        read_secret({**secret_of(TokenRecord(token=TOKEN)), **change})


@pytest.mark.parametrize("group", ["system:masters", "system:bootstrappers", "system:bootstrappers:A"])
def test_a_token_gives_only_groups_of_bootstrappers(group):
    with pytest.raises(BadToken, match="group"):
        secret_of(TokenRecord(token=TOKEN, groups=(group,)))
    secret = secret_of(TokenRecord(token=TOKEN))
    secret["data"]["auth-extra-groups"] = base64.b64encode(f"{NODES_GROUP},{group}".encode()).decode()
    with pytest.raises(BadToken, match="auth-extra-groups"):
        read_secret(secret)


def test_a_signature_is_a_detached_jws_that_others_can_verify():
    signature = sign("content", TOKEN)
    header, _, mac = signature.partition("..")
    payload = base64.urlsafe_b64encode(b"content").rstrip(b"=").decode()
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):  # upstream's secrets have sixteen characters
        verified = jwt.api_jws.PyJWS().decode_complete(
            f"{header}.{payload}.{mac}", TOKEN.secret.encode(), algorithms=["HS256"]
        )
    assert verified["header"] == {"alg": "HS256", "kid": "abcdef"}


def test_a_signature_belongs_to_one_text_and_one_token():
    signature = sign("content", TOKEN)
    assert is_signed("content", signature, TOKEN)
    assert not is_signed("other", signature, TOKEN)
    assert not is_signed("content", signature, Token("abcdef", "fedcba9876543210"))
    assert not is_signed("content", signature, Token("abcdee", TOKEN.secret))
    none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "abcdef"}).encode()).decode().rstrip("=")
    for forged in ("", "..", f"{none}..", "\u00e9.." + signature, signature.replace("..", ".")):
        assert not is_signed("content", forged, TOKEN)


def test_cluster_info_has_one_signature_for_each_token():
    other = Token("zzzzzz", "0123456789abcdef")
    data = signed_info({"kubeconfig": "k", "jws-kubeconfig-gone00": "old", "mine": "stays"}, [TokenRecord(token=TOKEN)])
    assert set(data) == {"kubeconfig", "mine", "jws-kubeconfig-abcdef"}
    assert verified_kubeconfig(data, TOKEN) == "k"
    with pytest.raises(BadToken, match="token zzzzzz does not exist, has expired"):
        verified_kubeconfig(data, other)
    with pytest.raises(BadToken, match="does not belong to token"):
        verified_kubeconfig({**data, "kubeconfig": "evil"}, TOKEN)


@pytest.fixture(scope="module")
def authority():
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return builder.sign(key, hashes.SHA256())


def test_the_hash_of_a_ca_is_that_of_openssl(authority):
    pem = authority.public_bytes(Encoding.PEM)
    script = "openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -r"
    digest = subprocess.run(["sh", "-c", script], input=pem, capture_output=True, check=True).stdout.split()[0].decode()
    assert ca_cert_hash(authority) == f"sha256:{digest}"
    assert check_ca_hash(f"sha256:{digest.upper()}") == f"sha256:{digest}"
    assert matching_authorities(pem.decode(), [f"sha256:{digest}"]) == [authority]
    assert matching_authorities(pem.decode(), ["sha256:" + "0" * 64]) == []
    for text in (digest, "sha256:12", f"sha512:{digest}"):
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            check_ca_hash(text)


def test_cluster_info_names_the_server_and_its_ca(authority):
    pem = authority.public_bytes(Encoding.PEM).decode()
    content = cluster_info("https://192.0.2.1:6443", pem)
    assert (server_of(content), authority_of(content)) == ("https://192.0.2.1:6443", pem)
    for damaged in ("", "[]", "clusters: []", "a: b: c", "clusters: [{cluster: {certificate-authority-data: '!'}}]"):
        with pytest.raises(BadToken):
            authority_of(damaged)
