"""Finds the link of a record among others, under any name that a pod gave it. Pure."""

from collections.abc import Iterable

from podwire.dradriver.attach.records import Record
from podwire.linux.net.borrow import is_same_link
from podwire.linux.net.link_attributes import LinkDetails


def find_link(record: Record, links: Iterable[LinkDetails]) -> LinkDetails | None:
    """Matches by the owner tag, else by the MAC address, else by the name that it has before it has either.

    A pod can set aliases and names, so only links of the right kind and hardware are considered.
    """
    candidates = [link for link in links if _can_be(record, link)]
    tagged = [candidate for candidate in candidates if candidate.link.alias == record.tag]
    known = tagged or [candidate for candidate in candidates if candidate.link.mac in _macs(record)]
    return next(
        iter(known or [candidate for candidate in candidates if candidate.link.name == record.waiting_name]), None
    )


def _can_be(record: Record, details: LinkDetails) -> bool:
    link = details.link
    if record.snapshot is not None:
        return is_same_link(record.snapshot, details)
    kind = record.allocation.settings.made.kind
    return link.kind == ("tun" if kind == "tap" else kind) and link.name != record.host_end


def _macs(record: Record) -> set[str]:
    """The MAC addresses that it can have on the host and in the pod; a link without one is found by its tag alone."""
    of_host = {record.snapshot.mac, record.snapshot.permanent_mac} if record.snapshot else set()
    return ({record.mac, record.allocation.settings.mac or ""} | of_host) - {""}


def names_on_host(record: Record) -> tuple[str, ...]:
    """The names under which it can be on the host."""
    if record.snapshot is not None:
        return record.snapshot.name, record.waiting_name
    return (record.waiting_name,)
