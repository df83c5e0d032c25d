"""CertificateSigningRequest: records the requesting user, regardless of the body, and keeps the spec immutable."""

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation


class SigningRequesters(AdmissionPlugin):
    """Writes the user into new requests; an update keeps the whole spec, because a signer relies on it."""

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
