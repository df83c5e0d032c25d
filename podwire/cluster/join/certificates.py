"""Certificates of a node, from CertificateSigningRequests: the first by a token, later ones by the node itself.

Each is one file with certificate and key, a kubeconfig or a PEM, which is replaced atomically; those who use it notice.
It is renewed in the last part of its lifetime, at a random moment, so that nodes that joined together do not renew
together. A failure is retried; the present certificate stays.
"""

import asyncio
import base64
import contextlib
import ipaddress
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from podwire.cluster.join.permissions import kind_of
from podwire.durable.files import write_durably
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.kubeconfig import Access, Pem, write_kubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Deleted, Object, Synced

_log = logging.getLogger("podwire.join")

SIGNING_REQUESTS = kind_of("certificates.k8s.io/v1", "CertificateSigningRequest")
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
NODE_COMPONENT = "podwire.dev/node-component"
SIGNED_SECONDS = 60.0
"""How long a request may wait for its certificate."""
RENEW_FROM, RENEW_UNTIL = 0.7, 0.9
"""The part of its lifetime after which a certificate is renewed, as upstream."""
FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0


class NotSigned(Exception):
    """The request was denied, failed, or nobody answered it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A certificate that a node needs."""

    signer: str
    user: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Names and addresses of a server."""

    @property
    def usages(self) -> list[str]:
        return ["digital signature", "server auth" if self.signer == KUBELET_SERVING else "client auth"]


def kubelet(node: str) -> Subject:
    return Subject(signer=KUBELET_CLIENT, user=f"system:node:{node}", groups=("system:nodes",))


def serving(node: str, addresses: Sequence[str]) -> Subject:
    hosts = (node, *addresses)
    return Subject(signer=KUBELET_SERVING, user=f"system:node:{node}", groups=("system:nodes",), hosts=hosts)


def component(name: str, node: str) -> Subject:
    group = f"system:podwire:{name}"
    return Subject(signer=NODE_COMPONENT, user=f"{group}:{node}", groups=(group,))


PROXY = Subject(signer=NODE_COMPONENT, user="system:kube-proxy")


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, in PEM."""

    certificate: str
    key: str

    @property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate.encode())


def signing_request(subject: Subject) -> tuple[bytes, str]:
    """Returns a request and the new private key for it, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in subject.groups]
    name = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, subject.user)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    if subject.hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(map(_general_name, subject.hosts)), critical=False)
    request = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return request, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


async def request_certificate(api: Client, subject: Subject, seconds: float = SIGNED_SECONDS) -> Issued:
    """Requests a certificate and waits for it. Raises NotSigned, ApiError, ClientError."""
    request, key = signing_request(subject)
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": subject.signer,
        "usages": subject.usages,
    }
    created = await api.create(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "podwire-csr-"},
            "spec": spec,
        }
    )
    name = created["metadata"]["name"]
    try:
        async with asyncio.timeout(seconds):
            return Issued(await _signed(api, name), key)
    except TimeoutError:
        waited = f"nobody signed the request {name} ({subject.signer}) in {seconds:g} s"
        raise NotSigned(f"{waited}; `kubectl get csr {name}` shows its state") from None


async def _signed(api: Client, name: str) -> str:
    scope = Scope(field_selector=f"metadata.name={name}")
    async with api.informer(SIGNING_REQUESTS, scope) as informer:
        async for change in informer:
            if isinstance(change, Synced):
                continue
            if isinstance(change, Deleted):
                raise NotSigned(f"the request {name} was deleted")
            if (certificate := outcome(change.object)) is not None:
                return certificate
    raise NotSigned(f"the request {name} is gone")


def outcome(request: Object) -> str | None:
    """Returns the certificate of a request, None while it is open. Raises NotSigned if it was refused."""
    status = request.get("status") or {}
    for row in status.get("conditions") or ():
        if row.get("type") in ("Denied", "Failed"):
            why = row.get("message") or row.get("reason") or "no reason is given"
            raise NotSigned(f"the request {request['metadata']['name']} was {row['type'].lower()}: {why}")
    certificate = status.get("certificate")
    return base64.b64decode(certificate).decode() if certificate else None


def write_access(path: Path, access: Access, issued: Issued) -> None:
    """Writes a kubeconfig with a certificate."""
    holder = replace(access, token="", certificate=Pem(issued.certificate), key=Pem(issued.key))
    write_durably(path, write_kubeconfig(holder).encode(), mode=0o600)


def write_pair(path: Path, issued: Issued) -> None:
    """Writes a file with certificate and key, for a server."""
    write_durably(path, f"{issued.certificate.rstrip()}\n{issued.key}".encode(), mode=0o600)


def renewal_time(certificate: x509.Certificate, part: float, written: float) -> float:
    """Returns when a part of a certificate's lifetime is over, in seconds since the epoch.

    The lifetime begins when it was written: signers backdate certificates, for peers whose clock is behind.
    """
    begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    begin = max(begin, min(written, end))
    return begin + (end - begin) * part


@dataclass(slots=True)
class Renewed:
    """One certificate that is kept valid: `read` returns the one in a file or None, `write` replaces it."""

    subject: Callable[[], Subject]
    path: Path
    read: Callable[[Path], x509.Certificate | None]
    write: Callable[[Issued], None]
    part: float = 0.0

    def due(self, now: float) -> float:
        """Returns the seconds until it is to be renewed."""
        certificate = self.read(self.path)
        if certificate is None or not self._is_for(certificate):
            return 0.0
        self.part = self.part or random.uniform(RENEW_FROM, RENEW_UNTIL)
        return max(0.0, renewal_time(certificate, self.part, self.path.stat().st_mtime) - now)

    def _is_for(self, certificate: x509.Certificate) -> bool:
        """Whether a serving certificate has the present names: addresses of a machine change."""
        hosts = self.subject().hosts
        if not hosts:
            return True
        with contextlib.suppress(x509.ExtensionNotFound):
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            return certificate.issuer != certificate.subject and set(names) == set(map(_general_name, hosts))
        return False


async def keep_renewed(
    certificate: Renewed,
    connect: Callable[[], contextlib.AbstractAsyncContextManager[Client]],
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> None:
    """Keeps a certificate valid until cancelled; looks at least every ten minutes, because names may change."""
    retry = FIRST_RETRY
    while True:
        if (left := await asyncio.to_thread(certificate.due, time.time())) > 0:
            await sleep(min(left, LOOK_SECONDS))
            continue
        subject = certificate.subject()
        try:
            async with connect() as api:
                issued = await request_certificate(api, subject)
            await asyncio.to_thread(certificate.write, issued)
        except (ApiError, ClientError, NotSigned, OSError) as error:
            _log.warning("cannot renew certificate", extra={"user": subject.user, "error": str(error), "retry": retry})
            await sleep(retry)
            retry = min(retry * 2, LONGEST_RETRY)
            continue
        certificate.part, retry = 0.0, FIRST_RETRY
        _log.info("certificate was renewed", extra={"user": subject.user, "signer": subject.signer})


LOOK_SECONDS = 600.0
