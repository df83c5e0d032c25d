"""Runs an API server: keys, store, server, listening socket and controllers, in that order."""

import asyncio
import contextlib
import ipaddress
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

from podwire.apiserver import Assembled, Pki, Settings, assemble, bootstrap
from podwire.apiserver.admission.plugins import AdmissionSettings
from podwire.apiserver.admission.service_addresses import Network
from podwire.apiserver.audit import AuditLog, Rotation, read_policy
from podwire.apiserver.audit.policy import Policy
from podwire.apiserver.identity.pki import CERTIFICATE_LIFETIME, PkiError
from podwire.apiserver.identity.users import MASTERS, User
from podwire.apiserver.ports import Backends, Kubelets
from podwire.cluster import tracing
from podwire.cluster.aggregation_proxy import aggregation_proxy
from podwire.cluster.apiserver_controllers import run_in_process
from podwire.cluster.backend_proxy import backend_proxy
from podwire.cluster.backup import at_rest, read_encryption, scheme
from podwire.cluster.daemons import background
from podwire.cluster.kubelet_proxy import kubelet_proxy
from podwire.cluster.loopback import LoopbackHttp
from podwire.cluster.server_endpoints import ServerEndpoints
from podwire.cluster.store_metrics import MeteredStore
from podwire.cluster.store_tap import tapped_store
from podwire.cluster.webhook_client import webhook_client
from podwire.controllers import work_queue
from podwire.controllers.leader_election import Election, identity_of
from podwire.controllers.registry import ALL, acting, usable
from podwire.controllers.service_balancer import ServiceBalancer
from podwire.durable.files import replace_file
from podwire.kinds import stored
from podwire.linux.errors import OutOfResources
from podwire.linux.fs.trust import make_directory
from podwire.linux.machine import KernelMachine
from podwire.linux.proc.own_usage import own_usage
from podwire.objects.pod_networks import PodNetwork
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access, Pem, write_kubeconfig
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.prometheus import Metrics
from podwire.protocols.settings import BadConfig
from podwire.store import AnyStore, open_store
from podwire.store.encryption import PLAIN, Encryption
from podwire.tasks.uncancelled import thread_to_completion
from podwire.trace.participants import API_SERVER
from podwire.transports import http_server, tls
from podwire.transports.clock import SystemClock
from podwire.transports.http_server import HttpServer

T = TypeVar("T")

_log = logging.getLogger("podwire.apiserver")

LOOPBACK = "127.0.0.1"
CONTEXT = "podwire"
"""The context in kubeconfigs, unless another one is chosen."""
OWN_IDENTITY = Certificate("system:apiserver", (MASTERS,))
RENEWAL_CHECK = 3600.0
"""Seconds between two looks at the certificates."""
GRACE = 0.5
"""Seconds for requests in flight when the server stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user with groups that gets a kubeconfig and calls the server at `host`."""

    user: str
    groups: tuple[str, ...] = ()
    kubeconfig: Path
    host: str = ""
    """Empty: the host of the admin kubeconfig."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server of the cluster that gets a certificate: a kubelet."""

    name: str
    ips: tuple[str, ...]
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of an API server, as on the command line."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 6443
    advertise: str = ""
    """The address for pods and other machines; empty: the first of `also`, or that of this machine."""
    also: tuple[str, ...] = ()
    """More addresses to listen on, at the same port; pods get the first."""
    store_url: str | None = None
    kubeconfig: Path | None = None
    context: str = CONTEXT
    """The context in the kubeconfig of the admin."""
    kubeconfig_owner: tuple[int, int] | None = None
    """User and group of the admin's kubeconfig; None for those of this process."""
    service_networks: tuple[Network, ...] = (ipaddress.ip_network("10.96.0.0/16"),)
    """Addresses of Services, of one family or both; the first is the default."""
    controllers: frozenset[str] = ALL
    """The names of the controllers that run in this process."""
    balancer_pool: tuple[Network, ...] = ()
    """Addresses that controllers of this process give to Services of type LoadBalancer; empty: others give them."""
    pod_networks: tuple[PodNetwork, ...] = ()
    """Networks of pods, of which controllers of this process give each node a part; empty: nodes have their own."""
    also_reconciled: frozenset[tuple[str, str]] = frozenset()
    """Group and resource of kinds on which other components of the cluster act."""
    definitions: tuple[stored.Object, ...] = ()
    """CustomResourceDefinitions of these components, which are created if they are missing."""
    leader_elect: bool = False
    """Whether the controllers run only while this process holds the lease of kube-controller-manager."""
    static_tokens: Mapping[str, User] = field(default_factory=dict)
    identities: tuple[Identity, ...] = ()
    servings: tuple[Serving, ...] = ()
    audit_policy: Path | None = None
    audit_log: str = ""
    """A file, or `-` for the standard output."""
    audit_rotation: Rotation = field(default_factory=Rotation)
    encryption_config: Path | None = None
    """An EncryptionConfiguration; without one, values are stored as they are."""
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    certificate_lifetime: timedelta = CERTIFICATE_LIFETIME
    """All certificates but the CA's are renewed in the middle of it."""
    kubelet_authority: Path | None = None
    """The CA of the serving certificates of kubelets; without one, any is accepted, as upstream does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An API server that answers at `url`, and its admin's kubeconfig."""

    assembled: Assembled
    url: str
    kubeconfig: Path


