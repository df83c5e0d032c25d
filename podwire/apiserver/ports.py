"""Interfaces to the store, to kubelets, to pods and to webhooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podwire.protocols.k8sapi.server_side import Answer, Request
from podwire.protocols.storage import Condition, Item, Page, Watch

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """The address of a node's kubelet."""

    node: str
    address: str
    port: int


class Kubelets(Protocol):
    """Connects to kubelets."""

    async def connect(self, kubelet: Kubelet, path: str, query: Query, request: Request) -> Answer:
        """Forwards a request and returns the kubelet's answer; its errors are answers too, in plain text.

        A WebSocket request becomes a tunnel to the kubelet. Raises ApiError when the kubelet does not answer.
        """
        ...

    async def forward(self, kubelet: Kubelet, path: str, prefix: str, request: Request) -> Answer:
        """Forwards any request as a reverse proxy that clients see below `prefix`; `path` has the query.

        Raises ApiError when the kubelet does not answer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A port of a pod, of an endpoint of a service, or of a node."""

    scheme: str
    address: str
    port: int


class Backends(Protocol):
    """Connects to pods and nodes."""

    async def forward(self, backend: Backend, path: str, prefix: str, request: Request) -> Answer:
        """Forwards any request as a reverse proxy that clients see below `prefix`; `path` has the query.

        Raises ApiError when the backend does not answer, or is the API server itself.
        """
        ...


class Unreachable(Exception):
    """A server did not answer in time, or not as it must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpsTarget:
    """A URL, and where to connect to if that is not the URL's host; `ca` is PEM text of the trusted authorities."""

    url: str
    address: str = ""
    port: int = 0
    ca: str = ""


class HttpsClient(Protocol):
    """Posts to webhooks."""

    async def post(self, target: HttpsTarget, body: bytes, seconds: float) -> tuple[int, bytes]:
        """Returns the status and the body of the answer, which is bounded. Raises Unreachable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedServer:
    """An endpoint of the Service of an APIService; `ca` is PEM text of the trusted authorities."""

    address: str
    port: int
    server_name: str
    ca: str = ""
    insecure: bool = False


class AggregatedServers(Protocol):
    """Connects to aggregated API servers as the front proxy."""

    @property
    def authority_pem(self) -> str:
        """The CA of the front proxy's client certificate."""
        ...

    async def forward(
        self, server: AggregatedServer, path: str, request: Request, headers: Sequence[tuple[str, str]]
    ) -> Answer:
        """Forwards a request with headers beside the client's; `path` has the query. Raises ApiError."""
        ...

    async def fetch(self, server: AggregatedServer, path: str, headers: Sequence[tuple[str, str]]) -> tuple[int, bytes]:
        """Returns the status and the body of a document. Raises Unreachable."""
        ...


class Store(Protocol):
    """Stores values by key under one revision; podwire.protocols.storage defines the terms."""

    @property
    def revision(self) -> int:
        """The newest revision that this process knows to be committed."""
        ...

    async def get(self, key: str) -> Item | None:
        """Returns the key's current item: never older than a write that was acknowledged before the call."""
        ...

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        """Returns the keys under `prefix` (which ends in '/') in order, now or at revision `at`.

        `after` is the last key of the previous page; `limit` 0 means all. Raises Gone or NotYet for `at`.
        """
        ...

    async def create(self, key: str, value: bytes) -> Item:
        """Durable when it returns. Raises KeyExists."""
        ...

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        """Durable when it returns. Raises Stale unless the key is at revision `expected`."""
        ...

    async def delete(self, key: str, *, expected: int) -> int:
        """Returns the revision of the deletion, durable when it returns. Raises Stale."""
        ...

    async def select(self, prefix: str, conditions: Sequence[Condition], *, scope: str) -> Page | None:
        """Returns the present items under `scope`, itself under `prefix`, that meet all conditions, in order.

        None when the store has no index to answer that from: then the caller lists and reads.
        """
        ...

    def watch(self, prefix: str, *, after: int, trigger: Condition | None = None) -> Watch:
        """Returns a watch on changes under `prefix` above revision `after`. Gone is raised here or by `next`.

        With a trigger, changes whose item meets that condition neither now nor before may be left out.
        """
        ...
