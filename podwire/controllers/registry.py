"""The table of controllers: the name of each, the kinds on which it acts, and the kinds that it reads whole.

The names are upstream's where upstream has the controller. To add a controller is to add a row: it is then switched by
`--controllers`, its kinds cause no "no controller acts on …" warning while it runs, and the feed delivers whole objects
of the kinds that it names.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from podwire.controllers.account_tokens import AccountTokens
from podwire.controllers.apps.daemon_set import DaemonSets
from podwire.controllers.apps.deployment import Deployments
from podwire.controllers.apps.replica_set import ReplicaSets, ReplicationControllers
from podwire.controllers.apps.stateful_set import StatefulSets
from podwire.controllers.autoscaling.horizontal import Autoscalers
from podwire.controllers.batch.cron_job import CronJobController
from podwire.controllers.batch.job import JobController
from podwire.controllers.batch.ttl import TtlController
from podwire.controllers.bootstrap.node_certificates import NodeCertificates
from podwire.controllers.bootstrap.node_networks import NodeNetworks
from podwire.controllers.bootstrap.tokens import BootstrapSigner, TokenCleaner
from podwire.controllers.certificates.requests import ApprovingController, CleanerController, SigningController
from podwire.controllers.cluster_roles import RoleAggregation
from podwire.controllers.context import Context, Controller
from podwire.controllers.crd_cleanup import DefinitionCleanup
from podwire.controllers.device_taint_eviction import DeviceEvictions
from podwire.controllers.disruption_budgets.budget import BudgetController
from podwire.controllers.endpoints.endpoint_slice import EndpointSliceController
from podwire.controllers.endpoints.endpoints import EndpointsController
from podwire.controllers.endpoints.mirroring import MirroringController
from podwire.controllers.event_expiry import EventExpiry
from podwire.controllers.garbage_collector import Collector
from podwire.controllers.kinds import (
    ATTACHMENTS,
    AUTOSCALERS,
    BUDGETS,
    CLAIMS,
    CLUSTER_ROLES,
    CRON_JOBS,
    CSI_DRIVERS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    REVISIONS,
    SERVICE_CIDRS,
    SERVICES,
    SIGNING_REQUESTS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    TAINT_RULES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from podwire.controllers.leader_election import OWN_LEASE, STOCK_LEASE
from podwire.controllers.metadata import resource_of
from podwire.controllers.namespace_defaults import default_accounts, root_certificates
from podwire.controllers.namespace_lifecycle import NamespaceLifecycle
from podwire.controllers.node_lifecycle import NodeLife
from podwire.controllers.node_ttl import NodeTtl
from podwire.controllers.pod_gc import PodGc
from podwire.controllers.resource_claims import DeviceClaims
from podwire.controllers.resource_quota import QuotaController
from podwire.controllers.service_balancer import ServiceBalancer
from podwire.controllers.service_cidrs import ServiceCidrController
from podwire.controllers.taint_eviction import Evictions
from podwire.controllers.volumes.attachment import AttachDetach
from podwire.controllers.volumes.binder import VolumeBinder
from podwire.controllers.volumes.ephemeral import EphemeralVolumes
from podwire.controllers.volumes.expansion import Expander
from podwire.controllers.volumes.local_path import LocalPathProvisioner
from podwire.controllers.volumes.protection import ClaimProtection, VolumeProtection
from podwire.protocols.k8sapi.kinds import Kind

COLLECTOR, TAINT_EVICTION = "garbage-collector-controller", "taint-eviction-controller"

KEY_OPTIONS = {
    "signer": "--cluster-signing-cert-file, --cluster-signing-key-file",
    "token_signer": "--service-account-private-key-file",
}
"""The options of `podwire controllers` that hand in each key of the context."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One controller."""

    name: str
    create: Callable[[Context], Controller]
    acts_on: tuple[Kind, ...] = ()
    whole: tuple[Kind, ...] = ()
    """The kinds that it reads from the graph as whole objects."""
    lease: str = STOCK_LEASE
    """Only the holder of this lease runs it. Empty: it always runs, as what upstream's API server does by itself."""
    needs: str = ""
    """The key of the context without which it does not run; one of KEY_OPTIONS."""


