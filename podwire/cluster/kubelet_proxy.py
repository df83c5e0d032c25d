"""The API server's client for kubelets: TLS with a client certificate that has the role system:kubelet-api-admin.

A node says itself at which address its kubelet is, so the address is checked: link-local ones (the metadata service of
clouds), the API server itself and, unless everything is on one machine, the loopback are refused. Nor does the API
server accept the certificate: a node whose address leads back to it by some other way gains nothing.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import AsyncIterator, Collection
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode

from podwire.apiserver import Pki
from podwire.apiserver.identity.users import KUBELET_CLIENT
from podwire.apiserver.ports import Kubelet, Query
from podwire.protocols.k8sapi.kubeconfig import Access, Pem
from podwire.protocols.k8sapi.server_side import Answer, Request
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request
from podwire.protocols.streaming import upgrading
from podwire.protocols.streaming.dialects import COMMAND_PROTOCOLS, PORT_PROTOCOLS
from podwire.transports import credentials
from podwire.transports.http_forward import Forwarder, forwarder
from podwire.transports.http_relay import Contexts, Relay, as_messages, relays

MAX_BODY = 3 * 1024 * 1024


@contextlib.asynccontextmanager
async def kubelet_proxy(
    pki: Pki, authority: Path | None = None, hosts: Collection[str] = ()
) -> AsyncIterator["KubeletProxy"]:
    """Connects to kubelets whose serving certificates `authority` signed; without one, any certificate is accepted.

    `hosts` are the addresses that the API server listens on.
    """
    identity = _Identity(pki, authority)
    async with relays(identity.context) as relay, forwarder() as forward:
        yield KubeletProxy(relay, hosts, forward, identity.context)


class _Identity:
    """The client certificate: issued when it is needed for the first time, and anew in the middle of its lifetime."""

    def __init__(self, pki: Pki, authority: Path | None) -> None:
        self._pki = pki
        self._authority = authority
        self._renew_at = 0.0
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        if (now := time.time()) >= self._renew_at:
            certificate, key = self._pki.issue_client(KUBELET_CLIENT)
            access = Access(
                server="https://kubelet",
                ca=Pem(file=str(self._authority)) if self._authority else Pem(),
                certificate=Pem(certificate.decode()),
                key=Pem(key.decode()),
                verify=self._authority is not None,
            )
            self._context = credentials.ssl_context(access)
            self._renew_at = now + self._pki.lifetime.total_seconds() / 2
        return self._context


class KubeletProxy:
    """Implements podwire.apiserver.ports.Kubelets."""

    def __init__(self, relay: Relay, hosts: Collection[str], forward: Forwarder, context: Contexts) -> None:
        self._relay = relay
        self._forward = forward
        self._context = context
        self._hosts = frozenset(map(ipaddress.ip_address, hosts))
        self._one_machine = all(host.is_loopback for host in self._hosts)
        self.own_port = 0
        """The port of the API server, once it is known."""

    async def connect(self, kubelet: Kubelet, path: str, query: Query, request: Request) -> Answer:
        url = await self._url(kubelet) + path + (f"?{urlencode(query)}" if query else "")
        try:
            if upgrading.wants_spdy(request.headers) or upgrading.tunnelled(request.headers):
                return await self._relay.tunnel(url, request)
            if upgrading.wants_websocket(request.headers):
                if path.startswith("/containerLogs/"):
                    return as_messages(await self._relay.answer("GET", url))
                protocols = PORT_PROTOCOLS if path.startswith("/portForward/") else COMMAND_PROTOCOLS
                return await self._relay.conversation(url, request, protocols=protocols)
            method = (
                "GET" if "upgrade" in request.headers else request.method
            )  # an unknown upgrade: the kubelet explains its refusal
            body = await request.read(MAX_BODY) if method != "GET" else b""
            return await self._relay.answer(method, url, body)
        except ApiError as error:
            if error.code != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise ApiError(error.reason, f'{error.message} (the kubelet of node "{kubelet.node}")', code=500) from error

    async def forward(self, kubelet: Kubelet, path: str, prefix: str, request: Request) -> Answer:
        url = await self._url(kubelet) + path
        return await self._forward.forward(url, request, prefix=prefix, context=self._context())

    async def _url(self, kubelet: Kubelet) -> str:
        address = await self._checked(kubelet)
        return f"https://[{address}]:{kubelet.port}" if ":" in address else f"https://{address}:{kubelet.port}"

    async def _checked(self, kubelet: Kubelet) -> str:
        """Returns the IP address of a kubelet. Raises ApiError for one that is not allowed."""
        try:
            ip = ipaddress.ip_address(kubelet.address)
        except ValueError:
            ip = ipaddress.ip_address(await _resolved(kubelet.address))
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        itself = kubelet.port == self.own_port and (ip.is_loopback or ip in self._hosts)
        loopback = ip.is_loopback and not self._one_machine
        if itself or loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
            raise bad_request(f'address not allowed: {kubelet.address}:{kubelet.port} of node "{kubelet.node}"')
        return str(ip)


async def _resolved(name: str) -> str:
    """Returns the first address of a host name."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ApiError(Reason.UNKNOWN, f"dial tcp: lookup {name}: no such host", code=500) from error
    return str(found[0][4][0]).partition("%")[0]
