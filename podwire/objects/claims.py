"""A ResourceClaim, with the fields that components decide on, and how pods refer to claims. `read(object)` parses
one."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.objects.containers import Part
from podwire.objects.device_classes import DeviceSelector, OpaqueConfig
from podwire.objects.device_taints import DeviceToleration
from podwire.objects.pods import Namespaced, Pod
from podwire.objects.slices import Quantity

FINALIZER = "resource.kubernetes.io/delete-protection"
"""The finalizer that keeps an allocated claim while it is in use."""

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""An annotation of a generated claim: which of its pod's claims it is."""

MOST_CONSUMERS = 256


class CapacityRequirements(Part, frozen=True, kw_only=True):
    requests: dict[str, Quantity] = {}


class ExactRequest(Part, frozen=True, kw_only=True):
    """Devices of one class."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()
    admin_access: bool = False


class SubRequest(ExactRequest, frozen=True, kw_only=True):
    """One of several ways to meet a request."""

    name: str = ""


class DeviceRequest(Part, frozen=True, kw_only=True):
    """Either exactly this, or the first of these that can be had."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[SubRequest, ...] = ()


class DeviceConstraint(Part, frozen=True, kw_only=True):
    """A constraint on the devices of these requests, or of all requests."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceConfig(Part, frozen=True, kw_only=True):
    """Driver configuration for the devices of these requests, or of all requests."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfig = OpaqueConfig()


class AllocatedConfig(DeviceConfig, frozen=True, kw_only=True):
    source: str = ""
    """FromClass or FromClaim."""


class Devices(Part, frozen=True, kw_only=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfig, ...] = ()


class ResourceClaimSpec(Part, frozen=True, kw_only=True):
    devices: Devices = Devices()


class AllocatedDevice(Part, frozen=True, kw_only=True):
    """One device for one request, named `request` or `request/alternative`."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.device


class AllocatedDevices(Part, frozen=True, kw_only=True):
    results: tuple[AllocatedDevice, ...] = ()
    config: tuple[AllocatedConfig, ...] = ()


class Allocation(Part, frozen=True, kw_only=True):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: dict[str, Any] | None = None
    allocation_timestamp: str | None = None


class Consumer(Part, frozen=True, kw_only=True):
    """A consumer of an allocated claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""

    @property
    def is_pod(self) -> bool:
        return not self.api_group and self.resource == "pods"


class ResourceClaimStatus(Part, frozen=True, kw_only=True):
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ResourceClaim(Namespaced, frozen=True, kw_only=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def allocated(self) -> tuple[AllocatedDevice, ...]:
        return self.status.allocation.devices.results if self.status.allocation else ()

    @property
    def owner(self) -> tuple[str, str]:
        """Name and uid of the pod that it was generated for; empty when it was not."""
        for owner_reference in self.metadata.owner_references:
            if owner_reference.controller and (owner_reference.api_version, owner_reference.kind) == ("v1", "Pod"):
                return owner_reference.name, owner_reference.uid
        return "", ""

    def reserved_for(self, pod_uid: str) -> bool:
        return any(consumer.is_pod and consumer.uid == pod_uid for consumer in self.status.reserved_for)


def read(object_: Mapping[str, Any]) -> ResourceClaim:
    """Raises msgspec.ValidationError, which names the field, for what no API server should hold."""
    return msgspec.convert(object_, ResourceClaim)


class PodClaim(Part, frozen=True, kw_only=True):
    """An entry of a pod's spec.resourceClaims: a claim that is there, or a template to make one from."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class NotGenerated(Exception):
    """The claim that a template is for was not made yet."""


def of_pod(pod: Pod) -> tuple[PodClaim, ...]:
    return tuple(msgspec.convert(claim, PodClaim) for claim in pod.spec.resource_claims)


def name_of(pod: Pod, claim: PodClaim) -> str | None:
    """The name of the object; None when the pod needs none after all. Raises NotGenerated."""
    if claim.resource_claim_name is not None:
        return claim.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.get("name") == claim.name:
            name: str | None = status.get("resourceClaimName")
            return name
    raise NotGenerated(f'pod "{pod.ref}": ResourceClaim not created yet')