class Clients(NamedTuple):
    """Connections of the API server to other parts of the cluster."""

    kubelets: Kubelets
    backends: Backends


def _election(options: Options) -> Election | None:
    """Returns how the controllers are elected. A restarted server has the identity of its predecessor: both cannot run
    on one data directory. On a store of its own, nobody else can renew the lease while this process cannot, and it is
    renewed less often: each renewal is a write."""
    if not options.leader_elect:
        return None
    election = Election(identity=identity_of(os.uname().nodename, str(options.data_dir.absolute())))
    return (
        election
        if is_shared(options)
        else replace(election, lease_seconds=15.0, renew_deadline=math.inf, retry_seconds=5.0)
    )


def is_shared(options: Options) -> bool:
    """Whether other API servers may use the same store."""
    return (options.store_url or "").startswith("etcd")


@contextlib.asynccontextmanager
async def running(options: Options) -> AsyncIterator[Running]:
    """Runs an API server while the context is open.

    1. Keys and certificates.  2. The store.  3. Clients for kubelets, pods and webhooks.  4. The server, with its first
    objects.  5. Listen.  6. Kubeconfigs and certificates.  7. Watches of the store, the controllers, and the renewal of
    certificates.  Stop in reverse.
    """
    pki = await asyncio.to_thread(_open_pki, options)
    front = await asyncio.to_thread(
        Pki.open, options.data_dir / "front-proxy", names=[], ips=[], lifetime=options.certificate_lifetime
    )
    async with contextlib.AsyncExitStack() as stack:
        audit_log = await stack.enter_async_context(_audit_log(options))
        encryption = _encryption(options)
        opened = await open_store(options.store_url, options.data_dir / "store", encryption, stored.is_being_deleted)
        metrics = Metrics()
        metrics.collect_values(own_usage)
        metrics.collect(work_queue.METRICS.lines)
        store = tapped_store(MeteredStore(opened, metrics), tracing.tap(API_SERVER), options.store_url or "")
        stack.push_async_callback(store.close)
        proxy = kubelet_proxy(pki, options.kubelet_authority, (options.host, *options.also))
        kubelets = await stack.enter_async_context(proxy)
        backends = await stack.enter_async_context(backend_proxy((options.host, *options.also)))
        webhooks = await stack.enter_async_context(webhook_client())
        aggregated = await stack.enter_async_context(aggregation_proxy(front))
        clients = Clients(kubelets, backends)
        settings = replace(
            _settings(options, store, clients, audit_log, metrics),
            webhooks=webhooks,
            aggregated=aggregated,
            at_rest=at_rest(encryption),
            store_scheme=scheme(options.store_url),
        )
        assembled = assemble(store, pki, SystemClock(), settings)
        await assembled.start()
        http = await _listen(assembled, pki, options.host, options.port)
        kubelets.own_port = backends.own_port = http.port
        stack.push_async_callback(http.close, GRACE)
        for host in options.also:
            more = await _listen(assembled, pki, host, http.port)
            stack.push_async_callback(more.close, GRACE)
        address = await asyncio.to_thread(_reached_at, options)
        if not is_shared(options):
            await bootstrap.advertise(assembled.engine, address, http.port)
        url = f"https://{_url_host(options.host)}:{http.port}"
        path = options.kubeconfig or options.data_dir / "kubeconfig"
        await asyncio.to_thread(_write_first_credentials, options, pki, http.port)
        controllers = (
            [
                run_in_process(
                    assembled,
                    options.controllers,
                    _election(options),
                    balancer_pool=options.balancer_pool,
                    pod_networks=options.pod_networks,
                )
            ]
            if options.controllers
            else []
        )
        if is_shared(options) and not ipaddress.ip_address(address).is_loopback:
            client = Client(LoopbackHttp(assembled.server.handle, OWN_IDENTITY, "podwire-apiserver"))
            endpoints = ServerEndpoints(client, SystemClock(), str(options.data_dir.absolute()), (address, http.port))
            controllers.append(endpoints.keep())
        renewal = _renew_certificates(options, http.port)
        await stack.enter_async_context(background(assembled.run(), renewal, *controllers))
        _log.info(
            "API server is serving",
            extra={"url": url, "store": options.store_url or "sqlite://", "kubeconfig": str(path)},
        )
        yield Running(assembled=assembled, url=url, kubeconfig=path)


