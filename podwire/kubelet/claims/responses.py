"""Responses of DRA drivers, validated: the result of each claim, or an error message. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice
from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DriverResults(Generic[T]):
    """`done` is by claim uid."""

    done: dict[str, T] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def failed_call(driver: str, call: str, error: object) -> DriverResults[T]:
    return DriverResults(failures=[f"DRA driver {driver}: {call}: {error}"])


def prepared(
    driver: str,
    claims: Sequence[ClaimInfo],
    response: dra_v1_pb2.NodePrepareResourcesResponse | dra_v1beta1_pb2.NodePrepareResourcesResponse,
) -> DriverResults[tuple[PreparedDevice, ...]]:
    failures = list(_mismatches(driver, PREPARE, claims, response.claims))
    results: DriverResults[tuple[PreparedDevice, ...]] = DriverResults(failures=failures)
    for claim in claims:
        if claim.uid not in response.claims:
            continue
        result = response.claims[claim.uid]
        if error := result.error or _invalid(result.devices):
            failures.append(f"DRA driver {driver}: {PREPARE} failed for ResourceClaim {claim.name}: {error}")
        else:
            results.done[claim.uid] = tuple(map(_device, result.devices))
    return results


def unprepared(
    driver: str,
    claims: Sequence[ClaimInfo],
    response: dra_v1_pb2.NodeUnprepareResourcesResponse | dra_v1beta1_pb2.NodeUnprepareResourcesResponse,
) -> DriverResults[None]:
    failures = list(_mismatches(driver, UNPREPARE, claims, response.claims))
    results: DriverResults[None] = DriverResults(failures=failures)
    for claim in claims:
        if claim.uid not in response.claims:
            continue
        if error := response.claims[claim.uid].error:
            failures.append(f"DRA driver {driver}: {UNPREPARE} failed for ResourceClaim {claim.name}: {error}")
        else:
            results.done[claim.uid] = None
    return results


def _mismatches(driver: str, call: str, claims: Sequence[ClaimInfo], results: Mapping[str, object]) -> Iterable[str]:
    """A driver must answer for every claim of the request, and for no other."""
    uids = {claim.uid for claim in claims}
    for uid in sorted(results.keys() - uids):
        yield f"DRA driver {driver}: {call} returned result for unknown claim UID {uid}"
    if skipped := uids - results.keys():
        yield f"DRA driver {driver}: {call} skipped {len(skipped)} ResourceClaims"


def _invalid(devices: Iterable[dra_v1_pb2.Device | dra_v1beta1_pb2.Device]) -> str:
    for at, device in enumerate(devices):
        for number, id_ in enumerate(device.cdi_device_ids):
            kind, _, name = id_.partition("=")
            vendor, _, class_ = kind.partition("/")
            if not (vendor and class_ and name):
                return f"devices[{at}].cdi_device_ids[{number}]: {id_!r} is not VENDOR/CLASS=NAME"
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
