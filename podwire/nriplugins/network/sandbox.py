"""A pod of this node, as the runtime tells of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from podwire.nri import pb
from podwire.nriplugins.network.attachment import HostAttachment
from podwire.nriplugins.network.resources import Pod, Trouble
from podwire.protocols.k8sapi.watch import Object, metadata

_RUNTIMES_OWN = ("io.kubernetes.pod.", "io.kubernetes.cri.", "io.cri-containerd", "io.kubernetes.container.")
"""Labels that kubelets and runtimes add to the pod's."""


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """A sandbox, and what was done for it."""

    id: str
    uid: str
    namespace: str
    name: str
    netns: str
    ips: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    hanging: HostAttachment | None = None
    policies: tuple[str, ...] = ()
    """Those of its namespace that isolated it at the beginning."""
    bare: bool = False
    """Whether it is certain that its namespace has nothing of ours."""
    troubles: tuple[Trouble, ...] = ()
    told: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """What its events say already, by part."""
    concerned: frozenset[str] = field(default_factory=frozenset)
    """The UIDs of the resources that it was to have."""

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def planned(self) -> Pod:
        """As far as plans are made for it."""
        return Pod(self.namespace, self.name, self.labels, self.annotations, tuple(map(ip_address, self.ips)))

    def learn(self, object_: Object | None) -> bool:
        """Take labels and annotations from the API's pod, if it is this one; whether they changed."""
        meta = metadata(object_ or {})
        if meta.get("uid") != self.uid:
            return False
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        changed = (labels, annotations) != (self.labels, self.annotations)
        self.labels, self.annotations = labels, annotations
        return changed


def local_of(pod: pb.PodSandbox, netns: str) -> Sandbox | None:
    """None for a pod on the host's network."""
    if not netns:
        return None
    return Sandbox(
        id=pod.id,
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        netns=netns,
        ips=tuple(pod.ips),
        labels={key: value for key, value in pod.labels.items() if not key.startswith(_RUNTIMES_OWN)},
        annotations=dict(pod.annotations),
    )
