"""The metadata file of a claim's request, as in KEP-5304: read-only in the containers, at a fixed path.

It is written with the claim's CDI file, again when the devices are attached (no container has it yet), and when an
address changes (containers have it).
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import iglob
from pathlib import Path
from typing import Any

import msgspec

from podwire.dradriver.claims.allocations import ClaimRef
from podwire.dradriver.claims.cdi import Mount
from podwire.dradriver.names import DRIVER
from podwire.dradriver.publish.claim_status import Network
from podwire.durable.files import replace_file

VERSION = "metadata.resource.k8s.io/v1beta1"
INSIDE = "/var/run/kubernetes.io/dra-device-attributes"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMetadata:
    """The metadata of one device of a request."""

    pool: str
    device: str
    attributes: Mapping[str, Any]
    network: Network | None = None


def content(claim: ClaimRef, request: str, devices: Sequence[DeviceMetadata], generation: int) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "DeviceMetadata",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": generation,
        },
        "requests": [{"name": request, "devices": [_device(device) for device in devices]}],
    }


def _device(described: DeviceMetadata) -> dict[str, Any]:
    metadata: dict[str, Any] = {"driver": DRIVER, "pool": described.pool, "name": described.device}
    if described.attributes:
        metadata["attributes"] = dict(described.attributes)
    if described.network is not None:
        network = described.network
        metadata["networkData"] = {
            "interfaceName": network.interface,
            "hardwareAddress": network.mac,
            "ips": list(network.ips),
        }
    return metadata


def _read(path: Path, claim: ClaimRef) -> tuple[Any, int]:
    """Returns the content and generation of a file of this claim; generation 0 if there is none."""
    try:
        present = msgspec.json.decode(path.read_bytes())
        metadata = present["metadata"]
        return (present, int(metadata["generation"])) if metadata["uid"] == claim.uid else (None, 0)
    except (FileNotFoundError, msgspec.DecodeError, ValueError, LookupError, TypeError):
        return None, 0


def _write(path: Path, text: bytes, *, in_place: bool) -> None:
    """Containers have the file bind-mounted, so they would not see a file that replaced it. It is written in place with
    one write(2), and padded with spaces rather than truncated, so that no reader sees half of it."""
    if not in_place:
        replace_file(path, text, 0o644)
        return
    with path.open("r+b", buffering=0) as file:
        file.write(text.ljust(path.stat().st_size))


class MetadataFiles:
    """The files of all claims. Blocks; raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, claim: ClaimRef, request: str, devices: Sequence[DeviceMetadata]) -> Path:
        """Writes the file if its content changes, with the next generation."""
        path = self._folder(claim) / request / "metadata.json"
        before, generation = _read(path, claim)
        if not generation:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if before != content(claim, request, devices, generation):
            text = msgspec.json.format(msgspec.json.encode(content(claim, request, devices, generation + 1)), indent=1)
            _write(path, text, in_place=generation > 0)
        return path

    def mount(self, claim: ClaimRef, request: str, pod_claim: str) -> Mount:
        """`pod_claim` is the name in the pod's spec of a claim that was generated from a template; else it is empty."""
        kind, name = ("resourceclaimtemplates", pod_claim) if pod_claim else ("resourceclaims", claim.name)
        inside = f"{INSIDE}/{kind}/{name}/{request}/{DRIVER}-metadata.json"
        return Mount(host=str(self._folder(claim) / request / "metadata.json"), container=inside)

    def find_claim(self, claim_uid: str) -> ClaimRef | None:
        """Finds the name of a claim by its uid."""
        # A directory may be removed meanwhile, as when another claim is unprepared.
        for name in iglob("*/*/metadata.json", root_dir=self._directory):  # noqa: PTH207 - Path.glob would fail then
            try:
                metadata = msgspec.json.decode((self._directory / name).read_bytes())["metadata"]
                if metadata["uid"] == claim_uid:
                    return ClaimRef(namespace=metadata["namespace"], name=metadata["name"], uid=claim_uid)
            except (OSError, msgspec.DecodeError, LookupError, TypeError):
                continue
        return None

    def remove(self, claim: ClaimRef) -> None:
        shutil.rmtree(self._folder(claim), ignore_errors=True)

    def _folder(self, claim: ClaimRef) -> Path:
        return self._directory / f"{claim.namespace}_{claim.name}"
