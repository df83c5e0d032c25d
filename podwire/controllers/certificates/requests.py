"""The controllers of CertificateSigningRequests: one approves those of kubelets, one signs, one removes old ones."""

import base64
import binascii
import logging
from typing import Any, ClassVar

from podwire.controllers.kinds import SIGNING_REQUESTS
from podwire.controllers.metadata import PartialObject
from podwire.controllers.reconciler import Reconciler
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
HANDLED_SECONDS, PENDING_SECONDS = 3600.0, 24 * 3600.0
"""Seconds for which requests are kept after they were handled, and while nobody handles them."""
_APPROVALS = (
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
)


def has(request: Object, *types: str) -> bool:
    rows = (request.get("status") or {}).get("conditions") or ()
    return any(row.get("type") in types and row.get("status", "True") == "True" for row in rows)


def is_issued(request: Object) -> bool:
    return bool((request.get("status") or {}).get("certificate"))


def expires_at(request: Object) -> float:
    """Returns when a request is to be removed."""
    created = parse(request["metadata"]["creationTimestamp"])
    ends = []
    for row in (request.get("status") or {}).get("conditions") or ():
        updated = parse(row["lastUpdateTime"]) if row.get("lastUpdateTime") else created
        waits_for_signer = row.get("type") == "Approved" and not is_issued(request)
        ends.append(updated + (PENDING_SECONDS if waits_for_signer else HANDLED_SECONDS))
    return min(ends, default=created + PENDING_SECONDS)


def content(request: Object) -> bytes:
    """Returns the PEM of a request; empty if it is not valid base64."""
    try:
        return base64.b64decode(request["spec"].get("request") or "", validate=True)
    except (binascii.Error, ValueError):
        return b""


class Requests(Reconciler):
    kind: ClassVar[Kind] = SIGNING_REQUESTS
    workers: ClassVar[int] = 2

    async def write(self, request: Object, subresource: str, **status: Any) -> None:
        changed = {**request, "status": {**(request.get("status") or {}), **status}}
        try:
            await self.api.replace(changed, subresource=subresource)
        except ApiError as error:
            if error.code != 404:
                raise

    def with_condition(self, request: Object, type_: str, reason: str, message: str) -> list[Object]:
        now = rfc3339(self.clock.wall())
        row = {"type": type_, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now}
        return [*((request.get("status") or {}).get("conditions") or ()), row]


class ApprovingController(Requests):
    """Approves requests of kubelets for their client certificates, if their users may create such."""

    name: ClassVar[str] = "certificatesigningrequest-approving-controller"

    async def reconcile(self, owner: PartialObject) -> None:
        request, signer = owner.object(), self.context.signer
        if signer is None or has(request, "Approved", "Denied") or is_issued(request):
            return
        spec = request["spec"]
        if spec.get("signerName") != KUBELET_CLIENT:
            return
        node = signer.is_for_kubelet(content(request), spec.get("usages") or ())
        for subresource, message in _APPROVALS if node else ():
            own = spec.get("username") == node
            if (own or subresource != "selfnodeclient") and await self._is_allowed(spec, subresource):
                await self.write(
                    request, "approval", conditions=self.with_condition(request, "Approved", "AutoApproved", message)
                )
                return

    async def _is_allowed(self, spec: Object, subresource: str) -> bool:
        attributes = {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "verb": "create",
            "subresource": subresource,
            "version": "*",
        }
        user = {"user": spec.get("username") or "", "groups": spec.get("groups") or []}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**user, "uid": spec.get("uid") or "", "resourceAttributes": attributes},
        }
        return bool(((await self.api.create(review)).get("status") or {}).get("allowed"))


class SigningController(Requests):
    """Signs approved requests of the built-in signers."""

    name: ClassVar[str] = "certificatesigningrequest-signing-controller"

    async def reconcile(self, owner: PartialObject) -> None:
        request, signer = owner.object(), self.context.signer
        if signer is None or not has(request, "Approved") or has(request, "Denied", "Failed") or is_issued(request):
            return
        spec = request["spec"]
        if not signer.knows(spec.get("signerName") or ""):
            return
        try:
            certificate = signer.sign(
                spec["signerName"], content(request), spec.get("usages") or (), spec.get("expirationSeconds")
            )
        except ValueError as error:
            failed = self.with_condition(request, "Failed", "SignerValidationFailure", str(error))
            await self.write(request, "status", conditions=failed)
            return
        log.info("certificate was signed", extra={"request": owner.name, "signer": spec["signerName"]})
        await self.write(request, "status", certificate=base64.b64encode(certificate).decode())


class CleanerController(Requests):
    """Deletes requests an hour after they were handled, or after a day without an answer."""

    name: ClassVar[str] = "certificatesigningrequest-cleaner-controller"

    async def reconcile(self, owner: PartialObject) -> None:
        left = expires_at(owner.object()) - self.clock.wall()
        if left > 0:
            self.enqueue_after(owner.uid, left)
            return
        try:
            await self.api.delete(SIGNING_REQUESTS, owner.name, uid=owner.uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
