"""The kinds of objects that the plugin watches."""

from podwire.nriplugins.network import admin_crds
from podwire.nriplugins.network.policy.admin_policies import ADMIN, BASELINE
from podwire.nriplugins.network.policy.values import DNS_NAMESPACE
from podwire.nriplugins.network.resources import GROUP, VERSION
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.kinds import Kind


def _builtin(api_version: str, kind: str) -> Kind:
    kind_ = BUILTIN.of_kind(api_version, kind)
    if kind_ is None:
        raise LookupError(kind)
    return kind_


PODS = _builtin("v1", "Pod")
NAMESPACES = _builtin("v1", "Namespace")
NODES = _builtin("v1", "Node")
SLICES = _builtin("discovery.k8s.io/v1", "EndpointSlice")
POLICIES = _builtin("networking.k8s.io/v1", "NetworkPolicy")
DEFINITIONS = _builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition")
ROUTES = Kind(group=GROUP, version=VERSION, resource="podroutes", kind="PodRoute")
MESHES = Kind(group=GROUP, version=VERSION, resource="podmeshes", kind="PodMesh")
ADMIN_POLICIES, BASELINE_POLICIES = (
    Kind(
        group=admin_crds.GROUP,
        version=admin_crds.VERSION,
        resource=definition["spec"]["names"]["plural"],
        kind=kind,
        namespaced=False,
    )
    for kind, definition in zip((ADMIN, BASELINE), admin_crds.ALL, strict=True)
)

DNS_SLICES = Scope(namespace=DNS_NAMESPACE, label_selector="kubernetes.io/service-name=kube-dns")
"""The EndpointSlices of the cluster's DNS, the only ones that are watched."""
BUILT_IN = (PODS, NAMESPACES, NODES, POLICIES)
CUSTOM = (ROUTES, MESHES)
"""Kinds of this plugin, whose status it writes."""
ADMIN_KINDS = (ADMIN_POLICIES, BASELINE_POLICIES)
"""Policies of the administrator, which are custom resources, too."""


def definition_of(kind: Kind) -> str:
    """The name of the definition of a custom kind."""
    return f"{kind.resource}.{kind.group}"
