"""Asks the kubelet, through the API, to retry now what a pod is waiting for."""

import time
from dataclasses import dataclass
from pathlib import Path

from podwire.kubelet.pods.worker import RETRY
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.transports import credentials, http_client


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    kubeconfig: Path
    namespace: str
    name: str


async def retry(options: Options) -> None:
    """Changes an annotation of the pod: it reaches the kubelet with the pod, and records when the retry was requested.

    Raises ApiError, ClientError.
    """
    kind = BUILTIN.of_kind("v1", "Pod")
    if kind is None:
        raise ApiError(Reason.NOT_FOUND, "the API has no kind Pod")
    async with http_client.connect(credentials.load(options.kubeconfig), user_agent="podwire-retry") as http:
        patch = {"metadata": {"annotations": {RETRY: rfc3339_micro(time.time())}}}
        await Client(http).patch(kind, options.name, patch, options.namespace)
