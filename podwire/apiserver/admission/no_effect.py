"""Warns about objects and fields that are accepted and have no effect in this cluster; an object also gets an Event.

The two tables say what would act on a kind or a field. A warning is left out where that exists: a controller of ours
that is switched on, a stock kube-controller-manager (its lease is fresh), an ingress class, a CSI driver, the network
plugin, or a node with another kubelet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from podwire.apiserver.admission.chain import AdmissionPlugin, GroupResource, Operation
from podwire.apiserver.admission.informers import Informers
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.apiserver.request import context, offload
from podwire.interfaces import Clock
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.client_side.events import CORE_V1, WARNING, Names, Note, RecordedEvent, Reference, Source
from podwire.protocols.k8sapi.status import qualified

CONTROLLER_MANAGER = f"{PREFIX}leases/kube-system/kube-controller-manager"
CLOUD = f"{PREFIX}leases/kube-system/cloud-controller-manager"
OUR_HOLDERS = "podwire_"
"""Our own controllers hold this lease, too. `reconciled` says on which kinds those of this server act; if it has none,
they run in a process of their own (`podwire controllers`)."""
LEASE_SECONDS = 60.0
"""A lease that was renewed this long ago is held by nobody."""
NETWORK_PLUGIN_GROUP = "net.podwire.dev"
"""The network plugin installs custom resources of this group; it also enforces NetworkPolicies."""

EVENT_REASON = "NoController"
EVENT_SOURCE = Source("podwire-apiserver")

_NO_PODS = "no pods are created"
KINDS: Mapping[GroupResource, str] = {
    ("", "replicationcontrollers"): _NO_PODS,
    ("apps", "replicasets"): _NO_PODS,
    ("apps", "deployments"): _NO_PODS,
    ("apps", "statefulsets"): _NO_PODS,
    ("apps", "daemonsets"): _NO_PODS,
    ("batch", "jobs"): _NO_PODS,
    ("batch", "cronjobs"): "no jobs are created",
    ("autoscaling", "horizontalpodautoscalers"): "nothing is scaled",
    ("policy", "poddisruptionbudgets"): "its status is not updated, and evictions of its pods are refused",
    ("networking.k8s.io", "ingresses"): "no traffic is routed",
    ("networking.k8s.io", "networkpolicies"): "no traffic is filtered",
    ("policy.networking.k8s.io", "adminnetworkpolicies"): "no traffic is filtered",
    ("policy.networking.k8s.io", "baselineadminnetworkpolicies"): "no traffic is filtered",
    ("", "persistentvolumeclaims"): "no volume is provisioned or bound",
    ("", "persistentvolumes"): "no claim is bound to it",
    ("certificates.k8s.io", "certificatesigningrequests"): "no certificate is issued",
}
"""Kinds that need a controller, and what does not happen without it."""

SERVICES: GroupResource = ("", "services")
NO_BALANCER = (
    "no controller acts on services of type LoadBalancer in this cluster: no address is allocated "
    "(podwire up --load-balancer-pool sets a pool)"
)

POLICIES = frozenset(kind for kind, effect in KINDS.items() if effect == "no traffic is filtered")
NOT_STOCK = frozenset({("networking.k8s.io", "ingresses"), *POLICIES})
"""Kinds on which a stock kube-controller-manager does not act."""

POD_FIELDS = frozenset({"hostnameOverride", "resources", "schedulingGroup"})
POD_SECURITY_FIELDS = frozenset({"seLinuxChangePolicy", "seLinuxOptions", "windowsOptions"})
CONTAINER_SECURITY_FIELDS = frozenset({"seLinuxOptions", "windowsOptions"})
ENV_SOURCES = frozenset({"fileKeyRef"})
"""Fields of pods that our kubelet does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoEffectWarnings(AdmissionPlugin):
    """Adds warnings to the answer of a creation."""

    store: Store
    clock: Clock
    registry: Registry
    informers: Informers
    reconciled: frozenset[GroupResource] = field(default_factory=frozenset)
    """The kinds on which components of this cluster act."""
    gives_balancer_addresses: bool = False
    names: Names = field(default_factory=Names)

    verbs = frozenset({"CREATE"})
    resources = frozenset({("", "pods"), SERVICES, *KINDS})

    async def validate(self, operation: Operation) -> None:
        if operation.subresource:
            return
        kind = (operation.resource.group, operation.resource.name)
        if kind == ("", "pods"):
            fields = await offload.run(unread_fields, operation.obj["spec"])
            if fields and not await self._other_kubelets():
                for path in fields:
                    context.warn(f"{path}: has no effect, the kubelets of this cluster do not support it")
        elif kind == SERVICES:
            if not self.gives_balancer_addresses and is_balanced(operation.obj) and not await self._is_held(CLOUD):
                context.warn(NO_BALANCER)
                operation.reservations.append(partial(self._record, operation, NO_BALANCER))
        elif kind not in self.reconciled and not await self._acting(kind, operation.obj):
            name = qualified(operation.resource.name, operation.resource.group)
            message = f"no controller acts on {name} in this cluster: {KINDS[kind]}"
            context.warn(message)
            operation.reservations.append(partial(self._record, operation, message))

    async def _record(self, operation: Operation, message: str) -> None:
        """Writes an Event for those who do not see the answer; a write that fails takes it back."""
        metadata, wall = operation.obj["metadata"], self.clock.wall()
        place = {key: metadata[key] for key in ("namespace", "uid") if metadata.get(key)}
        kind = operation.resource.kind
        reference = Reference(kind.kind, metadata["name"], **place, api_version=kind.api_version)
        note = Note(reference, WARNING, EVENT_REASON, message)
        name = self.names.new(metadata["name"], wall)
        event = CORE_V1.event(RecordedEvent(note, wall, wall, count=1, name=name), EVENT_SOURCE)
        event["metadata"] |= {"uid": str(uuid4()), "creationTimestamp": rfc3339(wall)}
        events = self.registry.builtin("", "events")
        events.default(event)
        key = events.key(note.namespace, name)
        item = await self.store.create(key, events.pack(event))

        async def undo() -> None:
            await self.store.delete(key, expected=item.revision)

        operation.undos.append(undo)

    async def _acting(self, kind: GroupResource, obj: Object) -> bool:
        """Returns whether something that is not ours acts on the object."""
        spec = obj.get("spec") or {}
        if kind in POLICIES:
            return any(resource.group == NETWORK_PLUGIN_GROUP for resource in self.registry.resources)
        if kind == ("networking.k8s.io", "ingresses"):
            return await self.informers.ingress_classes.get(spec.get("ingressClassName") or "") is not None
        if kind == ("", "persistentvolumeclaims") and await self._provisioned(spec.get("storageClassName") or ""):
            return True
        return kind not in NOT_STOCK and await self._controller_manager()

    async def _provisioned(self, storage_class: str) -> bool:
        class_ = await self.informers.storage_classes.get(storage_class)
        return class_ is not None and await self.informers.csi_drivers.get(class_.get("provisioner", "")) is not None

    async def _controller_manager(self) -> bool:
        return await self._is_held(CONTROLLER_MANAGER)

    async def _is_held(self, lease: str) -> bool:
        """Returns whether a controller manager that is not ours holds its lease."""
        item = await self.store.get(lease)
        spec = unpack(item).get("spec") or {} if item else {}
        renewed = spec.get("renewTime")
        holder = spec.get("holderIdentity") or ""
        if not holder or (self.reconciled and holder.startswith(OUR_HOLDERS)):
            return False
        return bool(renewed and self.clock.wall() - parse(renewed) < LEASE_SECONDS)

    async def _other_kubelets(self) -> bool:
        nodes = map(unpack, (await self.store.list(f"{PREFIX}minions/")).items)
        versions = [
            str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or "") for node in nodes
        ]
        return any(version and "podwire" not in version for version in versions)


