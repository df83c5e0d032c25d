"""The API server's client for pods, services and nodes: a reverse proxy that never leads back to the API server.

Certificates of backends are not verified and no credentials are presented, as upstream does: a user who may use a proxy
asks for the connection, and vouches for what is at its end.
"""

import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Collection
from functools import cached_property

from podwire.apiserver.ports import Backend
from podwire.protocols.k8sapi.server_side import Answer, Request
from podwire.protocols.k8sapi.status import bad_request
from podwire.transports.http_forward import Forwarder, forwarder


@contextlib.asynccontextmanager
async def backend_proxy(hosts: Collection[str] = ()) -> AsyncIterator["BackendProxy"]:
    """`hosts` are the addresses that the API server listens on."""
    async with forwarder() as forward:
        yield BackendProxy(forward, hosts)


class BackendProxy:
    """Implements podwire.apiserver.ports.Backends."""

    def __init__(self, forward: Forwarder, hosts: Collection[str]) -> None:
        self._forward = forward
        self._hosts = frozenset(map(ipaddress.ip_address, hosts))
        self.own_port = 0
        """The port of the API server, once it is known."""

    async def forward(self, backend: Backend, path: str, prefix: str, request: Request) -> Answer:
        ip = ipaddress.ip_address(backend.address)
        everywhere = any(host.is_unspecified for host in self._hosts)
        if backend.port == self.own_port and (everywhere or ip in self._hosts):
            raise bad_request("address not allowed")
        host = f"[{ip}]" if ip.version == 6 else str(ip)
        url = f"{backend.scheme}://{host}:{backend.port}{path}"
        return await self._forward.forward(url, request, prefix=prefix, context=self._unverified)

    @cached_property
    def _unverified(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
