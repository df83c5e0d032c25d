"""The downward API: values of fieldRef and resourceFieldRef, for variables and volumes. Pure.

metadata.{name,namespace,uid}               status.podIP    status.podIPs
metadata.{labels,annotations}['key']        status.hostIP   status.hostIPs
metadata.{labels,annotations}               spec.nodeName   spec.serviceAccountName
{limits,requests}.{cpu,memory,ephemeral-storage,hugepages-SIZE}
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from podwire.kubelet.config.resources import quantity
from podwire.objects import names
from podwire.objects.containers import Container, ResourceFieldRef
from podwire.objects.pods import Pod
from podwire.objects.quantity import Quantity, parse


class BadReference(Exception):
    """A reference to a field or resource that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts of the node that pods may refer to."""

    name: str
    ips: tuple[str, ...]
    allocatable: Mapping[str, str]
    memory_capacity: int = 0
    """Bytes; 0 if only the allocatable memory is known."""
    huge_page_sizes: tuple[str, ...] = ()
    """As the kernel's files name them: 2MB."""

    @property
    def memory(self) -> int:
        return self.memory_capacity or parse(self.allocatable["memory"]).value()


ONE = parse("1")
Reader = Callable[[Pod, NodeFacts, tuple[str, ...]], str]

_PLAIN: dict[str, Reader] = {
    "metadata.name": lambda pod, _node, _ips: pod.metadata.name,
    "metadata.namespace": lambda pod, _node, _ips: pod.metadata.namespace,
    "metadata.uid": lambda pod, _node, _ips: pod.metadata.uid,
    "metadata.labels": lambda pod, _node, _ips: _lines(pod.metadata.labels),
    "metadata.annotations": lambda pod, _node, _ips: _lines(pod.metadata.annotations),
    "spec.nodeName": lambda _pod, node, _ips: node.name,
    "spec.serviceAccountName": lambda pod, _node, _ips: pod.spec.service_account_name,
    "status.hostIP": lambda _pod, node, _ips: "".join(node.ips[:1]),
    "status.hostIPs": lambda _pod, node, _ips: ",".join(node.ips),
    "status.podIP": lambda _pod, _node, ips: "".join(ips[:1]),
    "status.podIPs": lambda _pod, _node, ips: ",".join(ips),
}
_SUBSCRIPT = re.compile(r"(.*)\['([^']*)'\]")
_SHARED = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a container without a limit may use all that is allocatable."""


def field_value(pod: Pod, path: str, *, node: NodeFacts, pod_ips: tuple[str, ...] = ()) -> str:
    """The value of a fieldRef. A pod on the node's network has the node's addresses."""
    reader = _PLAIN.get(path)
    if reader is not None:
        return reader(pod, node, pod_ips or (node.ips if pod.spec.host_network else ()))
    subscripted = _SUBSCRIPT.fullmatch(path)
    if subscripted is None:
        raise BadReference(f"unsupported fieldPath: {path}")
    return _entry(pod, *subscripted.groups())


def resource_value(pod: Pod, container: Container | None, ref: ResourceFieldRef, node: NodeFacts) -> str:
    """The value of a resourceFieldRef in units of its divisor; of `container` unless it names another one."""
    target = _container(pod, container, ref.container_name)
    side, _, resource = ref.resource.partition(".")
    if side not in ("limits", "requests") or not (resource in _SHARED or resource.startswith("hugepages-")):
        raise BadReference(f"unsupported container resource : {ref.resource}")
    given = target.resources.limits if side == "limits" else target.resources.requests
    amount = given.get(resource)
    if side == "limits" and resource in _SHARED and (amount is None or not quantity(amount)):
        amount = node.allocatable.get(resource)
    divisor = quantity(ref.divisor or 0) or ONE
    return str(_divided(quantity(amount or 0), divisor, milli=resource == "cpu"))


def quoted(text: str) -> str:
    """A text as Go's %q prints it: in quotes, unprintable characters escaped."""
    return '"' + "".join(_ESCAPES.get(letter) or _escape(letter) for letter in text) + '"'


_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def _escape(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _lines(entries: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={quoted(entries[key])}" for key in sorted(entries))


def _entry(pod: Pod, path: str, key: str) -> str:
    """One label or annotation; empty if it does not exist."""
    entries = {"metadata.labels": pod.metadata.labels, "metadata.annotations": pod.metadata.annotations}.get(path)
    if entries is None:
        raise BadReference(f"fieldPath {quoted(path)} does not support subscript")
    errors = names.qualified_name(key.lower() if path == "metadata.annotations" else key)
    if errors:
        raise BadReference(f"invalid key subscript in {path}: {'; '.join(errors)}")
    return entries.get(key, "")


def _container(pod: Pod, container: Container | None, name: str) -> Container:
    if container is not None and name in ("", container.name):
        return container
    named = next((spec for spec in pod.spec.every_container if spec.name == name), None)
    if named is None:
        raise BadReference(f"container {name} not found")
    return named


def _divided(amount: Quantity, divisor: Quantity, *, milli: bool) -> int:
    """Rounded up, so that a pool that is sized by a limit is never empty. Processors are counted in thousandths."""
    above, below = (amount.milli(), divisor.milli()) if milli else (amount.value(), divisor.value())
    return -(-above // below)
