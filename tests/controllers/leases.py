"""The lease of controllers that run beside an API server without any."""

import time

from podwire.controllers.kinds import LEASES
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.client_side import Client


async def hold_lease(api: Client, holder: str = "podwire_test") -> None:
    """Holds it for a minute, so that the API server knows that somebody acts on workloads."""
    now = rfc3339_micro(time.time())
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": now, "acquireTime": now}
    metadata = {"name": "kube-controller-manager", "namespace": "kube-system"}
    await api.create({"apiVersion": "coordination.k8s.io/v1", "kind": LEASES.kind, "metadata": metadata, "spec": spec})
