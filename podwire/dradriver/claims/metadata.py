"""A file that tells the containers of a claim what its devices are, as KEP-5304 describes it: read-only, in one place.

It is made with the claim's CDI file, and written anew when the devices are attached, before any container can see it,
and when an address changes, while containers do.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
class Described:
    """One device of a request."""

    pool: str
    device: str
    attributes: Mapping[str, Any]
    network: Network | None = None


def content(claim: ClaimRef, request: str, devices: Sequence[Described], generation: int) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "DeviceMetadata",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": generation,
        },
        "requests": [{"name": request, "devices": [_device(each) for each in devices]}],
    }


def _device(described: Described) -> dict[str, Any]:
    told: dict[str, Any] = {"driver": DRIVER, "pool": described.pool, "name": described.device}
    if described.attributes:
        told["attributes"] = dict(described.attributes)
    if described.network is not None:
        found = described.network
        told["networkData"] = {
            "interfaceName": found.interface,
            "hardwareAddress": found.mac,
            "ips": list(found.ips),
        }
    return told


def _read(path: Path, claim: ClaimRef) -> tuple[Any, int]:
    """What a file says of this very claim, and its generation: 0 where it says nothing."""
    try:
        found = msgspec.json.decode(path.read_bytes())
        told = found["metadata"]
        return (found, int(told["generation"])) if told["uid"] == claim.uid else (None, 0)
    except (FileNotFoundError, msgspec.DecodeError, ValueError, LookupError, TypeError):
        return None, 0


def _write(path: Path, text: bytes, *, in_place: bool) -> None:
    """Containers have the file itself: one that took its place would not be seen by them. It is written at once, and
    filled up with spaces rather than cut off, so that nobody reads half of it."""
    if not in_place:
        replace_file(path, text, 0o644)
        return
    with path.open("r+b", buffering=0) as file:
        file.write(text.ljust(path.stat().st_size))


class MetadataFiles:
    """The files of all claims. Blocks; raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, claim: ClaimRef, request: str, devices: Sequence[Described]) -> Path:
        """Nothing is written when it says so already; its generation tells how often it was."""
        path = self._folder(claim) / request / "metadata.json"
        before, generation = _read(path, claim)
        if not generation:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if before != content(claim, request, devices, generation):
            told = content(claim, request, devices, generation + 1)
            text = msgspec.json.format(msgspec.json.encode(told), indent=1)
            _write(path, text, in_place=generation > 0)
        return path

    def mount(self, claim: ClaimRef, request: str, pod_claim: str) -> Mount:
        """`pod_claim` is what the pod calls a claim that was made for it from a template; else it is empty."""
        kind, name = ("resourceclaimtemplates", pod_claim) if pod_claim else ("resourceclaims", claim.name)
        inside = f"{INSIDE}/{kind}/{name}/{request}/{DRIVER}-metadata.json"
        return Mount(host=str(self._folder(claim) / request / "metadata.json"), container=inside)

    def remove(self, claim: ClaimRef) -> None:
        shutil.rmtree(self._folder(claim), ignore_errors=True)

    def _folder(self, claim: ClaimRef) -> Path:
        return self._directory / f"{claim.namespace}_{claim.name}"
