"""What a pod's story depends on that happened before anybody knew of the pod. Pure."""

from collections.abc import Iterable, Sequence

from podwire.trace.digest_dra import PREPARE
from podwire.trace.participants import API_SERVER, DEVICE_PLUGIN, KUBELET
from podwire.trace.record import Record

LIST = "ListAndWatch"


def prelude(own: Sequence[Record], others: Iterable[Record]) -> list[Record]:
    """How it became known that there is what the pod was given: devices of plugins, and those that it claims."""
    drivers = {record.callee for record in own if record.method == PREPARE and record.begins}
    known = list(others) if drivers else others
    slices = [found for driver in sorted(drivers) if (found := _offered(driver, own[0].time, known)) is not None]
    return [*slices, *_plugged(own, known)]


def _offered(driver: str, before: float, others: Iterable[Record]) -> Record | None:
    """The last time that a driver published what it has."""
    told = (other for other in others if other.caller == driver and other.time <= before and _is_slice(other))
    return max(told, key=lambda record: (record.time, record.seq), default=None)


def _is_slice(record: Record) -> bool:
    verb, _, path = record.method.partition("?")[0].partition(" ")
    return verb in ("POST", "PUT", "PATCH") and "/resourceslices" in path


def _plugged(own: Sequence[Record], others: Iterable[Record]) -> list[Record]:
    """For a pod that has devices: how each of its plugins told which there are, and how the node said so."""
    sockets = {record.detail.get("socket") for record in own if record.callee == DEVICE_PLUGIN and record.begins}
    if not sockets:
        return []
    known = sorted(others, key=lambda other: (other.time, other.seq))
    first = own[0].time
    found = []
    for socket in sockets:
        lists = [record for record in known if record.method == LIST and record.detail.get("socket") == socket]
        earlier = [list_ for list_ in lists if list_.time <= first]
        found += earlier[-1:] or lists[:1]
    begun = min((record.time for record in found), default=first)
    told = (record for record in known if record.time > begun and _is_node_status(record))
    return [*found, *([each] if (each := next(told, None)) is not None else [])]


def _is_node_status(record: Record) -> bool:
    path = record.method.partition("?")[0]
    parties = (record.caller, record.callee) == (KUBELET, API_SERVER)
    return parties and path.startswith("PATCH /api/v1/nodes/") and path.endswith("/status")
