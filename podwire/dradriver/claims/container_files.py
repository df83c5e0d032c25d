"""The files through which containers get their claims: a CDI file per claim, and a metadata file per request."""

from collections.abc import Sequence

from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.claims.allocations import Allocation, ClaimRef
from podwire.dradriver.claims.cdi import CdiFiles, RequestEdits, variable
from podwire.dradriver.claims.metadata import DeviceMetadata, MetadataFiles
from podwire.dradriver.claims.prepared_devices import PreparedDevices
from podwire.dradriver.publish.claim_reports import Networks, networks_of


class ContainerFiles:
    """Blocks; raises OSError."""

    def __init__(
        self, cdi: CdiFiles, metadata: MetadataFiles, devices: PreparedDevices, attachments: Attachments
    ) -> None:
        self.cdi, self._metadata, self._devices, self._attachments = cdi, metadata, devices, attachments

    def write_prepared(self, claim: ClaimRef, allocations: Sequence[Allocation], pod_claim: str) -> None:
        """Writes all files, before the kubelet learns the CDI names. Idempotent: kubelets ask again while pods run."""
        edits, networks = [], networks_of(self._attachments.attached(allocations[0].pod.uid))
        for request, of_request in _by_request(allocations).items():
            self._metadata.write(claim, request, self._metadata_of(of_request, networks))
            mount = self._metadata.mount(claim, request, pod_claim)
            names = ",".join(allocation.settings.name for allocation in of_request)
            edits.append(RequestEdits(request=request, env={variable(request, "INTERFACES"): names}, mounts=(mount,)))
        self.cdi.write(claim.uid, edits, self._attachments.attached_file(allocations[0].pod.uid))

    def write_attached(self, claim: ClaimRef, allocations: Sequence[Allocation], networks: Networks) -> None:
        """Writes addresses into the metadata: before any container is created, and whenever a lease changes."""
        for request, of_request in _by_request(allocations).items():
            self._metadata.write(claim, request, self._metadata_of(of_request, networks))

    def find_claim(self, claim_uid: str) -> ClaimRef | None:
        """Finds the name of a prepared claim whose record is damaged."""
        return self._metadata.find_claim(claim_uid)

    def remove(self, claim: ClaimRef) -> None:
        self.cdi.remove(claim.uid)
        self._metadata.remove(claim)

    def _metadata_of(self, allocations: Sequence[Allocation], networks: Networks) -> list[DeviceMetadata]:
        return [
            DeviceMetadata(
                pool=allocation.pool,
                device=allocation.device.name,
                attributes=self._devices.attributes(allocation.device.name),
                network=networks.get((allocation.device.name, allocation.share_id)),
            )
            for allocation in allocations
        ]


def _by_request(allocations: Sequence[Allocation]) -> dict[str, list[Allocation]]:
    groups: dict[str, list[Allocation]] = {}
    for allocation in allocations:
        groups.setdefault(allocation.request, []).append(allocation)
    return groups
