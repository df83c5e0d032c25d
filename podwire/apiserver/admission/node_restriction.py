"""NodeRestriction: a kubelet writes its own Node, the pods on it and its own objects only. Messages are upstream's.

The authorizer sees names; this plugin sees objects: the node of a pod, the labels of a Node, the pod of a token. It
also limits the components of a node, whose user names end in its name: drivers to the ResourceSlices of that node, and
the keeper of local directories to the finalizer of that node's volumes.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.identity.node_authorizer import LEASE_NAMESPACE
from podwire.apiserver.identity.pod_references import MIRROR, any_reference
from podwire.apiserver.identity.users import NODE_PREFIX, component_node, node_name
from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.objects.persistent_volumes import LOCAL_PATH, hostname_of
from podwire.protocols.k8sapi.status import access_denied, not_found, qualified

_KUBELET_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
_KUBELET_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED = "node-restriction.kubernetes.io"
_KUBERNETES = ("kubernetes.io", "k8s.io")
_NODE_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_VOLUME_STATUS = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")
"""Parts of a PersistentVolumeClaim's status that kubelets report."""


class _Refused(Exception):
    """The reason why a node may not do it."""


@dataclass(frozen=True, slots=True)
class NodeRestriction(AdmissionPlugin):
    """Refuses writes of kubelets and drivers that concern other nodes."""

    store: Store

    async def validate(self, operation: Operation) -> None:
        node = node_name(operation.user)
        try:
            if node is None:
                if (own := component_node(operation.user)) is not None:
                    _check_component(own, operation)
            elif not node:
                raise _Refused(f'could not determine node from user "{operation.user.name}"')
            else:
                await self._check(node, operation)
        except _Refused as refused:
            name, resource = operation.name, operation.resource
            what = qualified(resource.name, resource.group) + (f' "{name}"' if name else "")
            raise access_denied(
                f"{what} is forbidden: {refused}", resource=resource.name, name=name, group=resource.group
            ) from None

    async def _check(self, node: str, operation: Operation) -> None:
        what = _group_resource(operation)
        if what == ("", "pods"):
            await self._check_pod(node, operation)
        elif what == ("", "serviceaccounts"):
            await self._check_token(node, operation)
        elif what in _CHECKS:
            _CHECKS[what](node, operation)

    async def _check_pod(self, node: str, operation: Operation) -> None:
        who = f'node "{node}"'
        match operation.subresource, operation.verb:
            case "", "CREATE":
                await self._check_mirror_pod(node, operation.obj)
            case "", "DELETE":
                if _node_of(operation.old) != node:
                    raise _Refused(f"{who} can only delete pods with spec.nodeName set to itself")
            case "", verb:
                raise _Refused(f'unexpected operation "{verb}", {who} can only create and delete mirror pods')
            case "status", "UPDATE":
                _check_pod_status(node, operation.obj, operation.old or {})
            case "eviction", "CREATE":
                pod = await self._find(f"pods/{operation.namespace}/{operation.name}")
                if pod is None:
                    raise not_found("pods", operation.name)
                if _node_of(pod) != node:
                    raise _Refused(f"node {node} can only evict pods with spec.nodeName set to itself")
            case part, _:
                raise _Refused(f"unexpected pod subresource \"{part}\", only 'status' and 'eviction' are allowed")

    async def _check_mirror_pod(self, node: str, pod: Object) -> None:
        who, metadata = f'node "{node}"', pod["metadata"]
        if MIRROR not in (metadata.get("annotations") or {}):
            raise _Refused(f'pod does not have "{MIRROR}" annotation, {who} can only create mirror pods')
        if _node_of(pod) != node:
            raise _Refused(f"{who} can only create pods with spec.nodeName set to itself")
        owners = metadata.get("ownerReferences") or []
        if len(owners) > 1:
            raise _Refused(f"{who} can only create pods with a single owner reference set to itself")
        if [(owner.get("apiVersion"), owner.get("kind"), owner.get("name")) for owner in owners] != [
            ("v1", "Node", node)
        ]:
            raise _Refused(f"{who} can only create pods with an owner reference set to itself")
        if not owners[0].get("controller"):
            raise _Refused(f"{who} can only create pods with a controller owner reference set to itself")
        if owners[0].get("blockOwnerDeletion"):
            raise _Refused(f"{who} must not set blockOwnerDeletion on an owner reference")
        stored = await self._find(f"minions/{node}")
        if stored is None:
            raise not_found("nodes", node)
        uid, real = owners[0].get("uid", ""), stored["metadata"]["uid"]
        if uid != real:
            raise _Refused(f"node {node} UID mismatch: expected {uid} got {real}")
        if reference := any_reference(pod):
            raise _Refused(f"{who} can not create pods that reference {reference}")

    async def _check_token(self, node: str, operation: Operation) -> None:
        if operation.verb != "CREATE" or operation.subresource != "token":
            return
        spec = operation.obj.get("spec") or {}
        bound = spec.get("boundObjectRef") or {}
        if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("name"):
            raise _Refused("node requested token not bound to a pod")
        if not bound.get("uid"):
            raise _Refused("node requested token with a pod binding without a uid")
        pod = await self._find(f"pods/{operation.namespace}/{bound['name']}")
        if pod is None:
            raise not_found("pods", bound["name"])
        if pod["metadata"]["uid"] != bound["uid"]:
            raise _Refused(
                f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
        if _node_of(pod) != node:
            raise _Refused("node requested token bound to a pod scheduled on a different node")
        await self._check_audience(node, spec.get("audiences") or [], pod)

    async def _check_audience(self, node: str, audiences: list[str], pod: Object) -> None:
        """A node requests tokens only for the audiences that a volume of the pod names."""
        if len(audiences) > 1:
            raise _Refused("node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        for volume in pod["spec"].get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                if (token := source.get("serviceAccountToken")) is not None and token.get("audience", "") == audience:
                    return
            driver = (volume.get("csi") or {}).get("driver", "") or await self._driver_of_claim(pod, volume)
            if driver and await self._driver_has(driver, audience):
                return
        who = f"{NODE_PREFIX}{node}"
        why = f'audience "{audience}" not found in pod spec volume'
        raise _Refused(f"{why}, {who} is not authorized to request tokens for this audience")

    async def _driver_of_claim(self, pod: Object, volume: Object) -> str:
        """The CSI driver of the persistent volume behind a claim; empty if there is none."""
        meta, name = pod["metadata"], (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if volume.get("ephemeral"):
            name = f"{meta['name']}-{volume['name']}"
        claim = await self._find(f"persistentvolumeclaims/{meta['namespace']}/{name}") if name else None
        bound = ((claim or {}).get("spec") or {}).get("volumeName")
        stored = await self._find(f"persistentvolumes/{bound}") if bound else None
        driver: str = (((stored or {}).get("spec") or {}).get("csi") or {}).get("driver", "")
        return driver

    async def _driver_has(self, driver: str, audience: str) -> bool:
        stored = await self._find(f"csidrivers/{driver}")
        requests = (stored or {}).get("spec", {}).get("tokenRequests") or ()
        return any(request.get("audience", "") == audience for request in requests)

    async def _find(self, place: str) -> Object | None:
        item = await self.store.get(PREFIX + place)
        return unpack(item) if item else None


_SLICES = ("resource.k8s.io", "resourceslices")
_VOLUMES = ("", "persistentvolumes")


def _check_component(node: str, operation: Operation) -> None:
    """Checks the writes of a driver or another component of a node."""
    what = _group_resource(operation)
    if what == _SLICES:
        _check_slice(node, operation, every_write=True)
    elif what == _VOLUMES and operation.old is not None:
        if hostname_of(operation.old) != node:
            raise _Refused(f'can only update volumes of node "{node}"')
        if _unfinalized(operation.obj) != _unfinalized(operation.old):
            raise _Refused(f'may only remove the finalizer "{LOCAL_PATH}"')


def _unfinalized(volume: Object) -> Object:
    """Returns a volume without the finalizer that its node removes."""
    free = ("resourceVersion", "managedFields", "finalizers")
    metadata = {key: value for key, value in volume["metadata"].items() if key not in free}
    metadata["finalizers"] = [name for name in volume["metadata"].get("finalizers") or () if name != LOCAL_PATH]
    return {**volume, "metadata": metadata}


def _group_resource(operation: Operation) -> tuple[str, str]:
    return operation.resource.group, operation.resource.name


def _node_of(pod: Object | None) -> str:
    name: str = ((pod or {}).get("spec") or {}).get("nodeName", "")
    return name


def _check_pod_status(node: str, new: Object, old: Object) -> None:
    if _node_of(old) != node:
        what = "pod status for pods with spec.nodeName set to itself"
        raise _Refused(f'node "{node}" can only update {what}')
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        raise _Refused(f'node "{node}" cannot update labels through pod status')
    before, now = old.get("status") or {}, new.get("status") or {}
    if (before.get("resourceClaimStatuses") or []) != (now.get("resourceClaimStatuses") or []):
        raise _Refused(f'node "{node}" cannot update resource claim statues')
    if before.get("extendedResourceClaimStatus") != now.get("extendedResourceClaimStatus"):
        raise _Refused(f'node "{node}" cannot update extended resource claim status')


def _check_node(node: str, operation: Operation) -> None:
    if operation.name != node:
        raise _Refused(f'node "{node}" is not allowed to modify node "{operation.name}"')
    new, old = operation.obj, operation.old
    labels: Mapping[str, str] = new["metadata"].get("labels") or {}
    if operation.verb == "CREATE":
        if refused := _refused_labels(labels, {}):
            raise _Refused(f'node "{node}" is not allowed to set the following labels: {", ".join(refused)}')
    elif operation.verb == "UPDATE" and old is not None:
        if (new.get("spec") or {}).get("taints") != (old.get("spec") or {}).get("taints"):
            raise _Refused(f'node "{node}" is not allowed to modify taints')
        if new["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences"):
            raise _Refused(f'node "{node}" is not allowed to modify ownerReferences')
        if refused := _refused_labels(labels, old["metadata"].get("labels") or {}):
            raise _Refused(f"is not allowed to modify labels: {', '.join(refused)}")


def _refused_labels(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """Returns the changed labels that could steer workloads to a node."""
    changed = {label for label in {*new, *old} if new.get(label) != old.get(label)}
    return sorted(label for label in changed if not _may_set(label))


def _may_set(label: str) -> bool:
    domain, slash, _ = label.partition("/")
    if not slash:
        return True
    if _below(domain, _RESTRICTED):
        return False
    if label in _KUBELET_LABELS or any(_below(domain, allowed) for allowed in _KUBELET_DOMAINS):
        return True
    return not any(_below(domain, kubernetes) for kubernetes in _KUBERNETES)


def _below(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


def _check_volume_claim(node: str, operation: Operation) -> None:
    if operation.subresource != "status" or operation.old is None:
        raise _Refused("may only update PVC status")
    if _unreported(operation.obj) != _unreported(operation.old):
        what = "fields other than status.quantity and status.conditions"
        raise _Refused(f'node "{node}" is not allowed to update {what}')


def _unreported(claim: Object) -> Object:
    """Returns a claim without what kubelets report."""
    free = ("resourceVersion", "managedFields")
    metadata = {key: value for key, value in claim["metadata"].items() if key not in free}
    status = {key: value for key, value in (claim.get("status") or {}).items() if key not in _VOLUME_STATUS}
    return {**claim, "metadata": metadata, "status": status}


def _check_lease(node: str, operation: Operation) -> None:
    if operation.namespace != LEASE_NAMESPACE:
        raise _Refused(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
    if operation.name != node:
        raise _Refused("can only access node lease with the same name as the requesting node")


def _check_csi_node(node: str, operation: Operation) -> None:
    if operation.name != node:
        raise _Refused("can only access CSINode with the same name as the requesting node")


def _check_slice(node: str, operation: Operation, *, every_write: bool = False) -> None:
    """Updates of kubelets are checked by the authorizer: spec.nodeName is immutable."""
    slice_ = operation.old if operation.verb == "DELETE" else operation.obj
    if operation.verb == "UPDATE" and not every_write:
        return
    if ((slice_ or {}).get("spec") or {}).get("nodeName") != node:
        verb = operation.verb.lower()
        raise _Refused(f"can only {verb} ResourceSlice with the same NodeName as the requesting node")


def _check_signing_request(node: str, operation: Operation) -> None:
    spec = operation.obj.get("spec") or {}
    if operation.verb != "CREATE" or spec.get("signerName") not in _NODE_SIGNERS:
        return
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(spec.get("request", ""), validate=True))
    except ValueError as error:
        raise _Refused(f"unable to parse csr: {error}") from error
    names = [str(name.value) for name in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [f"{NODE_PREFIX}{node}"]:
        raise _Refused(f"can only create a node CSR with CN={NODE_PREFIX}{node}")


_CHECKS: Mapping[tuple[str, str], Callable[[str, Operation], None]] = {
    ("", "nodes"): _check_node,
    ("", "persistentvolumeclaims"): _check_volume_claim,
    ("coordination.k8s.io", "leases"): _check_lease,
    ("storage.k8s.io", "csinodes"): _check_csi_node,
    _SLICES: _check_slice,
    ("certificates.k8s.io", "certificatesigningrequests"): _check_signing_request,
}
