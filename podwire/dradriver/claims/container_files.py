"""Tells containers of their claims: CDI files with the hook and variables, and files about the devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.dradriver.claims.allocations import ClaimRef, Order
from podwire.dradriver.claims.cdi import CdiFiles, Part, variable
from podwire.dradriver.claims.metadata import Described, MetadataFiles
from podwire.dradriver.ports import Attached, Attachments, Devices
from podwire.dradriver.publish.claim_status import Network

Networks = Mapping[tuple[str, str], Network]
"""By device and share: where it is in its pod."""


class Describing:
    """Blocks; raises OSError."""

    def __init__(self, cdi: CdiFiles, metadata: MetadataFiles, devices: Devices, attachments: Attachments) -> None:
        self._cdi, self._metadata, self._devices, self._attachments = cdi, metadata, devices, attachments

    def prepared(self, claim: ClaimRef, orders: Sequence[Order], pod_claim: str) -> None:
        """Before the kubelet learns the names; it may ask again while the pod runs."""
        parts, networks = [], networks_of(self._attachments.attached(orders[0].pod.uid))
        for request, of in _by_request(orders).items():
            self._metadata.write(claim, request, self._described(of, networks))
            mount = self._metadata.mount(claim, request, pod_claim)
            names = ",".join(each.settings.name for each in of)
            parts.append(Part(request=request, env={variable(request, "INTERFACES"): names}, mounts=(mount,)))
        self._cdi.write(claim.uid, parts, self._attachments.attached_file(orders[0].pod.uid))

    def attached(self, claim: ClaimRef, orders: Sequence[Order], networks: Networks) -> None:
        """Before any container is made, and whenever a lease changes."""
        for request, of in _by_request(orders).items():
            self._metadata.write(claim, request, self._described(of, networks))

    def forgotten(self, claim: ClaimRef) -> None:
        self._cdi.remove(claim.uid)
        self._metadata.remove(claim)

    def _described(self, orders: Sequence[Order], networks: Networks) -> list[Described]:
        return [
            Described(
                pool=each.pool,
                device=each.offered.device,
                attributes=_plain(self._devices.attributes(each.offered.device)),
                network=networks.get((each.offered.device, each.share_id)),
            )
            for each in orders
        ]


def networks_of(attached: Sequence[Attached]) -> Networks:
    return {
        (each.device, each.share_id): Network(
            interface=each.interface, mac=each.mac, ips=tuple(str(address) for address in each.ips)
        )
        for each in attached
    }


def _by_request(orders: Sequence[Order]) -> dict[str, list[Order]]:
    found: dict[str, list[Order]] = {}
    for each in orders:
        found.setdefault(each.request, []).append(each)
    return found


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(attributes)
