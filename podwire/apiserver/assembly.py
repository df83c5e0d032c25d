"""Builds one API server over a given store; no sockets, nothing runs yet."""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from podwire.apiserver import bootstrap
from podwire.apiserver.admission import Admission
from podwire.apiserver.admission.allocation_reconciler import AllocationReconciler
from podwire.apiserver.admission.claim_status import ClaimStatusRights
from podwire.apiserver.admission.device_claims import DeviceClaims
from podwire.apiserver.admission.informers import Informers
from podwire.apiserver.admission.namespaces import Namespaces
from podwire.apiserver.admission.no_effect import NoEffectWarnings
from podwire.apiserver.admission.plugins import AdmissionSettings, Dependencies, build_plugins
from podwire.apiserver.admission.policies.informer import PolicyInformer
from podwire.apiserver.admission.policies.mutating import MutatingPolicies, MutatingPolicyInformer
from podwire.apiserver.admission.policies.plugin import Policies
from podwire.apiserver.admission.policies.requests import Versions
from podwire.apiserver.admission.role_escalation import RoleEscalation
from podwire.apiserver.admission.service_addresses import Network, ServiceAddresses
from podwire.apiserver.admission.service_allocations import ServiceAllocations
from podwire.apiserver.admission.signing_rights import SigningRequesters, SigningRights
from podwire.apiserver.admission.webhooks.informer import WebhookInformer
from podwire.apiserver.aggregation import Aggregator
from podwire.apiserver.audit import Audit
from podwire.apiserver.audit.audit import Sink
from podwire.apiserver.audit.policy import Policy
from podwire.apiserver.backup import AtRest, Backup
from podwire.apiserver.custom_resources import CustomResources, DefinitionFinalizer
from podwire.apiserver.engine import Engine, Identity
from podwire.apiserver.flowcontrol import FlowControl, FlowInformer, Seats
from podwire.apiserver.identity.authentication import Authenticator
from podwire.apiserver.identity.authorization import Authorizer
from podwire.apiserver.identity.bootstrap_tokens import BootstrapTokens
from podwire.apiserver.identity.node_authorizer import NodeAuthorizer
from podwire.apiserver.identity.node_graph import NodeGraph, NodeGraphInformer
from podwire.apiserver.identity.pki import Pki
from podwire.apiserver.identity.rbac import Roles
from podwire.apiserver.identity.rbac_informer import RbacInformer
from podwire.apiserver.identity.service_accounts import StoredServiceAccounts
from podwire.apiserver.identity.tokens import Tokens, discovery, key_set
from podwire.apiserver.identity.users import User
from podwire.apiserver.limits import Limits
from podwire.apiserver.local_services import LocalServices
from podwire.apiserver.ports import AggregatedServers, Backends, HttpsClient, Kubelets, Store
from podwire.apiserver.registry import Registry
from podwire.apiserver.request.endpoints import Check, Endpoints
from podwire.apiserver.resource_metrics import metrics_resources
from podwire.apiserver.server import ApiServer
from podwire.apiserver.service_endpoints import ServiceEndpoints
from podwire.apiserver.webhook_calls import WebhookCalls
from podwire.apiserver.write.creation import random_name
from podwire.interfaces import Clock
from podwire.kinds.catalog import builtin_resources
from podwire.kinds.schema import OpenApi, Schemas
from podwire.kinds.schema.definitions import load
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.prometheus import Metrics

