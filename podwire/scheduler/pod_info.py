"""A pod as the scheduler sees it: parsed once, used for every decision."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from podwire.objects import pods
from podwire.objects.persistent_volumes import claims_of_pod
from podwire.objects.pods import Pod
from podwire.scheduler import affinity_terms
from podwire.scheduler.affinity_terms import Terms
from podwire.scheduler.resource_requests import DEFAULT_REQUESTS, Resources, pod_requests


class HostPort(NamedTuple):
    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInfo:
    pod: Pod
    requests: Resources
    usage: Resources
    """The requests, with defaults for containers that request nothing."""
    host_ports: tuple[HostPort, ...] = ()
    terms: Terms = affinity_terms.NONE
    owner: str = ""
    """The uid of its controlling owner."""
    claims: tuple[tuple[str, bool], ...] = ()
    """Names of its PersistentVolumeClaims, and whether each is made for it (an ephemeral volume)."""
    not_evaluated: tuple[str, ...] = ()
    """Fields that restrict placement and that this scheduler does not support."""

    @property
    def has_terms(self) -> bool:
        """Whether it has affinity or anti-affinity to other pods."""
        return self.terms is not affinity_terms.NONE and self.terms != affinity_terms.NONE


class Unreadable(Exception):
    """The pod cannot be parsed; names the field."""


def read(object_: Mapping[str, Any]) -> PodInfo:
    try:
        pod = pods.read(object_)
        whole = ((object_["spec"].get("resources") or {}).get("requests")) or {}
        return PodInfo(
            pod=pod,
            requests=pod_requests(pod, whole),
            usage=pod_requests(pod, whole, silent=DEFAULT_REQUESTS),
            host_ports=tuple(_host_ports(pod)),
            terms=affinity_terms.read(pod),
            owner=next(
                (
                    owner_reference.uid
                    for owner_reference in pod.metadata.owner_references
                    if owner_reference.controller
                ),
                "",
            ),
            claims=tuple(claims_of_pod(pod.name, object_["spec"].get("volumes") or ())),
            not_evaluated=tuple(_not_evaluated(object_["spec"])),
        )
    except (msgspec.ValidationError, ValueError) as error:
        raise Unreadable(str(error)) from error


def _host_ports(pod: Pod) -> Iterator[HostPort]:
    """Yields the host ports of containers that run together; init containers end before another pod could conflict."""
    lasting = (
        *(init_container for init_container in pod.spec.init_containers if init_container.sidecar),
        *pod.spec.containers,
    )
    for container in lasting:
        for port in container.ports:
            if port.host_port:
                yield HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)


_PLACED_VOLUMES = ("gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "cinder", "iscsi", "rbd")
"""Volume types that are not available on every node, or limited per node."""


def _not_evaluated(spec: Mapping[str, Any]) -> Iterator[str]:
    for index, volume in enumerate(spec.get("volumes") or ()):
        for source in _PLACED_VOLUMES:
            if source in volume:
                yield f"spec.volumes[{index}].{source}"
