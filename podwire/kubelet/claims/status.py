"""What of a pod's claims others see: in its status, and by the pod-resources API. Pure."""

from collections.abc import Callable, Iterable, Mapping

from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice
from podwire.kubelet.claims.device_health import UNKNOWN, DeviceHealth
from podwire.kubelet.claims.pod_claims import DeviceRequest, devices
from podwire.protocols.podresources import podresources_pb2 as pb

Look = Callable[[str, str, str], DeviceHealth | None]
"""By driver, pool and device: how it is, if anybody knows."""


def statuses(wanted: Iterable[DeviceRequest], records: Mapping[str, ClaimInfo], look: Look) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for wish in wanted:
        record = records.get(wish.claim)
        if record is None or not wish.told:
            continue
        told: dict[str, dict[str, str]] = {}
        for driver, device in devices(record, wish.request):
            id_ = device.cdi[0] if device.cdi else ""
            if not id_ or id_ in told:  # two devices may have one CDI device between them
                id_ = f"{driver}/{device.pool}/{device.name}"
            told[id_] = {"resourceID": id_, **_health(look(driver, device.pool, device.name))}
        if told:
            found.append({"name": wish.told, "resources": list(told.values())})
    return found


def _health(health: DeviceHealth | None) -> dict[str, str]:
    if health is None:
        return {"health": UNKNOWN}
    return {"health": health.status, **({"message": health.message} if health.message else {})}


def dynamic_resources(wanted: Iterable[DeviceRequest], records: Mapping[str, ClaimInfo]) -> list[pb.DynamicResource]:
    """One for each claim."""
    parts: dict[str, dict[tuple[str, PreparedDevice], None]] = {}
    for wish in wanted:
        if wish.claim in records:
            parts.setdefault(wish.claim, {}).update(dict.fromkeys(devices(records[wish.claim], wish.request)))
    return [
        pb.DynamicResource(
            claim_name=name,
            claim_namespace=records[name].namespace,
            claim_resources=[_resource(driver, device) for driver, device in found],
        )
        for name, found in parts.items()
    ]


def _resource(driver: str, device: PreparedDevice) -> pb.ClaimResource:
    return pb.ClaimResource(
        cdi_devices=[pb.CDIDevice(name=each) for each in device.cdi],
        driver_name=driver,
        pool_name=device.pool,
        device_name=device.name,
        share_id=device.share_id,
    )
