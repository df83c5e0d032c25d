"""What every pod's worker works with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from podwire.interfaces import Clock
from podwire.kubelet.claims import ClaimManager
from podwire.kubelet.config.dns import NodeDns
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.devices import DeviceManager
from podwire.kubelet.images.puller import ImagePuller
from podwire.kubelet.pods.runtime_cache import RuntimeCache
from podwire.kubelet.pods.status_manager import StatusManager
from podwire.kubelet.ports import Api, Cri
from podwire.kubelet.probes import Prober, Probes
from podwire.kubelet.referenced_objects import ReferencedObjects
from podwire.kubelet.volumes import VolumeManager
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.watch import Object
from podwire.tasks.backoff import Backoff

CRASH_SECONDS = 10.0, 300.0
"""Between two starts of a container that ends again and again."""
SANDBOX_SECONDS = 1.0, 30.0
"""Between two tries to make a sandbox, if nothing tells earlier that it may work now."""
CLAIM_SECONDS = 1.0, 30.0
"""Between two tries to have a pod's claims prepared, or let go of, in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletPaths:
    """Directories of this kubelet."""

    root: Path
    logs: Path

    @property
    def owner(self) -> str:
        """As what sandboxes are marked."""
        return str(self.root.absolute())

    def pod_logs(self, namespace: str, name: str, uid: str) -> Path:
        return self.logs / f"{namespace}_{name}_{uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    cluster_servers: tuple[str, ...]
    cluster_domain: str
    node: NodeDns
    node_hosts: str = ""
    """The node's own /etc/hosts, for pods on its network."""

    @property
    def means(self) -> tuple[NodeDns, tuple[str, ...], str]:
        """As the rules for a pod's DNS take them."""
        return self.node, self.cluster_servers, self.cluster_domain


@dataclass(slots=True, kw_only=True)
class Kit:
    """Shared by all workers; `network_trouble` is why no pod can have a network now, if so."""

    api: Api
    cri: Cri
    clock: Clock
    view: RuntimeCache
    volumes: VolumeManager
    devices: DeviceManager
    claims: ClaimManager
    references: ReferencedObjects
    images: ImagePuller
    probes: Probes
    prober: Prober
    recorder: Recorder
    reports: StatusManager
    places: KubeletPaths
    dns: Dns
    node: Callable[[], NodeFacts]
    services: Callable[[], Sequence[Object]]
    pod_started: Callable[[float], None]
    runtime_name: str = "podwire"
    network_trouble: str = ""
    recursive_read_only: bool = False
    """Whether the runtime makes mounts read-only with all that is mounted below them."""
    crashes: Backoff = field(default_factory=lambda: Backoff(*CRASH_SECONDS))
    sandboxes: Backoff = field(default_factory=lambda: Backoff(*SANDBOX_SECONDS))
    preparing: Backoff = field(default_factory=lambda: Backoff(*CLAIM_SECONDS))
