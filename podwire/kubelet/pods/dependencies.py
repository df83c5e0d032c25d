"""Dependencies of pod workers."""

from collections.abc import Callable
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.kubelet.node.runtime_health import RuntimeInfo
from podwire.kubelet.pods.allocation import PodAllocation
from podwire.kubelet.pods.container_start import ContainerStarter
from podwire.kubelet.pods.creating_calls import CreatingCalls
from podwire.kubelet.pods.limits import PodLimits
from podwire.kubelet.pods.node_context import NodeContext
from podwire.kubelet.pods.resize import Allocations
from podwire.kubelet.pods.resizer import PodResizer
from podwire.kubelet.pods.runtime_cache import RuntimeCache
from podwire.kubelet.pods.sandbox_queue import SandboxQueue
from podwire.kubelet.pods.sandbox_start import SandboxStarter
from podwire.kubelet.pods.status_manager import StatusManager
from podwire.kubelet.pods.termination import PodTermination
from podwire.kubelet.probes import Probes
from podwire.kubelet.referenced_objects import ReferencedObjects
from podwire.kubelet.volumes import VolumeManager
from podwire.protocols.k8sapi.client_side.recorder import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDependencies:
    """Shared by all pod workers; the actions (`sandboxes` … `termination`) keep no state of a pod."""

    clock: Clock
    recorder: Recorder
    node: NodeContext
    runtime: RuntimeInfo
    cache: RuntimeCache
    creating_calls: CreatingCalls
    sandbox_queue: SandboxQueue
    objects: ReferencedObjects
    volumes: VolumeManager
    probes: Probes
    statuses: StatusManager
    allocation: PodAllocation
    allocations: Allocations
    """Resources of pods that were resized."""
    resizer: PodResizer
    sandboxes: SandboxStarter
    containers: ContainerStarter
    termination: PodTermination
    pod_started: Callable[[float], None]
    """Called with the seconds from the first sight of a pod until it ran."""
    limits: PodLimits
