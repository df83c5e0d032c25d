"""The simulated GPUs of a node for Kubernetes: devices of a ResourceSlice and of a CDI file. Pure.

They compute nothing. They exist so that devices of two drivers can be requested together: a card and a GPU below one
PCIe root.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from podwire.cluster.hardware.pci_functions import Function
from podwire.objects import claims
from podwire.objects.claims import ResourceClaim

DRIVER = "gpu.podwire.dev"
KIND = f"{DRIVER}/gpu"
STANDARD = "resource.kubernetes.io"
_FAMILY = uuid.UUID("6f6477ba-5f67-4b8e-a8ad-707764657669")


class Refused(Exception):
    """A claim that cannot be prepared; says why."""


class Gpu(NamedTuple):
    name: str
    uuid: str
    function: Function


def gpus(node: str, functions: Iterable[Function]) -> list[Gpu]:
    """Numbered in the order of the profile; the UUID follows from node and address."""
    found = [function for function in functions if function.gpu is not None]
    return [
        Gpu(f"gpu-{number}", f"GPU-{uuid.uuid5(_FAMILY, f'{node} {function.pci}')}", function)
        for number, function in enumerate(found)
    ]


def slice_spec(node: str, found: Sequence[Gpu], generation: int = 1) -> dict[str, Any]:
    return {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
        "devices": [{"name": gpu.name, "attributes": _attributes(gpu)} for gpu in found],
    }


def _attributes(gpu: Gpu) -> dict[str, Any]:
    function = gpu.function
    found: dict[str, Any] = {
        "model": {"string": function.gpu.model if function.gpu else ""},
        "uuid": {"string": gpu.uuid},
        f"{STANDARD}/pciBusID": {"string": function.pci},
        f"{STANDARD}/pcieRoot": {"string": function.root},
    }
    if function.numa is not None:
        found[f"{STANDARD}/numaNode"] = {"int": function.numa}
    return found


def cdi_spec(found: Iterable[Gpu]) -> dict[str, Any]:
    """A container with a GPU finds its UUID in the environment: `PODWIRE_GPU_0` for gpu-0, and so on."""
    return {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [
            {
                "name": gpu.name,
                "containerEdits": {"env": [f"PODWIRE_{gpu.name.upper().replace('-', '_')}={gpu.uuid}"]},
            }
            for gpu in found
        ],
    }


class AllocatedGpu(NamedTuple):
    """A device of a claim."""

    request: str
    device: str


def allocated_gpus(claim: Mapping[str, Any], uid: str, node: str, found: Iterable[Gpu]) -> list[AllocatedGpu]:
    """Returns the GPUs that were allocated to a claim. Raises Refused."""
    read: ResourceClaim = claims.read(claim)
    if read.metadata.uid != uid:
        raise Refused(f"{read.metadata.name} was replaced by another claim: {read.metadata.uid}")
    allocation = read.status.allocation
    if allocation is None:
        raise Refused(f"{read.metadata.name} has no allocation")
    known = {gpu.name for gpu in found}
    mine = [result for result in allocation.devices.results if result.driver == DRIVER]
    for result in mine:
        if result.pool != node or result.device not in known:
            raise Refused(f"{result.pool}/{result.device} is not a GPU of node {node}")
    return [AllocatedGpu(result.request, result.device) for result in mine]