_PING: Mapping[str, Check] = {"ping": lambda: ""}
ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of an operator."""

    service_networks: tuple[Network, ...] = (ipaddress.ip_network("10.96.0.0/16"),)
    """Addresses of services, of one family or both; the first is the default."""
    static_tokens: Mapping[str, User] = field(default_factory=dict)
    address: str = "127.0.0.1:6443"
    """The address in discovery; kubectl ignores it."""
    limits: Limits = field(default_factory=Limits)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    checks: Mapping[str, Check] = field(default_factory=dict)
    """Health checks besides the server's own; `live_checks` replace those of the same name for /livez and /healthz."""
    live_checks: Mapping[str, Check] = field(default_factory=dict)
    audit: Policy | None = None
    """The audit log; without one, nothing is recorded."""
    audit_sink: Sink | None = None
    reconciled: frozenset[tuple[str, str]] = frozenset()
    """Group and resource of the kinds on which controllers of this cluster act; others may cause a warning."""
    gives_balancer_addresses: bool = False
    """Whether a controller of this cluster gives addresses to Services of type LoadBalancer."""
    definitions: tuple[Object, ...] = ()
    """CustomResourceDefinitions that the cluster comes with, all valid. Existing ones are left as they are."""
    generate_name: Callable[[str], str] = random_name
    """Returns a name for a generateName; tests hand in predictable ones."""
    kubelets: Kubelets | None = None
    """Reaches kubelets for log, exec, attach and the like; without it they are refused."""
    aggregated: AggregatedServers | None = None
    """Reaches aggregated API servers; without it they are unavailable."""
    webhooks: HttpsClient | None = None
    """Reaches webhooks; without it they fail."""
    metrics: Metrics = field(default_factory=Metrics)
    """The metrics of the process, which /metrics shows."""
    at_rest: AtRest = attrgetter("value")
    """Returns a value as the store keeps it, for backups."""
    store_scheme: str = "memory"
    backends: Backends | None = None
    """Reaches pods for their proxy, and endpoints of services; without it they are refused."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """An API server: call `start` once, then `server.handle` answers; `run` follows the store until cancelled."""

    server: ApiServer
    engine: Engine
    custom: CustomResources
    policies: PolicyInformer
    mutating_policies: MutatingPolicyInformer
    webhooks: WebhookInformer
    addresses: AllocationReconciler
    roles: RbacInformer
    node_graph: NodeGraphInformer
    flows: FlowInformer
    aggregator: Aggregator
    pki: Pki
    settings: Settings

    async def start(self) -> None:
        """Prepares the server.

        1. Create the first objects.  2. Load custom resources, so that no client gets a 404 for them. 3. Load roles
        and what nodes need.  4. Load policies and webhooks, so that no write bypasses them.  5. Load flow
        schemas and their levels.
        """
        authority = self.pki.authority_pem.decode()
        networks = self.settings.service_networks
        front = self.settings.aggregated.authority_pem if self.settings.aggregated else ""
        await bootstrap.fill(
            self.engine,
            authority_pem=authority,
            service_address=str(networks[0][1]),
            service_networks=[str(network) for network in networks],
            front_proxy_pem=front,
            definitions=self.settings.definitions,
        )
        await self.custom.load()
        await self.roles.load()
        await self.node_graph.load()
        await self.policies.load()
        await self.mutating_policies.load()
        await self.webhooks.load()
        await self.flows.load()

    async def run(self) -> None:
        """Runs until cancelled; if one informer fails, all stop."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.custom.run(), name="custom resources")
            parts.create_task(self.policies.run(), name="admission policies")
            parts.create_task(self.mutating_policies.run(), name="mutating policies")
            parts.create_task(self.webhooks.run(), name="admission webhooks")
            parts.create_task(self.addresses.run(), name="service addresses")
            parts.create_task(self.roles.run(), name="roles")
            parts.create_task(self.node_graph.run(), name="node graph")
            parts.create_task(self.flows.run(), name="flow control")
            parts.create_task(self.aggregator.run(), name="aggregation")
            parts.create_task(LocalServices(self.engine).run(), name="local APIServices")


