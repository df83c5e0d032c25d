"""Tells the kubelet, by way of the API, to try again what a pod waits for."""

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
    """An annotation that changes is the request: it travels where pods travel, and leaves a trace of who asked when.

    Raises ApiError, ClientError.
    """
    kind = BUILTIN.of_kind("v1", "Pod")
    if kind is None:
        raise ApiError(Reason.NOT_FOUND, "no pods")
    async with http_client.connect(credentials.load(options.kubeconfig), user_agent="podwire-retry") as http:
        patch = {"metadata": {"annotations": {RETRY: rfc3339_micro(time.time())}}}
        await Client(http).patch(kind, options.name, patch, options.namespace)
