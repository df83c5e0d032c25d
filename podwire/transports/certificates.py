"""Self-signed serving certificates, for clients that do not verify: kubelets start with one."""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
BACKDATED = timedelta(minutes=5)
"""Certificates begin in the past, for peers whose clock is a little behind."""


def self_signed(path: Path, name: str, addresses: Sequence[str], *, now: datetime | None = None) -> Path:
    """Returns a file with a certificate and its key: the existing one while it is valid for these names, or a new
    one."""
    now = now or datetime.now(UTC)
    names = _names(name, addresses)
    if not _is_valid(path, names, now):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_create(name, names, now))
        draft.replace(path)
    return path


def _is_valid(path: Path, names: list[x509.GeneralName], now: datetime) -> bool:
    try:
        content = path.read_bytes()
        certificate = x509.load_pem_x509_certificate(content)
        if serialization.load_pem_private_key(content, None).public_key() != certificate.public_key():
            return False
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return set(alternative_names) == set(names) and certificate.not_valid_after_utc > now + RENEW_BEFORE


def _names(name: str, addresses: Sequence[str]) -> list[x509.GeneralName]:
    return [
        x509.DNSName(name),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in dict.fromkeys(addresses)),
    ]


def _create(name: str, names: list[x509.GeneralName], now: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem) + secret
