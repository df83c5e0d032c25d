import ipaddress
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from podwire.transports.certificates import self_signed
from podwire.transports.tls import server_context


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pki/kubelet.pem"


def test_a_certificate_is_valid_for_name_and_addresses_and_has_mode_0600(path):
    self_signed(path, "n1", ["10.0.0.1", "::1"])
    found = x509.load_pem_x509_certificate(path.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(name) for name in ("10.0.0.1", "::1")]
    assert path.stat().st_mode & 0o777 == 0o600
    assert isinstance(server_context(path, path), ssl.SSLContext)


def test_it_is_kept_while_it_serves(path):
    first = self_signed(path, "n1", ["10.0.0.1"]).read_bytes()
    assert self_signed(path, "n1", ["10.0.0.1", "10.0.0.1"]).read_bytes() == first


@pytest.mark.parametrize(
    ("name", "addresses", "later"),
    [
        pytest.param("n2", ["10.0.0.1"], 0, id="another name"),
        pytest.param("n1", ["10.0.0.2"], 0, id="another address"),
        pytest.param("n1", ["10.0.0.1"], 340, id="it ends soon"),
    ],
)
def test_an_expiring_or_different_certificate_is_replaced(path, name, addresses, later):
    first = self_signed(path, "n1", ["10.0.0.1"]).read_bytes()
    now = datetime.now(UTC) + timedelta(days=later)
    assert self_signed(path, name, addresses, now=now).read_bytes() != first


def test_an_unreadable_certificate_is_replaced(path):
    path.parent.mkdir()
    path.write_text("nonsense")
    self_signed(path, "n1", [])
    assert isinstance(server_context(path, path), ssl.SSLContext)


def test_a_certificate_without_its_key_is_replaced(path):
    """As a full disk may have left it."""
    content = self_signed(path, "n1", []).read_bytes()
    certificate = content.index(b"-----BEGIN CERTIFICATE")
    end = content.index(b"-----END CERTIFICATE-----", certificate) + len(b"-----END CERTIFICATE-----\n")
    path.write_bytes(content[certificate:end])
    self_signed(path, "n1", [])
    assert isinstance(server_context(path, path), ssl.SSLContext)
