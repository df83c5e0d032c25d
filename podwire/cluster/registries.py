"""Registries by the files of this machine: `etc/containerd/certs.d`, as containerd reads it, and the HTTP client."""

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from podwire.linux import errors
from podwire.linux.fs.regular_files import read_head
from podwire.protocols.distribution import BadHosts, Host, Tls, default_hosts, parse_hosts
from podwire.protocols.distribution.hosts import directories
from podwire.protocols.distribution.http import Http, Response, Unreachable
from podwire.protocols.distribution.proxies import BadProxy, parse_proxies

DIRECTORY = "etc/containerd/certs.d"
LONGEST = 1 << 20
"""Bytes of one hosts.toml."""


def hosts_finder(root: Path) -> Callable[[str], Sequence[Host]]:
    """Returns a function that reads the hosts of a registry below `root`, anew for each pull: edits count at once."""

    def find(registry: str) -> Sequence[Host]:
        for name in directories(registry):
            directory = root / name
            try:
                data = read_head(directory / "hosts.toml", LONGEST + 1, follow=True)
            except errors.NoSuchPath:
                if tls := _docker_certificates(directory):
                    return default_hosts(registry, tls)
                continue
            if len(data) > LONGEST:
                raise BadHosts(f"{directory / 'hosts.toml'}: has more than {LONGEST} bytes")
            try:
                return parse_hosts(data.decode(), registry, str(directory))
            except (BadHosts, UnicodeDecodeError) as error:
                raise BadHosts(f"{directory / 'hosts.toml'}: {error}") from error
        return default_hosts(registry)

    return find


def _docker_certificates(directory: Path) -> Tls | None:
    """Docker's layout: `*.crt` are authorities, `*.cert` with `*.key` are clients' certificates."""
    if not directory.is_dir():
        return None
    authorities = tuple(str(path) for path in sorted(directory.glob("*.crt")))
    clients = tuple((str(path), str(path.with_suffix(".key"))) for path in sorted(directory.glob("*.cert")))
    return Tls(authorities, clients) if authorities or clients else None


class LazyHttp:
    """Opens the HTTP client at the first request: a runtime that never pulls does not load it.

    Proxies are those of the environment, by default of this process.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._stack = contextlib.AsyncExitStack()
        self._client: Http | None = None

    async def request(
        self, method: str, url: str, *, headers: Sequence[tuple[str, str]] = (), body: bytes = b"", tls: Tls
    ) -> Response:
        if self._client is None:
            from podwire.transports.registry_http import open_client  # noqa: PLC0415 - heavy, and often not needed

            try:
                proxies = parse_proxies(self._environ)
            except BadProxy as error:
                raise Unreachable(str(error)) from error
            self._client = await self._stack.enter_async_context(open_client(proxies=proxies))
        return await self._client.request(method, url, headers=headers, body=body, tls=tls)

    async def close(self) -> None:
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def registry_client() -> AsyncIterator[LazyHttp]:
    client = LazyHttp()
    try:
        yield client
    finally:
        await client.close()
