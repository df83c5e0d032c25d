"""What a pod's story depends on that happened before anybody knew of the pod. Pure."""

from collections.abc import Iterable, Sequence

from podwire.trace.digest_dra import PREPARE
from podwire.trace.participants import API_SERVER, DEVICE_PLUGIN, KUBELET
from podwire.trace.record import Record

LIST = "ListAndWatch"


def prelude(own: Sequence[Record], others: Iterable[Record]) -> list[Record]:
    """How it became known that there is what the pod was given: devices of plugins, and those that it claims."""
    drivers = {each.callee for each in own if each.method == PREPARE and each.begins}
    known = list(others) if drivers else others
    slices = [found for each in sorted(drivers) if (found := _offered(each, own[0].time, known)) is not None]
    return [*slices, *_plugged(own, known)]


def _offered(driver: str, before: float, others: Iterable[Record]) -> Record | None:
    """The last time that a driver published what it has."""
    told = (each for each in others if each.caller == driver and each.time <= before and _is_slice(each))
    return max(told, key=lambda each: (each.time, each.seq), default=None)


def _is_slice(record: Record) -> bool:
    verb, _, path = record.method.partition("?")[0].partition(" ")
    return verb in ("POST", "PUT", "PATCH") and "/resourceslices" in path


def _plugged(own: Sequence[Record], others: Iterable[Record]) -> list[Record]:
    """For a pod that has devices: how each of its plugins told which there are, and how the node said so."""
    sockets = {each.detail.get("socket") for each in own if each.callee == DEVICE_PLUGIN and each.begins}
    if not sockets:
        return []
    known = sorted(others, key=lambda each: (each.time, each.seq))
    first = own[0].time
    found = []
    for socket in sockets:
        lists = [each for each in known if each.method == LIST and each.detail.get("socket") == socket]
        earlier = [each for each in lists if each.time <= first]
        found += earlier[-1:] or lists[:1]
    begun = min((each.time for each in found), default=first)
    told = (each for each in known if each.time > begun and _is_node_status(each))
    return [*found, *([each] if (each := next(told, None)) is not None else [])]


def _is_node_status(record: Record) -> bool:
    path = record.method.partition("?")[0]
    parties = (record.caller, record.callee) == (KUBELET, API_SERVER)
    return parties and path.startswith("PATCH /api/v1/nodes/") and path.endswith("/status")
