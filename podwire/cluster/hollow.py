"""Runs hollow nodes against any API server, over HTTP."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podwire.kubelet.hollow import HollowNodes, HollowSettings
from podwire.linux.machine import KernelMachine
from podwire.protocols.k8sapi.client_side import Client, Http, Incoming, Reply
from podwire.protocols.k8sapi.client_side.http import Query
from podwire.transports import credentials, http_client
from podwire.transports.clock import SystemClock

USER_AGENT = "podwire-hollow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    kubeconfigs: Sequence[str]
    """Files that describe the access together."""
    settings: HollowSettings
    context: str = ""


class LimitedHttp:
    """A client with so many requests in flight at most; thousands of nodes share its connections."""

    def __init__(self, http: Http, requests: int) -> None:
        self._http = http
        self._slots = asyncio.Semaphore(requests)

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        async with self._slots:
            return await self._http.request(method, path, query=query, headers=headers, body=body)

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        return await self._http.stream(method, path, query=query, headers=headers)


async def run(options: Options) -> None:
    """Works until cancelled; a server that does not answer is retried. Raises BadKubeconfig."""
    access = credentials.load_merged(options.kubeconfigs, context=options.context)
    facts = await asyncio.to_thread(KernelMachine().facts)
    async with http_client.connect(access, user_agent=USER_AGENT) as http:
        api = Client(LimitedHttp(http, options.settings.requests))
        await HollowNodes(api, SystemClock(), facts, options.settings).run()
