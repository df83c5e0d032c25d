"""Claimed devices in the status of a pod and in the pod-resources API. Pure."""

from collections.abc import Callable, Iterable, Mapping

from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice
from podwire.kubelet.claims.device_health import UNKNOWN, DeviceHealth
from podwire.kubelet.claims.pod_claims import DeviceRequest, devices
from podwire.protocols.podresources import podresources_pb2 as pb

GetHealth = Callable[[str, str, str], DeviceHealth | None]
"""By driver, pool and device: its health; None if unknown."""


def statuses(
    requests: Iterable[DeviceRequest], claims: Mapping[str, ClaimInfo], get_health: GetHealth
) -> list[dict[str, object]]:
    statuses: list[dict[str, object]] = []
    for request in requests:
        claim = claims.get(request.claim)
        if claim is None or not request.status_name:
            continue
        resources: dict[str, dict[str, str]] = {}
        for driver, device in devices(claim, request.request):
            id_ = device.cdi[0] if device.cdi else ""
            if not id_ or id_ in resources:  # two devices may share one CDI device
                id_ = f"{driver}/{device.pool}/{device.name}"
            resources[id_] = {"resourceID": id_, **_health(get_health(driver, device.pool, device.name))}
        if resources:
            statuses.append({"name": request.status_name, "resources": list(resources.values())})
    return statuses


def _health(health: DeviceHealth | None) -> dict[str, str]:
    if health is None:
        return {"health": UNKNOWN}
    return {"health": health.status, **({"message": health.message} if health.message else {})}


def dynamic_resources(requests: Iterable[DeviceRequest], claims: Mapping[str, ClaimInfo]) -> list[pb.DynamicResource]:
    """One message for each claim."""
    parts: dict[str, dict[tuple[str, PreparedDevice], None]] = {}
    for request in requests:
        if request.claim in claims:
            used = devices(claims[request.claim], request.request)
            parts.setdefault(request.claim, {}).update(dict.fromkeys(used))
    return [
        pb.DynamicResource(
            claim_name=name,
            claim_namespace=claims[name].namespace,
            claim_resources=[_resource(driver, device) for driver, device in used],
        )
        for name, used in parts.items()
    ]


def _resource(driver: str, device: PreparedDevice) -> pb.ClaimResource:
    return pb.ClaimResource(
        cdi_devices=[pb.CDIDevice(name=id_) for id_ in device.cdi],
        driver_name=driver,
        pool_name=device.pool,
        device_name=device.name,
        share_id=device.share_id,
    )