def _encryption(options: Options) -> Encryption:
    return PLAIN if options.encryption_config is None else _read(options.encryption_config, read_encryption)


def _reached_at(options: Options) -> str:
    """Returns the address for pods; of a server on all addresses, the first address of the machine."""
    address = options.advertise or next(iter(options.also), options.host)
    if not ipaddress.ip_address(address).is_unspecified:
        return address
    return next((str(address) for address in KernelMachine().addresses()), LOOPBACK)


def _settings(
    options: Options, store: AnyStore, clients: Clients, audit_log: AuditLog | None, metrics: Metrics
) -> Settings:
    return Settings(
        service_networks=options.service_networks,
        static_tokens=options.static_tokens,
        address=f"{options.host}:{options.port}",
        checks={"store": lambda: store.failure},
        live_checks={"store": lambda: "" if store.is_full else store.failure},
        kubelets=clients.kubelets,
        backends=clients.backends,
        audit=_audit_policy(options),
        audit_sink=audit_log.put if audit_log is not None else None,
        admission=options.admission,
        reconciled=acting(options.controllers) | options.also_reconciled,
        gives_balancer_addresses=ServiceBalancer.name in usable(options.controllers, pool=bool(options.balancer_pool)),
        definitions=options.definitions,
        metrics=metrics,
    )


@contextlib.asynccontextmanager
async def _audit_log(options: Options) -> AsyncIterator[AuditLog | None]:
    """Opens the audit log; what is left in it is written at the end."""
    if not options.audit_log:
        yield None
        return
    log = await asyncio.to_thread(AuditLog, options.audit_log, options.audit_rotation)
    try:
        yield log
    finally:
        await thread_to_completion(log.close)


def _audit_policy(options: Options) -> Policy | None:
    return _read(options.audit_policy, read_policy) if options.audit_policy is not None else None


def _read(path: Path, read: Callable[[Path], T]) -> T:
    """Reads a settings file; an error names it."""
    try:
        return read(path)
    except BadConfig as error:
        raise BadConfig(f"{path}: {error.key}".rstrip(": "), error.reason) from error


def _open_pki(options: Options) -> Pki:
    """Opens the server's keys, with a certificate for every name and address of the server."""
    make_directory(options.data_dir, 0o700)
    make_directory(options.data_dir / "store", 0o700, no_links_below=options.data_dir)
    addresses = [str(network[1]) for network in options.service_networks]
    hosts = (options.host, *options.also, *((options.advertise,) if options.advertise else ()))
    addresses += [host for host in hosts if not ipaddress.ip_address(host).is_unspecified]
    return Pki.open(
        options.data_dir / "pki",
        names=[os.uname().nodename],
        ips=addresses,
        lifetime=options.certificate_lifetime,
    )