def assemble(store: Store, pki: Pki, clock: Clock, settings: Settings | None = None) -> Assembled:
    """Builds everything and connects it."""
    settings = settings or Settings()
    definitions = load()
    schemas = Schemas(definitions)
    registry = Registry([*builtin_resources(schemas), *metrics_resources(schemas)])
    allocations, roles, graph = ServiceAllocations(store, clock), Roles(), NodeGraph()
    identity = _identity(store, pki, clock, settings, Authorizer(roles, NodeAuthorizer(graph.related)))
    versions = Versions(store, registry, identity.authorizer)
    policies = Policies(store, registry, versions)
    mutating_policies = MutatingPolicyInformer(store, MutatingPolicies(store, registry, versions))
    calls = WebhookCalls(settings.webhooks, ServiceEndpoints(store))
    webhooks = WebhookInformer.build(store, versions, calls, clock, settings.metrics)
    given = Dependencies(
        store=store,
        clock=clock,
        limits=settings.limits,
        namespaces=Namespaces(store),
        informers=Informers(store),
        policies=policies,
        mutating_policies=mutating_policies.active,
        webhooks=webhooks,
        authorizer=identity.authorizer,
        registry=registry,
        settings=settings.admission,
    )
    engine = Engine.build(
        store=store,
        registry=registry,
        schemas=schemas,
        identity=identity,
        admission=_admission(
            given,
            ServiceAddresses(allocations, settings.service_networks, given.informers.service_cidrs),
            NoEffectWarnings(
                store=store,
                clock=clock,
                registry=registry,
                informers=given.informers,
                reconciled=settings.reconciled,
                gives_balancer_addresses=settings.gives_balancer_addresses,
            ),
        ),
        clock=clock,
        limits=settings.limits,
        kubelets=settings.kubelets,
        backends=settings.backends,
        generate_name=settings.generate_name,
    )
    openapi = OpenApi(BUILTIN.all, definitions)
    endpoints = Endpoints(
        registry,
        openapi,
        address=settings.address,
        checks={**_PING, **settings.checks},
        live_checks={**_PING, **settings.checks, **settings.live_checks},
        documents=_issuer(pki),
        metrics=settings.metrics,
        backup=Backup(store, clock, settings.at_rest, settings.store_scheme),
    )
    flow_control = FlowControl(Seats(settings.limits.requests_in_flight, settings.limits.queue_seconds))
    aggregator = Aggregator(engine, openapi, settings.aggregated)
    server = ApiServer(engine, endpoints, flow_control, _audit(settings, clock), settings.metrics, aggregator)
    return Assembled(
        server=server,
        engine=engine,
        custom=CustomResources(engine, openapi, calls),
        policies=PolicyInformer(engine, policies),
        mutating_policies=mutating_policies,
        webhooks=webhooks,
        addresses=AllocationReconciler(allocations, settings.limits),
        roles=RbacInformer(store, roles),
        node_graph=NodeGraphInformer(store, graph),
        flows=FlowInformer(engine, flow_control),
        aggregator=aggregator,
        pki=pki,
        settings=settings,
    )


def _audit(settings: Settings, clock: Clock) -> Audit | None:
    if settings.audit is None or settings.audit_sink is None:
        return None
    return Audit(settings.audit, settings.audit_sink, clock)


def _identity(store: Store, pki: Pki, clock: Clock, settings: Settings, authorizer: Authorizer) -> Identity:
    tokens = Tokens(pki.account_key, ISSUER, (ISSUER,), clock)
    bootstrap_tokens = BootstrapTokens(store, clock)
    accounts = StoredServiceAccounts(store, clock)
    authenticator = Authenticator(tokens, accounts, settings.static_tokens, bootstrap_tokens)
    return Identity(authenticator, authorizer, tokens)


def _admission(given: Dependencies, addresses: ServiceAddresses, warnings: NoEffectWarnings) -> Admission:
    """Returns the plugins in upstream's order, then what upstream does where it stores an object: always on."""
    return Admission(
        build_plugins(given),
        [
            addresses,
            ClaimStatusRights(given.authorizer),
            DeviceClaims(given.store),
            DefinitionFinalizer(),
            SigningRequesters(),
            RoleEscalation(given.authorizer, given.authorizer.roles),
            SigningRights(given.authorizer),
            warnings,
        ],
    )


def _issuer(pki: Pki) -> dict[str, bytes]:
    """Returns the OpenID documents with which others verify this server's tokens."""
    keys = f"{ISSUER}/openid/v1/jwks"
    return {
        "/.well-known/openid-configuration": msgspec.json.encode(discovery(ISSUER, keys)),
        "/openid/v1/jwks": msgspec.json.encode(key_set(pki.account_key.public_key())),
    }