def is_balanced(service: Object) -> bool:
    """Returns whether the default load balancer of the cluster is asked for, and not that of a class."""
    spec = service.get("spec") or {}
    return spec.get("type") == "LoadBalancer" and spec.get("loadBalancerClass") is None


def unread_fields(spec: Object) -> list[str]:
    """Returns the paths of the fields of a pod's spec that our kubelet does not read."""
    unread: list[str] = []

    def look(path: str, holder: Object, fields: frozenset[str]) -> None:
        if not fields.isdisjoint(holder):
            unread.extend(f"{path}.{name}" for name in sorted(fields & holder.keys()))

    look("spec", spec, POD_FIELDS)
    look("spec.securityContext", spec.get("securityContext") or {}, POD_SECURITY_FIELDS)
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            security = container.get("securityContext") or {}
            look(f"spec.{part}[{index}].securityContext", security, CONTAINER_SECURITY_FIELDS)
            for number, rule in enumerate(container.get("restartPolicyRules") or ()):
                if rule.get("action") != "Restart":
                    unread.append(f"spec.{part}[{index}].restartPolicyRules[{number}].action")
            for number, variable in enumerate(container.get("env") or ()):
                look(f"spec.{part}[{index}].env[{number}].valueFrom", variable.get("valueFrom") or {}, ENV_SOURCES)
    return unread
