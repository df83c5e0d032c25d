"""The node authorizer: a kubelet reads what its pods need and writes its own objects. Reasons are upstream's.

| resource | a kubelet may |
|---|---|
| secrets, configmaps | get, list and watch one by its name, if a pod of the node refers to it |
| persistentvolumeclaims, persistentvolumes, volumeattachments | get one that is related to the node |
| persistentvolumeclaims/status | update and patch, if a pod of the node uses the claim |
| resourceclaims | get, list and watch one by its name, if a pod of the node refers to it (upstream: only get) |
| serviceaccounts | get one of its pods; request tokens for it |
| leases, csinodes | get, create, update, patch, delete its own |
| resourceslices | those of its node; list, watch, deletecollection with the field selector spec.nodeName |
| nodes | read its own; create, update and patch, which NodeRestriction limits to its own |
| pods | get its own; list and watch with the field selector spec.nodeName; the rest limits NodeRestriction |
| anything else | what the role system:node says |
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from podwire.apiserver.identity.authorization import Attributes, Decision
from podwire.apiserver.identity.default_policy import node_rules
from podwire.apiserver.identity.node_graph import Related
from podwire.apiserver.identity.rules import AccessRequest, Rule, RuleTable
from podwire.apiserver.identity.users import User, node_name

LEASE_NAMESPACE = "kube-node-lease"
_READ = ("get", "list", "watch")
_OWN_VERBS = ("get", "create", "update", "patch", "delete")
_ALLOWED = Decision(allowed=True)


@dataclass(frozen=True, slots=True)
class NodeAuthorizer:
    """Decides about requests of kubelets. `related` says whether an object is related to a node."""

    related: Related
    rules: RuleTable = field(default_factory=lambda: _table(node_rules()))

    def check(self, user: User, attributes: Attributes) -> Decision | None:
        """Returns None for users that are not kubelets."""
        node = node_name(user)
        if node is None:
            return None
        if not node:
            return _no(f'unknown node for user "{user.name}"')
        method = _METHODS.get((attributes.group, attributes.resource)) if attributes.resource else None
        if method is not None:
            return method(self, node, attributes)
        part = f"/{attributes.subresource}" if attributes.subresource else ""
        asked = AccessRequest(
            verb=attributes.verb,
            group=attributes.group,
            resource=f"{attributes.resource}{part}",
            namespace=attributes.namespace,
            name=attributes.name,
            path=attributes.path,
        )
        return _ALLOWED if self.rules.reason(asked) else _no()

    def _named(self, node: str, attributes: Attributes) -> Decision:
        if not attributes.name:
            return _no("No Object name found")
        return self._if_related(node, attributes)

    def _if_related(self, node: str, attributes: Attributes) -> Decision:
        if self.related(node, attributes.resource, attributes.namespace, attributes.name):
            return _ALLOWED
        return _no(f"no relationship found between node '{node}' and this object")

    def get(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return _no("can only get individual resources of this type")
        if attributes.subresource:
            return _no("cannot get subresource")
        return self._named(node, attributes)

    def read(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in _READ:
            return _no("can only read resources of this type")
        if attributes.subresource:
            return _no("cannot read subresource")
        if not attributes.namespace:
            return _no("can only read namespaced object of this type")
        return self._named(node, attributes)

    def volume_claim(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource != "status":
            return self.get(node, attributes)
        if attributes.verb not in ("update", "patch"):
            return _no("can only get/update/patch this type")
        return self._named(node, attributes)

    def service_account(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb == "get" and not attributes.subresource:
            return self.read(node, attributes)
        if attributes.verb != "create" or not attributes.name:
            return _no("can only create tokens for individual service accounts")
        if attributes.subresource != "token":
            return _no("can only create token subresource of serviceaccount")
        return self._if_related(node, attributes)

    def lease(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in _OWN_VERBS:
            return _no("can only get, create, update, patch, or delete a node lease")
        if attributes.namespace != LEASE_NAMESPACE:
            return _no(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        if attributes.verb != "create" and attributes.name != node:
            return _no("can only access node lease with the same name as the requesting node")
        return _ALLOWED

    def csi_node(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in _OWN_VERBS:
            return _no("can only get, create, update, patch, or delete a CSINode")
        if attributes.subresource:
            return _no("cannot authorize CSINode subresources")
        if attributes.verb != "create" and attributes.name != node:
            return _no("can only access CSINode with the same name as the requesting node")
        return _ALLOWED

    def slice_(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource:
            return _no("cannot authorize ResourceSlice subresources")
        match attributes.verb:
            case "create":
                return _ALLOWED
            case "get" | "update" | "patch" | "delete":
                return self._named(node, attributes)
            case "watch" | "list" | "deletecollection":
                if ("spec.nodeName", node) in attributes.fields:
                    return _ALLOWED
                return _no("can only list/watch/deletecollection resourceslices with nodeName field selector")
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return _no(f"only the following verbs are allowed for a ResourceSlice: {verbs}")

    def own_node(self, node: str, attributes: Attributes) -> Decision:
        verb, part = attributes.verb, attributes.subresource
        if (part == "" and verb in ("create", "update", "patch")) or (part == "status" and verb in ("update", "patch")):
            return _ALLOWED
        if part or verb not in _READ:
            return _no()
        if attributes.name == node:
            return _ALLOWED
        what = f"'{attributes.name}'" if attributes.name else "all nodes"
        return _no(f"node '{node}' cannot read {what}, only its own Node object")

    def pod(self, node: str, attributes: Attributes) -> Decision:
        match attributes.subresource, attributes.verb:
            case "", "get":
                return self.get(node, attributes)
            case "", "list" | "watch":
                if ("spec.nodeName", node) in attributes.fields:
                    return _ALLOWED
                if attributes.name:
                    return self._if_related(node, attributes)
                return _no("can only list/watch pods with spec.nodeName field selector")
            case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                return _ALLOWED
        return _no()


def _table(rules: Iterable[Rule]) -> RuleTable:
    table = RuleTable()
    table.add(rules, "node rules")
    return table


def _no(reason: str = "") -> Decision:
    return Decision(allowed=False, reason=reason)


_METHODS: Mapping[tuple[str, str], Callable[[NodeAuthorizer, str, Attributes], Decision]] = {
    ("", "secrets"): NodeAuthorizer.read,
    ("", "configmaps"): NodeAuthorizer.read,
    ("", "persistentvolumeclaims"): NodeAuthorizer.volume_claim,
    ("", "persistentvolumes"): NodeAuthorizer.get,
    ("storage.k8s.io", "volumeattachments"): NodeAuthorizer.get,
    ("resource.k8s.io", "resourceclaims"): NodeAuthorizer.read,
    ("", "serviceaccounts"): NodeAuthorizer.service_account,
    ("coordination.k8s.io", "leases"): NodeAuthorizer.lease,
    ("storage.k8s.io", "csinodes"): NodeAuthorizer.csi_node,
    ("resource.k8s.io", "resourceslices"): NodeAuthorizer.slice_,
    ("", "nodes"): NodeAuthorizer.own_node,
    ("", "pods"): NodeAuthorizer.pod,
}
