"""The API server's client for kubelets: TLS with a client certificate of the group system:masters."""

import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode

from podwire.apiserver import Pki
from podwire.apiserver.identity.users import MASTERS
from podwire.apiserver.ports import Kubelet, Query
from podwire.protocols.k8sapi.kubeconfig import Access, Pem
from podwire.protocols.k8sapi.server_side import Answer, Request
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.streaming import upgrading
from podwire.transports import credentials
from podwire.transports.http_relay import Relay, relays

CLIENT = "kube-apiserver-kubelet-client"
MAX_BODY = 3 * 1024 * 1024


@contextlib.asynccontextmanager
async def kubelet_proxy(pki: Pki, authority: Path | None = None) -> AsyncIterator["KubeletProxy"]:
    """Connects to kubelets whose serving certificates `authority` signed; without one, any certificate is accepted."""
    certificate, key = pki.issue_client(CLIENT, [MASTERS])
    access = Access(
        server="https://kubelet",
        ca=Pem(file=str(authority)) if authority else Pem(),
        certificate=Pem(certificate.decode()),
        key=Pem(key.decode()),
        verify=authority is not None,
    )
    async with relays(credentials.ssl_context(access)) as relay:
        yield KubeletProxy(relay)


class KubeletProxy:
    """Implements podwire.apiserver.ports.Kubelets."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def connect(self, kubelet: Kubelet, path: str, query: Query, request: Request) -> Answer:
        host = f"[{kubelet.address}]" if ":" in kubelet.address else kubelet.address
        url = f"https://{host}:{kubelet.port}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            if upgrading.wants_spdy(request.headers) or upgrading.tunnelled(request.headers):
                return await self._relay.tunnel(url, request)
            if upgrading.wants_websocket(request.headers):
                return await self._relay.conversation(url, request)
            method = (
                "GET" if "upgrade" in request.headers else request.method
            )  # an unknown upgrade: the kubelet explains its refusal
            body = await request.read(MAX_BODY) if method != "GET" else b""
            return await self._relay.answer(method, url, body)
        except ApiError as error:
            if error.code != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise ApiError(error.reason, f'{error.message} (the kubelet of node "{kubelet.node}")', code=500) from error
