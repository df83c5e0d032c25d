"""Signs CertificateSigningRequests with the cluster's authority, by the rules of the four built-in signers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol, Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from podwire.apiserver.identity.legacy_tokens import read_key
from podwire.apiserver.identity.users import COMPONENT_PREFIX

CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY = (
    f"kubernetes.io/{name}"
    for name in ("kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown")
)
NODE_COMPONENT = "podwire.dev/node-component"
"""Our own signer: client certificates of the components of a node, which the node requests."""
COMPONENTS = ("nri-network", "network-driver", "gpu-driver", "local-path")
PROXY_USER = "system:kube-proxy"
SHORTEST = timedelta(minutes=10)
BACKDATE = timedelta(minutes=5)
_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "data encipherment": "data_encipherment",
    "key agreement": "key_agreement",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_PURPOSES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
}
_NODE_USAGES = ("digital signature", "key encipherment")


class BadSigningRequest(ValueError):
    """A request that its signer does not sign; the message is the condition's."""


class Authority(Protocol):
    """A CA: that of the server's own keys, or one from files."""

    @property
    def authority(self) -> x509.Certificate: ...

    @property
    def authority_key(self) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey: ...

    @property
    def lifetime(self) -> timedelta:
        """The longest lifetime of certificates."""
        ...


@dataclass(frozen=True, slots=True)
class FileAuthority:
    """The CA of a cluster whose API server is not ours."""

    authority: x509.Certificate
    authority_key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    lifetime: timedelta = timedelta(days=365)

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Self:
        """Reads both files, in PEM. Raises OSError, and ValueError that names the file."""
        try:
            authority = x509.load_pem_x509_certificate(certificate.read_bytes())
        except ValueError as error:
            raise ValueError(f"{certificate}: cannot parse the certificate: {error}") from error
        private = read_key(key)
        if private.public_key() != authority.public_key():
            raise ValueError(f"{key}: is not the private key of {certificate}")
        return cls(authority, private)


@dataclass(frozen=True, slots=True)
class RequestSigner:
    """Signs requests for users and kubelets; one for anybody else is refused by name."""

    pki: Authority

    def knows(self, signer: str) -> bool:
        return signer in (CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, NODE_COMPONENT)

    def is_for_kubelet(self, request: bytes, usages: Sequence[str]) -> str:
        """Returns the name of the node's user if a request is one for a kubelet's client certificate; else empty."""
        try:
            parsed = _parsed(request)
            _check_node(parsed, set(usages), serving=False)
        except BadSigningRequest:
            return ""
        return _common_name(parsed)

    def is_for_component(self, request: bytes, usages: Sequence[str], node: str) -> bool:
        """Returns whether a request is one for a client certificate of a component of a node."""
        try:
            parsed = _parsed(request)
            _check_component(parsed, usages)
        except BadSigningRequest:
            return False
        name = _common_name(parsed)
        return name == PROXY_USER or name.removeprefix(COMPONENT_PREFIX).partition(":")[2] == node

    def serving_names(self, request: bytes, usages: Sequence[str], user: str) -> tuple[str, ...]:
        """Returns the names and addresses of a request for the serving certificate of a node's user; none if it is not
        one."""
        try:
            parsed = _parsed(request)
            _check_node(parsed, set(usages), serving=True)
        except BadSigningRequest:
            return ()
        names = _names(parsed)
        if names is None or _common_name(parsed) != user:
            return ()
        hosts = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
        return tuple(hosts) if len(hosts) == len(names) else ()

    def sign(self, signer: str, request: bytes, usages: Sequence[str], seconds: int | None) -> bytes:
        """Returns a certificate as PEM. Raises BadSigningRequest."""
        parsed = _parsed(request)
        if signer == CLIENT:
            _check_client(usages)
        elif signer in (KUBELET_CLIENT, KUBELET_SERVING):
            _check_node(parsed, set(usages), serving=signer == KUBELET_SERVING)
        elif signer == NODE_COMPONENT:
            _check_component(parsed, usages)
        return self._signed(parsed, usages, seconds).public_bytes(serialization.Encoding.PEM)

    def _signed(
        self, request: x509.CertificateSigningRequest, usages: Sequence[str], seconds: int | None
    ) -> x509.Certificate:
        lifetime = self.pki.lifetime
        if seconds is not None:
            lifetime = min(lifetime, max(SHORTEST, timedelta(seconds=seconds)))
        authority, now = self.pki.authority, datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(authority.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATE)
            .not_valid_after(min(now + lifetime, authority.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_identifier(authority), critical=False)
        )
        if any(usage in _KEY_USAGES for usage in usages):  # without the extension, every use is allowed
            builder = builder.add_extension(_key_usage(usages), critical=True)
        if purposes := [_PURPOSES[usage] for usage in usages if usage in _PURPOSES]:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if (names := _names(request)) is not None:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.pki.authority_key, hashes.SHA256())


