"""The API server's certificate authority, serving certificate and token-signing key, stored in one directory.

    format          the format's number
    ca.key          P-256; signs the two below and every client certificate
    ca.crt          10 years
    apiserver.key   P-256
    apiserver.crt   1 year; renewed when it expires soon, or its names have changed
    sa.key          P-256; signs service-account tokens

Crash order: a key is written before the certificate that is made from it, and each file is replaced atomically. A crash
therefore leaves at worst a key without its certificate, which the next start completes. A file that exists but cannot
be read is an error and never replaced: a new authority would lock out everyone who trusts the old one.
"""

import contextlib
import ipaddress
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from podwire.durable.files import sweep, write_durably
from podwire.durable.locks import lock_directory

FORMAT = 1
CA_LIFETIME = timedelta(days=3650)
CERTIFICATE_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
BACKDATE = timedelta(minutes=5)
"""Certificates are backdated, for peers whose clock is a little behind."""

NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)
ADDRESSES = ("127.0.0.1", "::1", "10.96.0.1")
"""Loopback, and the first address of the service range: the `kubernetes` service."""

_FILES = ("ca.key", "ca.crt", "apiserver.key", "apiserver.crt", "sa.key")
_LONGEST_NAME = 64
"""RFC 5280, ub-common-name and ub-organization-name."""


