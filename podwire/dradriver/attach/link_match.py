"""Which link is the one that a record is about, whatever a pod has called it. Pure."""

from collections.abc import Iterable

from podwire.dradriver.attach.records import Record
from podwire.dradriver.attach.snapshots import Snapshot
from podwire.linux.net.link_attributes import LinkDetails


def found(record: Record, links: Iterable[LinkDetails]) -> LinkDetails | None:
    """By its mark, else by its MAC address, else by the name that it has before it has either.

    Never one that cannot be it: a pod can mark and name links, too.
    """
    candidates = [each for each in links if _can_be(record, each)]
    marked = [each for each in candidates if each.link.alias == record.tag]
    known = marked or [each for each in candidates if each.link.mac in _macs(record)]
    return next(iter(known or [each for each in candidates if each.link.name == record.waiting_name]), None)


def _can_be(record: Record, whole: LinkDetails) -> bool:
    link = whole.link
    if record.snapshot is not None:
        return _is_same(record.snapshot, whole)
    kind = record.order.settings.made.kind
    return link.kind == ("tun" if kind == "tap" else kind) and link.name != record.host_end


def _is_same(snapshot: Snapshot, whole: LinkDetails) -> bool:
    """What no move and no pod can change: what kind of link it is, what it is made on, what its hardware says."""
    alike = whole.link.kind == snapshot.kind and whole.permanent_mac == snapshot.permanent_mac
    return alike and (snapshot.kind == "" or whole.link.peer == snapshot.peer)


def _macs(record: Record) -> set[str]:
    """Those that it has on the host and in the pod; a link without one is known by its mark alone."""
    of_host = {record.snapshot.mac, record.snapshot.permanent_mac} if record.snapshot else set()
    return ({record.mac, record.order.settings.mac or ""} | of_host) - {""}


def names_on_host(record: Record) -> tuple[str, ...]:
    """Where to look first."""
    if record.snapshot is not None:
        return record.snapshot.name, record.waiting_name
    return (record.waiting_name,)