REGISTRATIONS: tuple[Registration, ...] = (
    Registration(COLLECTOR, lambda given: Collector(given.api, given.graph, given.kinds)),
    Registration(TAINT_EVICTION, lambda given: Evictions(given.api, given.graph, given.clock)),
    Registration(
        "namespace-controller",
        lambda given: NamespaceLifecycle(given.api, given.graph, given.kinds, given.clock),
        (NAMESPACES,),
    ),
    Registration("serviceaccount-controller", default_accounts),
    Registration("root-ca-certificate-publisher-controller", root_certificates),
    Registration(
        "crd-cleanup-controller",
        lambda given: DefinitionCleanup(given.api, given.graph, given.clock),
        (DEFINITIONS,),
        lease="",
    ),
    Registration(
        "event-expiry-controller",
        lambda given: EventExpiry(given.api, given.graph, given.clock, given.limits.event_ttl),
        (EVENTS,),
        lease="",
    ),
    Registration(
        "node-lifecycle-controller",
        lambda given: NodeLife(given.api, given.graph, given.clock, given.tainted, given.limits),
        (NODES,),
    ),
    Registration(RoleAggregation.name, RoleAggregation, whole=(CLUSTER_ROLES,)),
    Registration(NodeTtl.name, NodeTtl, whole=(NODES,)),
    Registration(
        "pod-garbage-collector-controller",
        lambda given: PodGc(given.api, given.graph, given.clock, given.limits),
        whole=(NODES,),
    ),
    Registration(
        "resourceclaim-controller", lambda given: DeviceClaims(given.api, given.graph, given.clock), (CLAIMS,)
    ),
    Registration(
        "device-taint-eviction-controller",
        lambda given: DeviceEvictions(given.api, given.graph, given.clock, given.limits),
        (TAINT_RULES,),
    ),
    Registration(
        "resourcequota-controller",
        lambda given: QuotaController(given.api, given.graph, given.kinds, given.clock, given.limits),
        (QUOTAS,),
    ),
    Registration(DaemonSets.name, DaemonSets, (DAEMON_SETS,), (DAEMON_SETS, PODS, NODES, REVISIONS)),
    Registration(Deployments.name, Deployments, (DEPLOYMENTS,), (DEPLOYMENTS, REPLICA_SETS, PODS)),
    Registration(ReplicaSets.name, ReplicaSets, (REPLICA_SETS,), (REPLICA_SETS, PODS)),
    Registration(StatefulSets.name, StatefulSets, (STATEFUL_SETS,), (STATEFUL_SETS, PODS, REVISIONS, VOLUME_CLAIMS)),
    Registration(
        ReplicationControllers.name, ReplicationControllers, (REPLICATION_CONTROLLERS,), (REPLICATION_CONTROLLERS, PODS)
    ),
    Registration(JobController.name, JobController, (JOBS,), (JOBS, PODS)),
    Registration(CronJobController.name, CronJobController, (CRON_JOBS,), (CRON_JOBS, JOBS)),
    Registration(TtlController.name, TtlController, whole=(JOBS,)),
    Registration(
        EndpointSliceController.name,
        EndpointSliceController,
        (SERVICES, ENDPOINT_SLICES),
        (SERVICES, PODS, ENDPOINT_SLICES),
    ),
    Registration(EndpointsController.name, EndpointsController, (ENDPOINTS,), (SERVICES, PODS, ENDPOINTS)),
    Registration(
        BudgetController.name,
        BudgetController,
        (BUDGETS,),
        (BUDGETS, PODS, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, REPLICATION_CONTROLLERS),
    ),
    Registration(Autoscalers.name, Autoscalers, (AUTOSCALERS,), (AUTOSCALERS, PODS)),
    Registration(AccountTokens.name, AccountTokens, needs="token_signer"),
    Registration(ApprovingController.name, ApprovingController, whole=(SIGNING_REQUESTS,), needs="signer"),
    Registration(SigningController.name, SigningController, (SIGNING_REQUESTS,), (SIGNING_REQUESTS,), needs="signer"),
    Registration(
        NodeCertificates.name, NodeCertificates, whole=(SIGNING_REQUESTS, NODES), lease=OWN_LEASE, needs="signer"
    ),
    Registration(BootstrapSigner.name, BootstrapSigner),
    Registration(TokenCleaner.name, TokenCleaner),
    Registration(NodeNetworks.name, NodeNetworks, whole=(NODES,)),
    Registration(CleanerController.name, CleanerController, whole=(SIGNING_REQUESTS,)),
    Registration(ServiceBalancer.name, ServiceBalancer, whole=(SERVICES,), lease=OWN_LEASE),
    Registration(ServiceCidrController.name, ServiceCidrController, (SERVICE_CIDRS,), (SERVICE_CIDRS,)),
    Registration(MirroringController.name, MirroringController, whole=(SERVICES, ENDPOINTS, ENDPOINT_SLICES)),
    Registration(
        VolumeBinder.name,
        VolumeBinder,
        (VOLUMES, VOLUME_CLAIMS),
        (VOLUMES, VOLUME_CLAIMS, STORAGE_CLASSES, PODS),
    ),
    Registration(ClaimProtection.name, ClaimProtection, whole=(VOLUME_CLAIMS, PODS)),
    Registration(VolumeProtection.name, VolumeProtection, whole=(VOLUMES,)),
    Registration(EphemeralVolumes.name, EphemeralVolumes, whole=(PODS, VOLUME_CLAIMS)),
    Registration(Expander.name, Expander, whole=(VOLUME_CLAIMS, VOLUMES)),
    Registration(AttachDetach.name, AttachDetach, whole=(VOLUMES, VOLUME_CLAIMS, PODS, ATTACHMENTS, CSI_DRIVERS)),
    Registration(
        LocalPathProvisioner.name,
        LocalPathProvisioner,
        whole=(VOLUME_CLAIMS, VOLUMES, STORAGE_CLASSES, NODES),
        lease=OWN_LEASE,
    ),
)

