"""The objects that the hooks of the driver share, and the errors that they report."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from podwire.dradriver.addresses.assignments import Exhausted
from podwire.dradriver.addresses.manager import AddressManager
from podwire.dradriver.attach.attachments import AttachFailed, Attachments, RestoreFailed
from podwire.dradriver.attach.netns_pins import NetnsPins
from podwire.dradriver.attach.records import Record
from podwire.dradriver.claims.allocations import Allocation, Refused
from podwire.dradriver.claims.container_files import ContainerFiles
from podwire.dradriver.claims.damaged_records import DamagedRecords
from podwire.dradriver.claims.prepared_devices import PreparedDevices
from podwire.dradriver.instances import InstanceLock
from podwire.dradriver.publish.claim_reports import ClaimReports
from podwire.durable.records import NewerFormat
from podwire.failpoints import FailpointHit
from podwire.ipam.dhcp.client import NoLease
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.tasks.keyed_locks import KeyedLocks

EXPECTED_ERRORS = (
    Refused,
    Exhausted,
    NewerFormat,
    NoLease,
    AttachFailed,
    RestoreFailed,
    ApiError,
    ClientError,
    OSError,
    FailpointHit,
    msgspec.ValidationError,
)
"""Reported to the kubelet as they are; any other exception is a bug of the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    node: str
    client: Client
    devices: PreparedDevices
    attachments: Attachments
    addresses: AddressManager
    files: ContainerFiles
    pins: NetnsPins
    reports: ClaimReports
    locks: KeyedLocks
    """`claim UID` and `pod UID`; a claim's lock is taken before its pod's."""
    instance_lock: InstanceLock
    damaged: DamagedRecords


def allocations_in(records: Iterable[Record]) -> list[Allocation]:
    return [record.allocation for record in records]
