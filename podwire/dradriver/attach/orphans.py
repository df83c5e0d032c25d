"""Orphaned links: they have the owner tag of a claim, and the claim has no record, because it was lost or damaged.

The record decides who owns a device (see records), so nobody would bring such a link back, and a tagged link is never
offered: the device would be nowhere. What becomes of it:

| the link is | it is recovered |
|---|---|
| made for a claim, on the host | at once: it is deleted |
| a whole device, on the host | at once |
| a whole device, in the namespace of a pod that is gone | at once, before its namespace ends |
| a whole device, in a running pod | when the pod's sandbox stops: the pod works with it |

A recovered link has its name, MAC address and MTU again, as the ResourceSlice had them; the rest of its snapshot was in
the record.
"""

import json
import logging
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from podwire.dradriver.attach import made_links
from podwire.dradriver.attach.records import OWN_NAME, TAG, DeviceRecords
from podwire.linux import errors
from podwire.linux.net.link_attributes import Attributes, DetailedLinks
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.values import Link

_log = logging.getLogger("podwire.dradriver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    link: Link
    claim_uid: str
    device: str
    netns: str = ""
    """The namespace that it is in; empty on the host."""


class OrphanedLinks:
    """Blocks; raises LinuxError. The caller holds the claim's lock when it recovers a link: a claim that is being
    unprepared and prepared again has no record for a moment."""

    def __init__(self, host: NamespaceHandle, records: DeviceRecords, listed: Path) -> None:
        """`listed` has the devices as they were published before they were prepared, see prepared_devices."""
        self._host, self._records, self._listed = host, records, listed

    def on_host(self) -> list[Orphan]:
        return self._find(self._host, "")

    def in_pod(self, netns: str) -> list[Orphan]:
        """The whole devices in the namespace of a pod; what was made there ends with it."""
        try:
            with NamespaceHandle(netns) as pod:
                return [orphan for orphan in self._find(pod, netns) if self._published(orphan.device)]
        except (errors.NoSuchNamespace, errors.WrongKind):
            return []

    def _find(self, place: NamespaceHandle, netns: str) -> list[Orphan]:
        links = [link for link in KernelLinks(place.netlink).list() if link.alias.startswith(TAG)]
        # Read after the links: a record exists before its link is tagged.
        tags = {record.tag for record in self._records.all()} if links else set()
        orphans = []
        for link in links:
            claim_uid, _request, device, *_share = f"{link.alias.removeprefix(TAG)}//".split("/")
            if link.alias not in tags:
                orphans.append(Orphan(link=link, claim_uid=claim_uid, device=device, netns=netns))
        return orphans

    def recover(self, orphan: Orphan) -> bool:
        """Brings a link back; returns whether a whole device was recovered. A failure is logged, and retried later."""
        try:
            with NamespaceHandle(orphan.netns) if orphan.netns else nullcontext(self._host) as place:
                present = {(found.link.ifindex, found.link.alias) for found in self._find(place, orphan.netns)}
                if (orphan.link.ifindex, orphan.link.alias) not in present:
                    return False  # it has a record by now, or was restored
                if not orphan.netns and OWN_NAME.fullmatch(orphan.link.name):
                    made_links.delete_tagged(self._host, orphan.link.name, orphan.link.alias)
                    return False
                self._recover(orphan, place)
        except errors.LinuxError as error:
            _log.error("cannot recover orphaned link", extra={"device": orphan.device, "error": str(error)})
            return False
        _log.warning("recovered orphaned link without its other settings", extra={"device": orphan.device})
        return True

    def _recover(self, orphan: Orphan, place: NamespaceHandle) -> None:
        published, links, index = self._published(orphan.device), DetailedLinks(place.netlink), orphan.link.ifindex
        name = self._free_name(str(published.get("interface") or orphan.link.name), orphan)
        settings = Attributes(name=name, mac=published.get("mac"), mtu=published.get("mtu"), alias="")
        links.change(index, Attributes(up=False))
        if place is self._host:
            links.change(index, settings)
        else:
            links.change(index, settings, self._host.netns)
        if published.get("carrier"):
            KernelLinks(self._host.netlink).change(name, up=True)

    def _free_name(self, name: str, orphan: Orphan) -> str:
        """Its own name, unless another link of the host has taken it."""
        try:
            taken = KernelLinks(self._host.netlink).get(name)
        except errors.NoSuchLink:
            return name
        is_own = not orphan.netns and taken.ifindex == orphan.link.ifindex
        return name if is_own else f"pwr{zlib.crc32(orphan.link.alias.encode()):08x}"

    def _published(self, device: str) -> dict[str, Any]:
        """Attributes of a whole device as they were published; empty for a shared one, or when they are not known."""
        try:
            envelope = json.loads((self._listed / f"{quote(device, safe='')}.json").read_bytes().splitlines()[-1])
            attributes = envelope.get("record", envelope)["attributes"]
            values = {name: next(iter(value.values())) for name, value in attributes.items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
            return {}
        return {} if values.get("shared") else values
