"""Whether a pod that was bound to this node may run on it: the last word before anything is done for it. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from podwire.kubelet.config.resources import amount, pod_requests, quantity
from podwire.objects.containers import Quantities
from podwire.objects.node_affinity import wants
from podwire.objects.nodes import Node
from podwire.objects.pods import Pod
from podwire.objects.quantity import Quantity
from podwire.objects.taints import untolerated

SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        *(f"net.ipv4.ip_{each}" for each in ("local_port_range", "local_reserved_ports", "unprivileged_port_start")),
        "net.ipv4.ping_group_range",
        *(f"net.ipv4.tcp_{each}" for each in ("fin_timeout", "rmem", "syncookies", "wmem")),
        *(f"net.ipv4.tcp_keepalive_{each}" for each in ("intvl", "probes", "time")),
    }
)
"""Kept apart from other pods by their namespaces, and harmless to them."""

_IPC = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
_OWN = ("cpu", "memory", "ephemeral-storage")
_SOURCE = "kubernetes.io/config.source"
_OS = "kubernetes.io/os"
_PREFIX = "Pod was rejected: "


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason and message of a pod that failed because its node did not take it."""

    reason: str
    message: str
    passes: bool = False
    """Whether nothing is in its way but pods that are ending."""

    @property
    def told(self) -> str:
        """The message of the event."""
        return self.message.removeprefix(_PREFIX)


class _Asked(NamedTuple):
    pod: Pod
    others: Sequence[Pod]
    node: Node
    sysctls: Sequence[str]
    devices: Mapping[str, int | None]


def admit(
    pod: Pod,
    others: Iterable[Pod],
    node: Node | None,
    *,
    allowed_unsafe_sysctls: Sequence[str] = (),
    devices: Mapping[str, int | None] = MappingProxyType({}),
) -> Rejection | None:
    """None if the pod may run beside the others that are on the node already; of several obstacles, the first.

    Sysctls may be allowed by name, or all below one: `net.core.*`. `devices` are the capacities of resources that
    device plugins bring; while one is None nobody knows, and a pod is let in to wait.
    """
    if node is None:
        return _rejected("InvalidNodeInfo", "Kubelet cannot get node info.")
    there = [each for each in others if not each.finished and each.uid != pod.uid]
    asked = _Asked(pod, there, node, allowed_unsafe_sysctls, devices)
    return next((found for check in _CHECKS if (found := check(asked)) is not None), None)


def _rejected(reason: str, why: str) -> Rejection:
    return Rejection(reason, _PREFIX + why)


def _predicate(name: str, why: str) -> Rejection:
    return _rejected(name, f"Predicate {name} failed: {why}")


def _other_system(asked: _Asked) -> Rejection | None:
    if asked.pod.metadata.labels.get(_OS, "linux") != "linux":
        why = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        return _rejected("PodOSSelectorNodeLabelDoesNotMatch", why)
    if asked.pod.spec.os is not None and asked.pod.spec.os.name != "linux":
        return _rejected("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def _sysctls(asked: _Asked) -> Rejection | None:
    spec = asked.pod.spec
    for each in spec.security_context.sysctls:
        name = _dotted(each.name)
        if name not in SAFE_SYSCTLS and not any(_allows(pattern, name) for pattern in asked.sysctls):
            return _rejected("SysctlForbidden", f'forbidden sysctl: "{name}" not allowlisted')
        shared = (spec.host_network and name.startswith("net."), spec.host_ipc and name.startswith(_IPC))
        if any(shared):
            what = "net" if shared[0] else "ipc"
            return _rejected("SysctlForbidden", f'forbidden sysctl: "{name}" not allowed with host {what} enabled')
    return None


def _dotted(name: str) -> str:
    """Written with slashes, dots belong to names of interfaces."""
    first = next((each for each in name if each in "./"), ".")
    return name.translate(str.maketrans("./", "/.")) if first == "/" else name


def _allows(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _resources(asked: _Asked) -> Rejection | None:
    has = _allocatable(asked)
    if len(asked.others) + 1 > (most := amount(has, "pods").value()):
        return _out_of("pods", 1, len(asked.others), most)
    wanted = {name: each for name, each in pod_requests(asked.pod).items() if each and (name in _OWN or name in has)}
    if not wanted:
        return None
    used = [pod_requests(each) for each in asked.others]
    for name in (*(each for each in _OWN if each in wanted), *sorted(wanted.keys() - set(_OWN))):
        count = Quantity.milli if name == "cpu" else Quantity.value
        requested, capacity = count(wanted[name]), count(quantity(has.get(name, 0)))
        taken = sum(count(each[name]) for each in used if name in each)
        if requested > capacity - taken:
            return _out_of(name, requested, taken, capacity)
    return None


def _allocatable(asked: _Asked) -> Quantities:
    """Of devices all count, also those that are not healthy now: whoever gets one of these waits."""
    known: dict[str, str | int | float] = {name: each for name, each in asked.devices.items() if each is not None}
    others = {name: each for name, each in asked.node.status.allocatable.items() if name not in asked.devices}
    return {**others, **known}


def _out_of(name: str, requested: int, used: int, capacity: int) -> Rejection:
    why = f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
    return _rejected(f"OutOf{name}", why)


def _affinity(asked: _Asked) -> Rejection | None:
    if wants(asked.pod.spec, asked.node):
        return None
    return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")


def _ports(asked: _Asked) -> Rejection | None:
    wanted = set(_host_ports(asked.pod))
    if not wanted:
        return None
    taken = {each for other in asked.others for each in _host_ports(other)}
    if not any(one[:2] == other[:2] and _same_address(one[2], other[2]) for one in wanted for other in taken):
        return None
    return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")


def _host_ports(pod: Pod) -> Iterator[tuple[str, int, str]]:
    sidecars = (each for each in pod.spec.init_containers if each.sidecar)
    for container in (*sidecars, *pod.spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                yield port.protocol, port.host_port, port.host_ip or "0.0.0.0"


def _same_address(one: str, other: str) -> bool:
    return one == other or "0.0.0.0" in (one, other)


def _taints(asked: _Asked) -> Rejection | None:
    """What only says that no further pods shall come is the scheduler's business. Static pods have nowhere else."""
    static = asked.pod.metadata.annotations.get(_SOURCE, "api") != "api"
    found = untolerated(asked.node.spec.taints, asked.pod.spec.tolerations, ("NoExecute",))
    if static or next(found, None) is None:
        return None
    return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")


_CHECKS: tuple[Callable[[_Asked], Rejection | None], ...] = (
    _sysctls,
    _other_system,
    _resources,
    _affinity,
    _ports,
    _taints,
)
