"""What the API server needs from its neighbours, in its own words."""

from typing import Protocol

from podwire.protocols.storage import Item, Page, Watch


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
