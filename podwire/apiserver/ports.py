"""What the API server needs from its neighbours, in its own words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podwire.protocols.k8sapi.server_side import Answer, Request
from podwire.protocols.storage import Item, Page, Watch

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """Where a node's kubelet serves."""

    node: str
    address: str
    port: int


class Kubelets(Protocol):
    """The way to the kubelets."""

    async def connect(self, kubelet: Kubelet, path: str, query: Query, request: Request) -> Answer:
        """The kubelet's answer on behalf of a request; its refusals are answers, too, in plain text.

        A request for a WebSocket becomes a conversation with the kubelet. Raises ApiError when nobody answers.
        """
        ...


class Store(Protocol):
    """Where objects live: keys to bytes, one revision for the whole. See podwire.protocols.storage for the words."""

    @property
    def revision(self) -> int:
        """The newest revision that this process has seen committed."""
        ...

    async def get(self, key: str) -> Item | None:
        """The key as of now: never older than any write acknowledged before the call."""
        ...

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        """Keys under `prefix` (which ends in '/') in order, as of now or as of revision `at`.

        `after` is the last key of the page before; `limit` 0 means all. Raises Gone or NotYet for `at`.
        """
        ...

    async def create(self, key: str, value: bytes) -> Item:
        """Durable when it returns. Raises KeyExists."""
        ...

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        """Durable when it returns. Raises Stale unless the key is at revision `expected`."""
        ...

    async def delete(self, key: str, *, expected: int) -> int:
        """The revision of the deletion, durable when it returns. Raises Stale."""
        ...

    def watch(self, prefix: str, *, after: int) -> Watch:
        """Every change under `prefix` with a revision above `after`. Gone may be raised here or by `next`."""
        ...
