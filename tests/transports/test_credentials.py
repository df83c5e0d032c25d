"""Credentials from files: kubeconfigs, keys in files or inline, what a pod is given."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig, Pem, write_kubeconfig
from podwire.transports.credentials import in_cluster, load, ssl_context


@pytest.fixture(scope="module")
def pair() -> tuple[str, str]:
    """A self-signed certificate and its key, as PEM texts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return certificate.public_bytes(form[0]).decode(), key.private_bytes(*form).decode()


def test_a_kubeconfig_file_is_read(tmp_path):
    access = Access(server="https://h:1", token="t")
    file = tmp_path / "config"
    file.write_text(write_kubeconfig(access))
    assert load(file) == access


def test_a_missing_kubeconfig_is_named(tmp_path):
    with pytest.raises(BadKubeconfig, match="nowhere: No such file"):
        load(tmp_path / "nowhere")


def test_keys_inline_and_in_files_work_alike(pair, tmp_path):
    certificate, key = pair
    (tmp_path / "crt").write_text(certificate)
    (tmp_path / "key").write_text(key)
    inline = Access(server="https://h", ca=Pem(certificate), certificate=Pem(certificate), key=Pem(key))
    files = Access(
        server="https://h",
        ca=Pem(file=str(tmp_path / "crt")),
        certificate=Pem(file=str(tmp_path / "crt")),
        key=Pem(file=str(tmp_path / "key")),
    )
    for item in (inline, files):
        context = ssl_context(item)
        assert context is not None
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.cert_store_stats()["x509"] == 1


def test_a_plain_server_needs_no_context():
    assert ssl_context(Access(server="http://h")) is None


@pytest.mark.parametrize("wrong", ["ca", "key", "missing"])
def test_files_that_cannot_be_used_are_named(pair, tmp_path, wrong):
    certificate, _ = pair
    bad = tmp_path / "bad"
    if wrong != "missing":
        bad.write_text("no PEM")
    if wrong == "ca":
        access = Access(server="https://h", ca=Pem(file=str(bad)))
    else:
        access = Access(server="https://h", certificate=Pem(certificate), key=Pem(file=str(bad)))
    with pytest.raises(BadKubeconfig, match=str(bad)):
        ssl_context(access)


def test_a_pod_has_its_service_account(tmp_path):
    (tmp_path / "namespace").write_text("dev")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = in_cluster(environ, str(tmp_path))
    assert (access.server, access.namespace) == ("https://10.0.0.1:443", "dev")
    assert access.token_file == f"{tmp_path}/token"
