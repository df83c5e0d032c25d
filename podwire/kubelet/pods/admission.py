"""Admission: whether a pod that is bound to this node may run on it. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from podwire.kubelet.config.resources import BEST_EFFORT, amount, is_critical, pod_requests, qos_class, quantity
from podwire.kubelet.config.security import apparmor_profile
from podwire.kubelet.pods.resize import DEFERRED, INFEASIBLE, RESIZABLE
from podwire.linux.net.listeners import Listener
from podwire.linux.values import IP
from podwire.objects.containers import Quantities
from podwire.objects.node_affinity import wants
from podwire.objects.nodes import Node, Taint
from podwire.objects.pods import Pod
from podwire.objects.quantity import Quantity
from podwire.objects.taints import untolerated

SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        *(f"net.ipv4.ip_{name}" for name in ("local_port_range", "local_reserved_ports", "unprivileged_port_start")),
        "net.ipv4.ping_group_range",
        *(f"net.ipv4.tcp_{name}" for name in ("fin_timeout", "rmem", "syncookies", "wmem")),
        *(f"net.ipv4.tcp_keepalive_{name}" for name in ("intvl", "probes", "time")),
    }
)
"""Isolated from other pods by namespaces, and harmless to them."""

_IPC = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
_OWN = ("cpu", "memory", "ephemeral-storage")
_OS = "kubernetes.io/os"
_PREFIX = "Pod was rejected: "


@dataclass(frozen=True, slots=True)
class Rejection:
    """Reason and message in the status of a pod that was not admitted."""

    reason: str
    message: str
    temporary: bool = False
    """Whether the pod will be admitted when pods that are terminating now have ended."""

    @property
    def event_message(self) -> str:
        return self.message.removeprefix(_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine under the node, as far as pods can be in its way or it cannot protect them."""

    ports: frozenset[tuple[str, int]] = frozenset()
    """Ports of the kubelet itself, by protocol: no pod may have them, also while nothing listens there."""
    listeners: Collection[Listener] = ()
    """Sockets in the node's network namespace. A host port is redirected into its pod before any of them sees it."""
    apparmor: bool = True
    pressures: tuple[str, ...] = ()
    """Conditions of the node under which the eviction manager admits no new pods."""


class _Request(NamedTuple):
    pod: Pod
    others: Sequence[Pod]
    node: Node
    sysctls: Sequence[str]
    devices: Mapping[str, int | None]
    host: Host


_ANY_HOST = Host()


def admit(
    pod: Pod,
    others: Iterable[Pod],
    node: Node | None,
    *,
    allowed_unsafe_sysctls: Sequence[str] = (),
    devices: Mapping[str, int | None] = MappingProxyType({}),
    host: Host = _ANY_HOST,
) -> Rejection | None:
    """None if the pod may run together with the others on the node; else the first obstacle.

    Sysctls may be allowed by name, or all below one: `net.core.*`. `devices` are the capacities of resources of device
    plugins; None while a capacity is unknown, and then the pod is admitted and waits.
    """
    if node is None:
        return _rejected("InvalidNodeInfo", "Kubelet cannot get node info.")
    running = [other for other in others if not other.finished and other.uid != pod.uid]
    request = _Request(pod, running, node, allowed_unsafe_sysctls, devices, host)
    return next((rejection for check in _CHECKS if (rejection := check(request)) is not None), None)


def _rejected(reason: str, why: str) -> Rejection:
    return Rejection(reason, _PREFIX + why)


def _predicate(name: str, why: str) -> Rejection:
    return _rejected(name, f"Predicate {name} failed: {why}")


