"""DenyServiceExternalIPs (off by default): services get no new externalIPs, with which a user can intercept traffic."""

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation


class DenyServiceExternalIPs(AdmissionPlugin):
    """Refuses addresses that the service does not have yet."""

    verbs = WRITES
    resources = frozenset({("", "services")})

    async def validate(self, operation: Operation) -> None:
        if operation.subresource:
            return
        before = set(((operation.old or {}).get("spec") or {}).get("externalIPs") or ())
        if set(operation.obj["spec"].get("externalIPs") or ()) - before:
            raise operation.forbidden("Use of external IPs is denied by admission control")
