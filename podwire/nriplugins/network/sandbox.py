"""A pod of this node, as the runtime describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from podwire.nri import pb
from podwire.nriplugins.network.attachment import HostAttachment
from podwire.nriplugins.network.resources import Pod, Problem
from podwire.protocols.k8sapi.watch import Object, metadata

_RUNTIMES_OWN = ("io.kubernetes.pod.", "io.kubernetes.cri.", "io.cri-containerd", "io.kubernetes.container.")
"""Prefixes of labels that kubelets and runtimes add."""


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """A pod sandbox, and what was applied to it."""

    id: str
    uid: str
    namespace: str
    name: str
    netns: str
    ips: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    attachment: HostAttachment | None = None
    policies: tuple[str, ...] = ()
    """The NetworkPolicies that isolated it when it started."""
    admin_policies: tuple[tuple[str, str], ...] = ()
    """Kind and name of the admin policies that had rules for it when it started."""
    untouched: bool = False
    """Whether its network namespace certainly has no routes or tables of ours."""
    problems: tuple[Problem, ...] = ()
    warned: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """The warnings that were recorded already, by part."""
    selected_by: frozenset[str] = field(default_factory=frozenset)
    """The UIDs of the resources that select it."""

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def planned(self) -> Pod:
        """The pod as the planners of routes and mesh see it."""
        return Pod(self.namespace, self.name, self.labels, self.annotations, tuple(map(ip_address, self.ips)))

    def update_from(self, object_: Object | None) -> bool:
        """Takes labels and annotations from the API's pod, if it is this one; returns whether they changed."""
        meta = metadata(object_ or {})
        if meta.get("uid") != self.uid:
            return False
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        changed = (labels, annotations) != (self.labels, self.annotations)
        self.labels, self.annotations = labels, annotations
        return changed


def sandbox_from(pod: pb.PodSandbox, netns: str) -> Sandbox | None:
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