ALL: frozenset[str] = frozenset(registration.name for registration in REGISTRATIONS)
API_SERVER_DUTIES: frozenset[str] = frozenset(
    registration.name for registration in REGISTRATIONS if not registration.lease
)
"""Controllers whose work upstream's API server does by itself, so that no stock controller-manager does it: without
them, a deleted definition would stay for ever."""


class UnknownController(ValueError):
    """A name that no controller has."""


def choose(text: str) -> frozenset[str]:
    """Reads `--controllers`: `*` for all, NAME, -NAME to leave one out, or `none`; several separated by commas.

    A list of names to leave out means all others. Duties of the API server run unless their own names are left out.
    Raises UnknownController.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == ["none"]:
        return API_SERVER_DUTIES
    for word in words:
        name = word.removeprefix("-")
        if name not in ALL and word != "*":
            raise UnknownController(f'"{name}" is not in the list of known controllers: {", ".join(sorted(ALL))}')
    removed = {word.removeprefix("-") for word in words if word.startswith("-")}
    added = {word for word in words if word in ALL}
    return (ALL if "*" in words or not added else API_SERVER_DUTIES | added) - removed


def usable(names: Iterable[str], *, pool: bool, pods: bool = False) -> frozenset[str]:
    """Returns the controllers that can run: without a pool, a cloud provider gives Services their addresses, if any;
    without networks of pods, nodes have their own."""
    off = {name for name, given in ((ServiceBalancer.name, pool), (NodeNetworks.name, pods)) if not given}
    return frozenset(names) - off


def acting(names: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Returns the resources on which these controllers act; the API server warns about others that need one."""
    running = set(names)
    return frozenset(
        resource_of(kind)
        for registration in REGISTRATIONS
        if registration.name in running
        for kind in registration.acts_on
    )
