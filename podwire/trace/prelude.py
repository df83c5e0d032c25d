"""Finds what a pod trace depends on that happened before the pod existed. Pure."""

from collections.abc import Iterable, Sequence

from podwire.trace.digest_dra import PREPARE
from podwire.trace.participants import API_SERVER, DEVICE_PLUGIN, KUBELET
from podwire.trace.record import Record

LIST = "ListAndWatch"


def prelude(own: Sequence[Record], others: Iterable[Record]) -> list[Record]:
    """Returns how the devices of a pod became known: ListAndWatch of device plugins, and ResourceSlices of drivers."""
    drivers = {record.callee for record in own if record.method == PREPARE and record.begins}
    known = list(others) if drivers else others
    slices = [slice_ for driver in sorted(drivers) if (slice_ := _last_slice(driver, own[0].time, known)) is not None]
    return [*slices, *_device_lists(own, known)]


def _last_slice(driver: str, before: float, others: Iterable[Record]) -> Record | None:
    """Returns the last publication of a driver before the pod."""
    slices = (other for other in others if other.caller == driver and other.time <= before and _is_slice(other))
    return max(slices, key=lambda record: (record.time, record.seq), default=None)


def is_prelude(record: Record) -> bool:
    """Whether a later trace may depend on a call without a pod."""
    return record.method == LIST or _is_slice(record) or _is_node_status(record)


def _is_slice(record: Record) -> bool:
    verb, _, path = record.method.partition("?")[0].partition(" ")
    return verb in ("POST", "PUT", "PATCH") and "/resourceslices" in path


def _device_lists(own: Sequence[Record], others: Iterable[Record]) -> list[Record]:
    """Returns, for a pod with devices, the list of each plugin and the node status that followed."""
    sockets = {record.detail.get("socket") for record in own if record.callee == DEVICE_PLUGIN and record.begins}
    if not sockets:
        return []
    ordered = sorted(others, key=lambda other: (other.time, other.seq))
    first = own[0].time
    lists_ = []
    for socket in sockets:
        lists = [record for record in ordered if record.method == LIST and record.detail.get("socket") == socket]
        earlier = [list_ for list_ in lists if list_.time <= first]
        lists_ += earlier[-1:] or lists[:1]
    begun = min((record.time for record in lists_), default=first)
    statuses = (record for record in ordered if record.time > begun and _is_node_status(record))
    return [*lists_, *([status] if (status := next(statuses, None)) is not None else [])]


def _is_node_status(record: Record) -> bool:
    path = record.method.partition("?")[0]
    parties = (record.caller, record.callee) == (KUBELET, API_SERVER)
    return parties and path.startswith("PATCH /api/v1/nodes/") and path.endswith("/status")
