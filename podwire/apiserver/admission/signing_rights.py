"""CertificateApproval, CertificateSigning, CertificateSubjectRestriction: rights that certificate requests need.

Approving needs the verb `approve` and signing the verb `sign` on the signer, by its name or as `DOMAIN/*`; and nobody
requests a certificate of system:masters.
"""

import base64
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.identity.authorization import Attributes, Authorizer
from podwire.apiserver.identity.users import MASTERS
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import ApiError, access_denied

GROUP, RESOURCE = "certificates.k8s.io", "certificatesigningrequests"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


@dataclass(frozen=True, slots=True)
class SigningRights(AdmissionPlugin):
    """Refuses approvals, signatures and requests that the user may not make."""

    authorizer: Authorizer

    verbs = WRITES
    resources = frozenset({(GROUP, RESOURCE)})

    async def validate(self, operation: Operation) -> None:
        match operation.verb, operation.subresource:
            case "CREATE", "":
                _check_subject(operation)
            case "UPDATE", "approval":
                self._require(operation, "approve")
            case "UPDATE", "status" if _signature(operation.obj) != _signature(operation.old or {}):
                self._require(operation, "sign")

    def _require(self, operation: Operation, verb: str) -> None:
        """The signer is that of the stored request: nobody changes it with the same write."""
        signer: str = (operation.old or {}).get("spec", {}).get("signerName", "")
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            attributes = Attributes(verb=verb, group=GROUP, version="*", resource="signers", name=name)
            if self.authorizer.check(operation.user, attributes).allowed:
                return
        raise _refused(operation, f'user not permitted to {verb} requests with signerName "{signer}"')


def _signature(request: Object) -> tuple[object, object]:
    status = request.get("status") or {}
    return status.get("certificate"), status.get("conditions") or []


def _check_subject(operation: Operation) -> None:
    spec = operation.obj.get("spec") or {}
    if spec.get("signerName") != CLIENT_SIGNER:
        return
    try:
        subject = x509.load_pem_x509_csr(base64.b64decode(spec.get("request", ""), validate=True)).subject
    except ValueError as error:
        raise _refused(operation, f"failed to parse CSR: {error}") from error
    if MASTERS in [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]:
        raise _refused(operation, f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")


def _refused(operation: Operation, why: str) -> ApiError:
    message = f'{RESOURCE}.{GROUP} "{operation.name}" is forbidden: {why}'
    return access_denied(message, resource=RESOURCE, name=operation.name, group=GROUP)


class SigningRequesters(AdmissionPlugin):
    """Writes the user into new requests, regardless of the body; an update keeps the whole spec, because a signer
    relies on it."""

    verbs = WRITES
    resources = frozenset({("certificates.k8s.io", "certificatesigningrequests")})

    async def admit(self, operation: Operation) -> None:
        if operation.old is not None:
            operation.obj["spec"] = operation.old["spec"]
            return
        user, spec = operation.user, operation.obj.setdefault("spec", {})
        fields = {
            "username": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
        }
        for name, value in fields.items():
            spec.pop(name, None)
            if value:
                spec[name] = value
