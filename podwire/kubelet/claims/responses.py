"""What drivers answer, read and judged: for each claim either what was wanted or a sentence that says why not. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice
from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DriverResults(Generic[T]):
    """By the uids of claims: those that are done."""

    done: dict[str, T] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def failed(driver: str, call: str, why: object) -> DriverResults[T]:
    """The call as a whole."""
    return DriverResults(failures=[f"DRA driver {driver}: {call}: {why}"])


def prepared(
    driver: str,
    asked: Sequence[ClaimInfo],
    answer: dra_v1_pb2.NodePrepareResourcesResponse | dra_v1beta1_pb2.NodePrepareResourcesResponse,
) -> DriverResults[tuple[PreparedDevice, ...]]:
    judged: DriverResults[tuple[PreparedDevice, ...]] = DriverResults(
        failures=list(_odd(driver, PREPARE, asked, answer.claims))
    )
    for record in asked:
        if record.uid not in answer.claims:
            continue
        told = answer.claims[record.uid]
        if why := told.error or _wrong(told.devices):
            judged.failures.append(f"DRA driver {driver}: {PREPARE} failed for ResourceClaim {record.name}: {why}")
        else:
            judged.done[record.uid] = tuple(map(_device, told.devices))
    return judged


def unprepared(
    driver: str,
    asked: Sequence[ClaimInfo],
    answer: dra_v1_pb2.NodeUnprepareResourcesResponse | dra_v1beta1_pb2.NodeUnprepareResourcesResponse,
) -> DriverResults[None]:
    judged: DriverResults[None] = DriverResults(failures=list(_odd(driver, UNPREPARE, asked, answer.claims)))
    for record in asked:
        if record.uid not in answer.claims:
            continue
        if why := answer.claims[record.uid].error:
            judged.failures.append(f"DRA driver {driver}: {UNPREPARE} failed for ResourceClaim {record.name}: {why}")
        else:
            judged.done[record.uid] = None
    return judged


def _odd(driver: str, call: str, asked: Sequence[ClaimInfo], claims: Mapping[str, object]) -> Iterable[str]:
    """A driver must speak of all that it was asked for, and of nothing else."""
    uids = {each.uid for each in asked}
    for each in sorted(claims.keys() - uids):
        yield f"DRA driver {driver}: {call} returned result for unknown claim UID {each}"
    if skipped := uids - claims.keys():
        yield f"DRA driver {driver}: {call} skipped {len(skipped)} ResourceClaims"


def _wrong(devices: Iterable[dra_v1_pb2.Device | dra_v1beta1_pb2.Device]) -> str:
    for at, device in enumerate(devices):
        for number, each in enumerate(device.cdi_device_ids):
            kind, _, name = each.partition("=")
            vendor, _, class_ = kind.partition("/")
            if not (vendor and class_ and name):
                return f"devices[{at}].cdi_device_ids[{number}]: {each!r} is no VENDOR/CLASS=NAME"
    return ""


def _device(device: dra_v1_pb2.Device | dra_v1beta1_pb2.Device) -> PreparedDevice:
    share_id = None
    if isinstance(device, dra_v1_pb2.Device) and device.HasField("share_id"):
        share_id = device.share_id
    return PreparedDevice(
        pool=device.pool_name,
        name=device.device_name,
        requests=tuple(device.request_names),
        cdi=tuple(device.cdi_device_ids),
        share_id=share_id,
    )