def _other_system(request: _Request) -> Rejection | None:
    if request.pod.metadata.labels.get(_OS, "linux") != "linux":
        why = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        return _rejected("PodOSSelectorNodeLabelDoesNotMatch", why)
    if request.pod.spec.os is not None and request.pod.spec.os.name != "linux":
        return _rejected("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def _sysctls(request: _Request) -> Rejection | None:
    spec = request.pod.spec
    for sysctl in spec.security_context.sysctls:
        name = _dotted(sysctl.name)
        if name not in SAFE_SYSCTLS and not any(_allows(pattern, name) for pattern in request.sysctls):
            return _rejected("SysctlForbidden", f'forbidden sysctl: "{name}" not allowlisted')
        shared = (spec.host_network and name.startswith("net."), spec.host_ipc and name.startswith(_IPC))
        if any(shared):
            what = "net" if shared[0] else "ipc"
            return _rejected("SysctlForbidden", f'forbidden sysctl: "{name}" not allowed with host {what} enabled')
    return None


def _dotted(name: str) -> str:
    """Converts the notation with slashes, in which dots belong to names of interfaces."""
    first = next((letter for letter in name if letter in "./"), ".")
    return name.translate(str.maketrans("./", "/.")) if first == "/" else name


def _allows(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _resources(request: _Request) -> Rejection | None:
    has = _allocatable(request)
    if len(request.others) + 1 > (most := amount(has, "pods").value()):
        return _out_of("pods", 1, len(request.others), most)
    requests = pod_requests(request.pod)
    needed = {name: amount for name, amount in requests.items() if amount and (name in _OWN or name in has)}
    if not needed:
        return None
    used = [pod_requests(other) for other in request.others]
    for name in (*(own for own in _OWN if own in needed), *sorted(needed.keys() - set(_OWN))):
        count = Quantity.milli if name == "cpu" else Quantity.value
        requested, capacity = count(needed[name]), count(quantity(has.get(name, 0)))
        taken = sum(count(amounts[name]) for amounts in used if name in amounts)
        if requested > capacity - taken:
            return _out_of(name, requested, taken, capacity)
    return None


def resize_obstacle(pod: Pod, others: Iterable[Pod], node: Node | None) -> tuple[str, str] | None:
    """Why a pod cannot have the resources of its spec beside the others; Infeasible if no end of others would help."""
    if node is None:
        return DEFERRED, "Kubelet cannot get node info."
    requests = pod_requests(pod)
    for name in RESIZABLE:
        count = Quantity.milli if name == "cpu" else Quantity.value
        requested, capacity = count(requests.get(name, _NOTHING)), count(amount(node.status.allocatable, name))
        if requested > capacity:
            why = f"Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
            return INFEASIBLE, why
    running = [other for other in others if not other.finished and other.uid != pod.uid]
    rejection = _resources(_Request(pod, running, node, (), {}, _ANY_HOST))
    return None if rejection is None else (DEFERRED, rejection.event_message)


_NOTHING = Quantity(0)


def _allocatable(request: _Request) -> Quantities:
    """Unhealthy devices count, too: a pod that needs one of them is admitted and waits."""
    devices = request.devices
    known: dict[str, str | int | float] = {name: count for name, count in devices.items() if count is not None}
    others = {name: amount for name, amount in request.node.status.allocatable.items() if name not in devices}
    return {**others, **known}


def _out_of(name: str, requested: int, used: int, capacity: int) -> Rejection:
    why = f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
    return _rejected(f"OutOf{name}", why)


def _affinity(request: _Request) -> Rejection | None:
    if wants(request.pod.spec, request.node):
        return None
    return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")


def _ports(request: _Request) -> Rejection | None:
    ports = set(_host_ports(request.pod))
    if not ports:
        return None
    taken = {port for other in request.others for port in _host_ports(other)}
    if any(one[:2] == other[:2] and _same_address(one[2], other[2]) for one in ports for other in taken):
        return _predicate("NodePorts", _NO_PORT)
    for protocol, port, address in sorted(ports):
        if (
            (protocol, port) in request.host.ports
            or (
                not request.pod.spec.host_network  # such a pod has no redirection: its bind fails
                and any(
                    (protocol, port) == listener[:2] and _same_address(address, _any_or(listener.address))
                    for listener in request.host.listeners
                )
            )
        ):
            return _predicate("NodePorts", f"{_NO_PORT}: {protocol} port {port} is in use by the node itself")
    return None


_NO_PORT = "node(s) didn't have free ports for the requested pod ports"


def _any_or(address: IP) -> str:
    return "0.0.0.0" if address.is_unspecified else str(address)


def _host_ports(pod: Pod) -> Iterator[tuple[str, int, str]]:
    sidecars = (container for container in pod.spec.init_containers if container.sidecar)
    for container in (*sidecars, *pod.spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                yield port.protocol, port.host_port, port.host_ip or "0.0.0.0"


def has_host_ports(pod: Pod) -> bool:
    return next(_host_ports(pod), None) is not None


def _same_address(one: str, other: str) -> bool:
    return one == other or "0.0.0.0" in (one, other)


def _taints(request: _Request) -> Rejection | None:
    """NoSchedule is the scheduler's business. Static pods cannot run anywhere else, so they are admitted."""
    taints = untolerated(request.node.spec.taints, request.pod.spec.tolerations, ("NoExecute",))
    if request.pod.static or next(taints, None) is None:
        return None
    return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def _apparmor(request: _Request) -> Rejection | None:
    """A profile that cannot be enforced is refused: the pod would run without the protection that it asks for."""
    if request.host.apparmor or request.pod.status.phase not in ("", "Pending"):
        return None
    profiles = (apparmor_profile(request.pod, container) for container in request.pod.spec.every_container)
    if all(profile is None or profile.type == "Unconfined" for profile in profiles):
        return None
    return _rejected("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")


def _pressures(request: _Request) -> Rejection | None:
    """Critical pods are admitted under any pressure, and under memory pressure those with requests of their own."""
    pressures, pod = request.host.pressures, request.pod
    if not pressures or is_critical(pod):
        return None
    if pressures == ("MemoryPressure",):
        taint = Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")
        tolerated = next(untolerated((taint,), pod.spec.tolerations, ("NoSchedule",)), None) is None
        if qos_class(pod) != BEST_EFFORT or tolerated:
            return None
    return _rejected("Evicted", f"The node had condition: [{' '.join(pressures)}]. ")


_CHECKS: tuple[Callable[[_Request], Rejection | None], ...] = (
    _pressures,
    _sysctls,
    _apparmor,
    _other_system,
    _resources,
    _affinity,
    _ports,
    _taints,
)
