"""The node as its pods see it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podwire.kubelet.config.dns import DnsSettings
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.paths import KubeletPaths
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.watch import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """The node as its pods see it."""

    paths: KubeletPaths
    dns: DnsSettings
    facts: Callable[[], NodeFacts]
    services: Callable[[], Sequence[Object]]
    first_id: Callable[[Pod], int] = lambda _: 0
    """The first id of the host that a pod with its own user namespace has; 0 if the runtime does not support it."""
    pids: Callable[[], int] = lambda: 0
    """The number of processes and threads that a pod may have; 0 for no limit."""