class PkiError(Exception):
    """The directory cannot be used; names the path and the cause."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Pki:
    """The certificates and keys of the server."""

    directory: Path
    authority: x509.Certificate
    authority_key: ec.EllipticCurvePrivateKey
    account_key: ec.EllipticCurvePrivateKey
    """Signs service-account tokens.

    P-256 (ES256) rather than RSA: every Kubernetes and OpenID verifier accepts both, but an RSA 2048 key takes 30 to
    100 ms to generate against 0.02, and a signature 0.27 ms against 0.02. Verification is the slower side (0.07 ms), so
    it is cached.
    """
    lifetime: timedelta = CERTIFICATE_LIFETIME
    """Of all certificates but the authority's."""

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        names: list[str],
        ips: list[str],
        now: datetime | None = None,
        lifetime: timedelta = CERTIFICATE_LIFETIME,
    ) -> Self:
        """Reads the directory and creates what is missing or expires soon. Raises PkiError."""
        now = now or datetime.now(UTC)
        with _locked(directory):
            path = directory / "format"
            if not path.exists():
                if strangers := [file for file in _FILES if (directory / file).exists()]:
                    raise PkiError(path, f"is missing, so {', '.join(strangers)} cannot be recognized as ours")
                write_durably(path, f"{FORMAT}\n".encode())
            written = path.read_bytes().strip()
            if written != str(FORMAT).encode():
                raise PkiError(path, f"holds {written[:20]!r}; this version reads format {FORMAT} only")
            key, authority = _authority(directory, now)
            pki = cls(
                directory=directory,
                authority=authority,
                authority_key=key,
                account_key=_key(directory / "sa.key"),
                lifetime=lifetime,
            )
            pki._ensure_serving(_required_names(names, ips), now)
        return pki

    @property
    def authority_pem(self) -> bytes:
        """The CA certificate: a kubeconfig's `certificate-authority-data` before base64."""
        return _pem(self.authority)

    @property
    def authority_path(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def serving_certificate(self) -> Path:
        return self.directory / "apiserver.crt"

    @property
    def serving_key(self) -> Path:
        return self.directory / "apiserver.key"

    def issue_client(
        self, common_name: str, organizations: Sequence[str] = (), *, now: datetime | None = None
    ) -> tuple[bytes, bytes]:
        """Issues a certificate and key as PEM for the user `common_name` in the groups `organizations`.

        Raises ValueError for a name that a certificate cannot carry.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(common_name, organizations)
        certificate = self._signed(subject, key, ExtendedKeyUsageOID.CLIENT_AUTH, now or datetime.now(UTC))
        return _pem(certificate), _key_pem(key)

    def issue_server(
        self, common_name: str, *, names: Sequence[str] = (), ips: Sequence[str] = (), now: datetime | None = None
    ) -> tuple[bytes, bytes]:
        """Issues a certificate and key as PEM for a server that clients of this cluster call, such as a kubelet."""
        key = ec.generate_private_key(ec.SECP256R1())
        carried = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips)]
        subject = _name(common_name, ())
        certificate = self._signed(subject, key, ExtendedKeyUsageOID.SERVER_AUTH, now or datetime.now(UTC), carried)
        return _pem(certificate), _key_pem(key)

    def _ensure_serving(self, required: list[x509.GeneralName], now: datetime) -> None:
        """Renews the serving certificate unless it is ours, carries the required names and does not expire soon."""
        key = _key(self.serving_key)
        current = _certificate(self.serving_certificate) if self.serving_certificate.exists() else None
        if current is not None and self._is_current(current, key, required, now):
            return
        subject = _name("kube-apiserver", ())
        renewed = self._signed(subject, key, ExtendedKeyUsageOID.SERVER_AUTH, now, required)
        write_durably(self.serving_certificate, _pem(renewed))

    def _is_current(
        self,
        current: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
        required: list[x509.GeneralName],
        now: datetime,
    ) -> bool:
        try:
            current.verify_directly_issued_by(self.authority)
            carried = current.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        # A certificate cannot be valid for longer than the authority.
        lasting = min(now + min(RENEW_BEFORE, self.lifetime / 2), self.authority.not_valid_after_utc)
        return (
            current.public_key() == key.public_key()
            and current.not_valid_before_utc <= now
            and current.not_valid_after_utc >= lasting
            and set(carried) == set(required)
        )

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        purpose: x509.ObjectIdentifier,
        now: datetime,
        names: Iterable[x509.GeneralName] = (),
    ) -> x509.Certificate:
        identifier = self.authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            _builder(subject, self.authority.subject, key, now - BACKDATE)
            .not_valid_after(min(now + self.lifetime, self.authority.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        )
        if alternatives := list(names):
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(self.authority_key, hashes.SHA256())


def _authority(directory: Path, now: datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    path = directory / "ca.crt"
    if path.exists() and not (directory / "ca.key").exists():
        raise PkiError(directory / "ca.key", "is missing, and ca.crt cannot be used without it")
    key = _key(directory / "ca.key")
    if not path.exists():
        write_durably(path, _pem(_self_signed(key, now)))
    certificate = _certificate(path)
    if certificate.public_key() != key.public_key():
        raise PkiError(path, "does not belong to ca.key")
    if certificate.not_valid_after_utc <= now:
        raise PkiError(path, f"expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    return key, certificate


def _self_signed(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = _name("kubernetes", ())
    return (
        _builder(name, name, key, now - BACKDATE)
        .not_valid_after(now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    for organization in (common_name, *organizations):
        if not 0 < len(organization) <= _LONGEST_NAME:
            raise ValueError(
                f"{organization!r} cannot be used in a certificate: it must have 1 to {_LONGEST_NAME} characters"
            )
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _required_names(names: Iterable[str], ips: Iterable[str]) -> list[x509.GeneralName]:
    """Returns the subject alternative names, each once."""
    hosts = dict.fromkeys(name for name in (*NAMES, os.uname().nodename.lower(), *names) if name)
    addresses = dict.fromkeys(ipaddress.ip_address(address) for address in (*ADDRESSES, *ips))
    return [*map(x509.DNSName, hosts), *map(x509.IPAddress, addresses)]


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Creates the directory if it is missing, restricts it to its owner, and locks it while it is read and written."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_directory(directory, wait=None):
            directory.chmod(0o700)
            sweep(directory)
            yield
    except OSError as error:
        raise PkiError(Path(error.filename or directory), error.strerror or str(error)) from error


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Reads the key; generates one if the file is missing."""
    if not path.exists():
        write_durably(path, _key_pem(ec.generate_private_key(ec.SECP256R1())))
    path.chmod(0o600)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PkiError(path, f"does not hold a usable private key ({_first_line(error)})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PkiError(path, "must hold a P-256 key")
    return key


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise PkiError(path, f"does not hold a usable certificate ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
