"""Opens the store that a URL names.

memory://                                   lives as long as the process
sqlite:// or nothing                        a file in the data directory
etcd://HOST:PORT[,HOST:PORT…][?OPTIONS]     options: prefix=/registry, ca=FILE, cert=FILE and key=FILE for TLS
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from podwire.protocols.storage import Condition, Item, Page, Watch
from podwire.store.encryption import PLAIN, Encryption
from podwire.store.errors import BadUrl
from podwire.store.memory import MemoryStore


class AnyStore(Protocol):
    """Operations of every store; podwire.protocols.storage defines their meaning."""

    @property
    def revision(self) -> int: ...

    @property
    def failure(self) -> str:
        """Why the store is unhealthy, for health checks; empty when it is healthy."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether it is unhealthy only because there is no space, which a restart would not change."""
        ...

    async def get(self, key: str) -> Item | None: ...

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page: ...

    async def create(self, key: str, value: bytes) -> Item: ...

    async def update(self, key: str, value: bytes, *, expected: int) -> Item: ...

    async def delete(self, key: str, *, expected: int) -> int: ...

    async def select(self, prefix: str, conditions: Sequence[Condition], *, scope: str) -> Page | None: ...

    def watch(self, prefix: str, *, after: int, trigger: Condition | None = None) -> Watch: ...

    async def compact(self, revision: int) -> None: ...

    async def close(self) -> None: ...


def check_url(url: str) -> None:
    """Checks the URL of a store, and opens nothing. Raises BadUrl."""
    scheme, separator, rest = url.partition("://")
    match scheme + separator:
        case "memory://" | "sqlite://":
            if rest:
                raise BadUrl(f"{scheme}://{rest}: nothing may follow {scheme}://")
        case "etcd://":
            from podwire.store.etcd.address import parse  # noqa: PLC0415 - gRPC takes 0.1 s to import

            parse(url)
        case _:
            raise BadUrl(f"{url}: the store must be memory://, sqlite:// or etcd://HOST:PORT")


async def open_store(
    url: str | None,
    data_dir: Path,
    encryption: Encryption = PLAIN,
    urgent: Callable[[Item], bool] | None = None,
) -> AnyStore:
    """Opens the store that `url` names; raises BadUrl or CannotOpen. A store in memory has nothing at rest.

    `urgent` says of an update whether it prepares a deletion, and so must not fail on a full disk.
    """
    url = url or "sqlite://"
    check_url(url)
    if url == "memory://":
        return MemoryStore()
    if url == "sqlite://":
        from podwire.store.sqlite import SqliteStore  # noqa: PLC0415 - imported only when used

        return await SqliteStore.open(data_dir, encryption=encryption, urgent=urgent)
    from podwire.store.etcd import EtcdStore  # noqa: PLC0415 - gRPC takes 0.1 s to import

    return await EtcdStore.open(url, encryption=encryption)
