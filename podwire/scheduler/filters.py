"""The filters in upstream's order; a node gets the reasons of the first filter that it fails.

Features that this scheduler does not evaluate have a row too: pods that need them are rejected with the field's name.
"""

from collections.abc import Callable, Sequence

from podwire.objects import node_affinity, taints
from podwire.objects.nodes import Node, Taint
from podwire.scheduler import inter_pod_affinity, topology_spread
from podwire.scheduler.claims import dynamic_resources as claims
from podwire.scheduler.framework import (
    ANYTHING,
    ClusterEvent,
    Filter,
    NodeFilter,
    Reasons,
    Rejected,
    Unresolvable,
)
from podwire.scheduler.pod_info import HostPort, PodInfo
from podwire.scheduler.resource_requests import PODS
from podwire.scheduler.snapshot import NodeInfo, Snapshot
from podwire.scheduler.volumes import node_limits, volume_binding

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Begins the extended resource that every DeviceClass has."""
_ANY = "0.0.0.0"  # the host address that means all of them


def node_unschedulable(pod: PodInfo, _snapshot: Snapshot) -> NodeFilter | None:
    if any(taints.tolerates(toleration, _CORDON) for toleration in pod.pod.spec.tolerations):
        return None
    return _of_node(lambda node: not node.spec.unschedulable, "node(s) were unschedulable")


def node_name(pod: PodInfo, _snapshot: Snapshot) -> NodeFilter | None:
    wanted = pod.pod.spec.node_name
    if not wanted:
        return None
    return _of_node(lambda node: node.name == wanted, "node(s) didn't match the requested node name")


def taint_toleration(pod: PodInfo, _snapshot: Snapshot) -> NodeFilter:
    def node_filter(node: NodeInfo) -> Reasons:
        given = node.node.spec.taints if node.node else ()
        first = next(taints.untolerated(given, pod.pod.spec.tolerations), None)
        return Unresolvable((f"node(s) had untolerated taint {{{first.key}: {first.value}}}",)) if first else ()

    return node_filter


def required_node_affinity(pod: PodInfo, _snapshot: Snapshot) -> NodeFilter | None:
    wanted = node_affinity.required(pod.pod.spec)
    return wanted and _of_node(wanted, "node(s) didn't match Pod's node affinity/selector")


def node_ports(pod: PodInfo, _snapshot: Snapshot) -> NodeFilter | None:
    if not pod.host_ports:
        return None
    taken = ("node(s) didn't have free ports for the requested pod ports",)
    return lambda node: taken if any(_in_use(node, host_port) for host_port in pod.host_ports) else ()


def _in_use(node: NodeInfo, wanted: HostPort) -> bool:
    addresses = node.ports.get((wanted.protocol, wanted.port))
    if not addresses:
        return False
    return wanted.ip == _ANY or wanted.ip in addresses or _ANY in addresses


def node_resources_fit(pod: PodInfo, _snapshot: Snapshot) -> NodeFilter:
    asked = [(name, amount) for name, amount in pod.requests.items() if amount > 0]

    def node_filter(node: NodeInfo) -> Reasons:
        has, held = node.allocatable, node.requested
        reasons = ["Too many pods"] if len(node.pods) + 1 > has.get(PODS, 0) else []
        reasons += [f"Insufficient {name}" for name, amount in asked if amount > has.get(name, 0) - held[name]]
        if reasons and any(amount > has.get(name, 0) for name, amount in asked):
            return Unresolvable(reasons)
        return reasons

    return node_filter


def explain_extended_resources(pod: PodInfo, snapshot: Snapshot, _nodes: Sequence[NodeInfo]) -> str:
    """Extended resources that map to a DeviceClass are not turned into claims by this scheduler."""
    names = [
        (class_.name, resource)
        for class_ in snapshot.claims.classes.values()
        for resource in (_IMPLICIT + class_.name, class_.spec.extended_resource_name)
    ]
    return " ".join(
        f"{resource} stands for DeviceClass {name}: this scheduler gives its devices to spec.resourceClaims only."
        for name, resource in names
        if resource and pod.requests.get(resource)
    )


def volume_restrictions(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | Rejected | None:
    if pod.not_evaluated:
        return Rejected(f"{pod.not_evaluated[0]} is not evaluated by this scheduler")
    return node_limits.single_pod_filter(pod, snapshot)


def _of_node(fits: Callable[[Node], bool], reason: str) -> NodeFilter:
    reasons = Unresolvable((reason,))
    return lambda node: () if node.node is not None and fits(node.node) else reasons


_NODE, _GONE, _VOLUMES = ClusterEvent.NODE, ClusterEvent.POD_GONE, ClusterEvent.VOLUMES

FILTERS = (
    Filter("NodeUnschedulable", node_unschedulable, _NODE, local=True),
    Filter("NodeName", node_name, _NODE, local=True),
    Filter("TaintToleration", taint_toleration, _NODE, local=True),
    Filter("NodeAffinity", required_node_affinity, _NODE, local=True),
    Filter("NodePorts", node_ports, _NODE | _GONE, local=True),
    Filter("NodeResourcesFit", node_resources_fit, _NODE | _GONE, explain_extended_resources, local=True),
    Filter("VolumeRestrictions", volume_restrictions, _GONE | _VOLUMES),
    Filter("NodeVolumeLimits", node_limits.limits_filter, _NODE | _GONE | _VOLUMES),
    Filter("VolumeBinding", volume_binding.node_filter, _NODE | _VOLUMES),
    Filter("VolumeZone", node_limits.zone_filter, _NODE | _VOLUMES),
    Filter("PodTopologySpread", topology_spread.node_filter, ANYTHING),
    Filter("InterPodAffinity", inter_pod_affinity.node_filter, ANYTHING),
    Filter("DynamicResources", claims.node_filter, _NODE | ClusterEvent.DEVICES, claims.explain),
)
