"""The kinds that the server serves, discovered again when custom ones come or go."""

import asyncio
from collections.abc import Iterable

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kinds import Kind, Kinds


def builtin(api_version: str, kind: str) -> Kind:
    """Returns a built-in kind."""
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(f"{api_version} {kind}")
    return found


NAMESPACES = builtin("v1", "Namespace")
PODS = builtin("v1", "Pod")
CONFIG_MAPS = builtin("v1", "ConfigMap")
SECRETS = builtin("v1", "Secret")
SERVICE_ACCOUNTS = builtin("v1", "ServiceAccount")
EVENTS = builtin("v1", "Event")
CLUSTER_ROLES = builtin("rbac.authorization.k8s.io/v1", "ClusterRole")
QUOTAS = builtin("v1", "ResourceQuota")
NODES = builtin("v1", "Node")
LEASES = builtin("coordination.k8s.io/v1", "Lease")
CLAIMS = builtin("resource.k8s.io/v1", "ResourceClaim")
TEMPLATES = builtin("resource.k8s.io/v1", "ResourceClaimTemplate")
SLICES = builtin("resource.k8s.io/v1", "ResourceSlice")
TAINT_RULES = builtin("resource.k8s.io/v1beta2", "DeviceTaintRule")
REPLICATION_CONTROLLERS = builtin("v1", "ReplicationController")
VOLUMES = builtin("v1", "PersistentVolume")
VOLUME_CLAIMS = builtin("v1", "PersistentVolumeClaim")
STORAGE_CLASSES = builtin("storage.k8s.io/v1", "StorageClass")
ATTACHMENTS = builtin("storage.k8s.io/v1", "VolumeAttachment")
CSI_DRIVERS = builtin("storage.k8s.io/v1", "CSIDriver")
REPLICA_SETS = builtin("apps/v1", "ReplicaSet")
DEPLOYMENTS = builtin("apps/v1", "Deployment")
DAEMON_SETS = builtin("apps/v1", "DaemonSet")
STATEFUL_SETS = builtin("apps/v1", "StatefulSet")
REVISIONS = builtin("apps/v1", "ControllerRevision")
SERVICES = builtin("v1", "Service")
ENDPOINTS = builtin("v1", "Endpoints")
ENDPOINT_SLICES = builtin("discovery.k8s.io/v1", "EndpointSlice")
SERVICE_CIDRS = builtin("networking.k8s.io/v1", "ServiceCIDR")
IP_ADDRESSES = builtin("networking.k8s.io/v1", "IPAddress")
BUDGETS = builtin("policy/v1", "PodDisruptionBudget")
SIGNING_REQUESTS = builtin("certificates.k8s.io/v1", "CertificateSigningRequest")
AUTOSCALERS = builtin("autoscaling/v2", "HorizontalPodAutoscaler")
JOBS = builtin("batch/v1", "Job")
CRON_JOBS = builtin("batch/v1", "CronJob")
DEFINITIONS = builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition")


class KnownKinds:
    """Caches discovery until it is invalidated."""

    def __init__(self, api: Client) -> None:
        self._api = api
        self._known: Kinds | None = None
        self._lock = asyncio.Lock()
        self._age = 0

    def invalidate(self) -> None:
        self._known = None
        self._age += 1

    async def all(self) -> tuple[Kind, ...]:
        """Returns every kind in every version, in the server's order of preference."""
        return (await self._kinds()).all

    async def find(self, api_version: str, kind: str) -> Kind | None:
        return (await self._kinds()).of_kind(api_version, kind)

    async def _kinds(self) -> Kinds:
        async with self._lock:
            if self._known is not None:
                return self._known
            age = self._age
            found = Kinds(await self._api.discover())
            if age == self._age:  # otherwise it changed meanwhile
                self._known = found
            return found


_SAME_OBJECTS = frozenset({("events.k8s.io", "events")})
"""Resources that are views of another one."""


def preferred(kinds: Iterable[Kind]) -> list[Kind]:
    """Returns one version of each kind that can be listed and deleted: the one that the server prefers."""
    chosen: dict[tuple[str, str], Kind] = {}
    for kind in kinds:
        if {"list", "delete"} <= set(kind.verbs) and (kind.group, kind.resource) not in _SAME_OBJECTS:
            chosen.setdefault((kind.group, kind.resource), kind)
    return list(chosen.values())
