"""Builds an API server: store, identity, resources, keepers, and a listening socket; in that order, and back."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from podwire.apiserver import bootstrap
from podwire.apiserver.accounts import StoredAccounts
from podwire.apiserver.admission import Admission
from podwire.apiserver.admission.addresses import Network, ServiceAddresses
from podwire.apiserver.admission.lifecycle import NamespaceLifecycle
from podwire.apiserver.admission.pods import FailingNodes, Priorities, ServiceAccounts
from podwire.apiserver.authn import Authenticator
from podwire.apiserver.authz import Authorizer
from podwire.apiserver.catalog import builtin_resources
from podwire.apiserver.custom import CustomResources, DefinitionFinalizer
from podwire.apiserver.endpoints import Check, Endpoints
from podwire.apiserver.engine import Engine, Identity
from podwire.apiserver.keepers import AddressKeeper
from podwire.apiserver.pki import Pki
from podwire.apiserver.registry import Registry
from podwire.apiserver.schema import OpenApi, Schemas
from podwire.apiserver.schema.definitions import load
from podwire.apiserver.server import ApiServer
from podwire.apiserver.tokens import Tokens, discovery, key_set
from podwire.apiserver.users import MASTERS
from podwire.cluster.controllers import in_process_controllers
from podwire.cluster.files import write_private
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kubeconfig import Access, Pem, write_kubeconfig
from podwire.seams import Clock
from podwire.store import AnyStore, open_store
from podwire.transports import http_server, tls
from podwire.transports.clock import SystemClock
from podwire.transports.http_server import HttpServer

_log = logging.getLogger("podwire.apiserver")

ISSUER = "https://kubernetes.default.svc.cluster.local"
GRACE = 0.5
"""Seconds that requests in flight have left when the server stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run an API server; the command line's flags."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 6443
    store_url: str | None = None
    kubeconfig: Path | None = None
    service_network: Network = field(default_factory=lambda: ipaddress.ip_network("10.96.0.0/16"))
    controllers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that answers."""

    server: ApiServer
    engine: Engine
    pki: Pki
    url: str
    kubeconfig: Path


@contextlib.asynccontextmanager
async def running(options: Options) -> AsyncIterator[Running]:
    """Run an API server for as long as the context is open.

    1. Keys and certificates.  2. The store.  3. The first objects, custom resources.  4. Listen.
    5. The admin's kubeconfig.  6. Keepers and controllers.  Stopping goes backwards.
    """
    pki = await asyncio.to_thread(_open_pki, options)
    async with contextlib.AsyncExitStack() as stack:
        store = await open_store(options.store_url, options.data_dir / "store")
        stack.push_async_callback(store.close)
        parts = _build(options, store, pki, SystemClock())
        first = str(options.service_network[1])
        await bootstrap.fill(parts.engine, authority_pem=pki.authority_pem.decode(), service_address=first)
        await parts.custom.load()
        http = await _listen(options, parts.server, pki)
        stack.push_async_callback(http.close, GRACE)
        await bootstrap.advertise(parts.engine, options.host, http.port)
        url = f"https://{_url_host(options.host)}:{http.port}"
        path = options.kubeconfig or options.data_dir / "kubeconfig"
        await asyncio.to_thread(_write_kubeconfig, path, pki, url)
        await stack.enter_async_context(_background(parts, options))
        _log.info("serving", extra={"url": url, "store": options.store_url or "sqlite://", "kubeconfig": str(path)})
        yield Running(server=parts.server, engine=parts.engine, pki=pki, url=url, kubeconfig=path)


@dataclass(frozen=True, slots=True)
class _Parts:
    engine: Engine
    server: ApiServer
    custom: CustomResources
    addresses: AddressKeeper


def _build(options: Options, store: AnyStore, pki: Pki, clock: Clock) -> _Parts:
    """Connect the room's parts; nothing runs yet."""
    definitions = load()
    schemas = Schemas(definitions)
    registry = Registry(builtin_resources(schemas))
    tokens = Tokens(pki.account_key, ISSUER, (ISSUER,), clock)
    authenticator = Authenticator(tokens, StoredAccounts(store))
    addresses = ServiceAddresses(store, options.service_network, clock)
    judges = (
        NamespaceLifecycle(store),
        ServiceAccounts(store),
        Priorities(store),
        FailingNodes(),
        addresses,
        DefinitionFinalizer(),
    )
    engine = Engine.build(
        store=store,
        registry=registry,
        schemas=schemas,
        identity=Identity(authenticator, Authorizer(), tokens),
        admission=Admission(judges),
        clock=clock,
    )
    openapi = OpenApi(BUILTIN.all, definitions)
    endpoints = Endpoints(
        registry, openapi, address=f"{options.host}:{options.port}", checks=_checks(store), documents=_issuer(pki)
    )
    custom = CustomResources(engine, openapi)
    return _Parts(engine, ApiServer(engine, endpoints), custom, AddressKeeper(store, addresses))


def _checks(store: AnyStore) -> dict[str, Check]:
    """What health means: the process answers, and its store has not given up writing."""
    return {"ping": lambda: ""}


def _issuer(pki: Pki) -> dict[str, bytes]:
    """What others need to verify this server's tokens."""
    keys = f"{ISSUER}/openid/v1/jwks"
    return {
        "/.well-known/openid-configuration": msgspec.json.encode(discovery(ISSUER, keys)),
        "/openid/v1/jwks": msgspec.json.encode(key_set(pki.account_key.public_key())),
    }


async def _listen(options: Options, server: ApiServer, pki: Pki) -> HttpServer:
    context = tls.server_context(certificate=pki.serving_certificate, key=pki.serving_key, client_ca=pki.authority_path)
    return await http_server.serve(server.handle, host=options.host, port=options.port, ssl_context=context)


@contextlib.asynccontextmanager
async def _background(parts: _Parts, options: Options) -> AsyncIterator[None]:
    """Everything that follows the store on its own; one that fails takes the server down rather than lie."""
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(parts.custom.run(), name="custom resources"),
            tasks.create_task(parts.addresses.run(), name="service addresses"),
        ]
        if options.controllers:
            running.append(tasks.create_task(in_process_controllers(parts.server), name="controllers"))
        try:
            yield
        finally:
            for task in running:
                task.cancel()


def _open_pki(options: Options) -> Pki:
    """The server's keys, for every name and address under which it may be called."""
    (options.data_dir / "store").mkdir(mode=0o700, parents=True, exist_ok=True)
    addresses = [str(options.service_network[1])]
    if not ipaddress.ip_address(options.host).is_unspecified:
        addresses.append(options.host)
    return Pki.open(options.data_dir / "pki", names=[socket.gethostname()], ips=addresses)


def _url_host(host: str) -> str:
    if ipaddress.ip_address(host).is_unspecified:
        return "[::1]" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _write_kubeconfig(path: Path, pki: Pki, url: str) -> None:
    certificate, key = pki.issue_client("kubernetes-admin", [MASTERS])
    access = Access(
        server=url,
        ca=Pem(pki.authority_pem.decode()),
        certificate=Pem(certificate.decode()),
        key=Pem(key.decode()),
    )
    write_private(path, write_kubeconfig(access).encode())