async def _listen(assembled: Assembled, pki: Pki, host: str, port: int) -> HttpServer:
    context = tls.ServingContext(pki.serving_certificate, pki.serving_key, pki.authority_path)
    handler = assembled.server.handle
    tap = tracing.tap(API_SERVER)
    return await http_server.serve(handler, host=host, port=port, ssl_context=context, tap=tap, callee=API_SERVER)


def _url_host(host: str) -> str:
    if ipaddress.ip_address(host).is_unspecified:
        return "[::1]" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


async def _renew_certificates(options: Options, port: int) -> None:
    """Replaces certificates before they expire; their users notice the new files.

    The server's own is renewed when it expires soon; those of components, kubelets and the administrator, which a start
    issues, in the middle of their lifetime.
    """
    lifetime = options.certificate_lifetime.total_seconds()
    renew_at = time.time() + lifetime / 2
    while True:
        await asyncio.sleep(min(RENEWAL_CHECK, lifetime / 10))
        try:
            pki = await thread_to_completion(_open_pki, options)
            if time.time() < renew_at:
                continue
            await thread_to_completion(_write_credentials, options, pki, port)
        except (OSError, PkiError) as error:
            _log.warning("cannot renew certificates", extra={"error": str(error)})
            continue
        renew_at = time.time() + lifetime / 2
        _log.info("certificates were renewed", extra={"lifetime": str(options.certificate_lifetime)})


def _write_credentials(options: Options, pki: Pki, port: int) -> None:
    """Writes kubeconfigs and certificates, the admin kubeconfig last: it is the signal that all others exist."""
    admin = Identity(
        user="kubernetes-admin", groups=(MASTERS,), kubeconfig=options.kubeconfig or options.data_dir / "kubeconfig"
    )
    for serving in options.servings:
        certificate, key = pki.issue_server(serving.name, names=[serving.name], ips=serving.ips)
        before = serving.key.read_bytes() if serving.key.exists() else b""
        _write(serving.key, key)
        try:
            _write(serving.certificate, certificate)
        except OutOfResources:  # the disk is full: the present key and certificate are a pair
            _write(serving.key, before)
            raise
    for identity in (*options.identities, admin):
        url = f"https://{_url_host(identity.host or options.host)}:{port}"
        _write_kubeconfig(identity, pki, url, options.context if identity is admin else CONTEXT)
    if options.kubeconfig_owner is not None:
        os.chown(admin.kubeconfig, *options.kubeconfig_owner, follow_symlinks=False)


def _write_first_credentials(options: Options, pki: Pki, port: int) -> None:
    """Writes kubeconfigs and certificates at the start; on a full disk, those of the last start stay."""
    try:
        _write_credentials(options, pki, port)
    except OutOfResources as error:
        kubeconfigs = [
            options.kubeconfig or options.data_dir / "kubeconfig",
            *(identity.kubeconfig for identity in options.identities),
        ]
        if not all(path.exists() for path in (*kubeconfigs, *(serving.certificate for serving in options.servings))):
            raise
        _log.warning("cannot renew credentials and keeps the present ones", extra={"error": str(error)})


def _write_kubeconfig(identity: Identity, pki: Pki, url: str, context: str) -> None:
    """Names the user after the context too, so that kubeconfigs of several clusters can be merged."""
    user = "admin" if context == CONTEXT else context
    certificate, key = pki.issue_client(identity.user, identity.groups)
    access = Access(
        server=url,
        ca=Pem(pki.authority_pem.decode()),
        certificate=Pem(certificate.decode()),
        key=Pem(key.decode()),
    )
    _write(identity.kubeconfig, write_kubeconfig(access, name=context, user=user).encode())


def _write(path: Path, data: bytes) -> None:
    """Replaces a file atomically, readable by its owner only; without fsync, because every start writes it anew."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, data)