def _key_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Returns the identifier that the CA gives to its key; if it has none, the usual digest."""
    try:
        identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _parsed(request: bytes) -> x509.CertificateSigningRequest:
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in request:
        raise BadSigningRequest("PEM block type must be CERTIFICATE REQUEST")
    try:
        parsed = x509.load_pem_x509_csr(request)
        key = parsed.public_key()
        signed = parsed.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadSigningRequest(f"cannot parse the request: {error}") from error
    if not signed:
        raise BadSigningRequest("x509: the signature of the request is invalid")
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey):
        raise BadSigningRequest("x509: the key of the request is of an unsupported kind")
    return parsed


def _values(request: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in request.subject.get_attributes_for_oid(oid)]


def _common_name(request: x509.CertificateSigningRequest) -> str:
    return next(iter(_values(request, NameOID.COMMON_NAME)), "")


def _names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _check_client(usages: Sequence[str]) -> None:
    for usage in usages:
        if usage not in (*_NODE_USAGES, "client auth"):
            raise BadSigningRequest(f"invalid usage for client certificate: {usage}")
    if "client auth" not in usages:
        raise BadSigningRequest("missing required usage for client certificate: client auth")


def _check_component(request: x509.CertificateSigningRequest, usages: Sequence[str]) -> None:
    """The subject is that of a component of a node: the proxy, or the user GROUP:NODE of such a group."""
    _check_client(usages)
    if _names(request) is not None:
        raise BadSigningRequest("subjectAltNames are not allowed")
    name, groups = _common_name(request), _values(request, NameOID.ORGANIZATION_NAME)
    if name == PROXY_USER and not groups:
        return
    component, _, node = name.removeprefix(COMPONENT_PREFIX).partition(":")
    if component not in COMPONENTS or not node or groups != [f"{COMPONENT_PREFIX}{component}"]:
        raise BadSigningRequest(f"subject {name!r} is not that of a component of a node")


def _check_node(request: x509.CertificateSigningRequest, usages: set[str], *, serving: bool) -> None:
    names = _names(request)
    dns, ips, emails, uris = (
        list(names.get_values_for_type(type_)) if names is not None else []
        for type_ in (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)
    )
    purpose = "server auth" if serving else "client auth"
    wanted = {*_NODE_USAGES, purpose}
    listed = " ".join(sorted(wanted))
    for is_wrong, why in (
        (_values(request, NameOID.ORGANIZATION_NAME) != ["system:nodes"], "subject organization is not system:nodes"),
        (serving and not dns and not ips, "DNS or IP subjectAltName is required"),
        (not serving and dns, "DNS subjectAltNames are not allowed"),
        (emails, "Email subjectAltNames are not allowed"),
        (not serving and ips, "IP subjectAltNames are not allowed"),
        (uris, "URI subjectAltNames are not allowed"),
        (usages not in (wanted, {"digital signature", purpose}), f"usages did not match [{listed}]"),
        (
            not _common_name(request).startswith("system:node:"),
            "subject common name does not begin with system:node:",
        ),
    ):
        if is_wrong:
            raise BadSigningRequest(why)


def _key_usage(usages: Sequence[str]) -> x509.KeyUsage:
    fields = dict.fromkeys(_KEY_USAGES.values(), False)
    fields.update({_KEY_USAGES[usage]: True for usage in usages if usage in _KEY_USAGES})
    if not fields["key_agreement"]:
        fields["encipher_only"] = fields["decipher_only"] = False
    return x509.KeyUsage(**fields)
