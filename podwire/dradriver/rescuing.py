"""Whole links of damaged records, brought out of their pods before these are gone. Blocks.

What they were like is not known any more, but for their name; a link that is no hardware would die with its pod.
"""

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from podwire.dradriver.attach.records import TAG
from podwire.dradriver.claims.damaged_records import Damaged
from podwire.linux.errors import LinuxError
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link

_log = logging.getLogger("podwire.dradriver")

_HERE = "/proc/thread-self/ns/net"


def rescue(damaged: Damaged, state: Path) -> None:
    """To the calling thread's network namespace. What does not work is logged: nobody could do better later."""
    told = {"device": damaged.device}
    name, pin = _name(state / "listed", damaged.device), state / "netns" / damaged.pod_uid
    if not name:
        _log.warning("a device whose record was damaged is left as it is", extra=told)
        return
    try:
        with contextlib.closing(KernelNetwork(pin)) as pod:
            for link in _tagged(pod, damaged):
                pod.links.change(link.ifindex, up=False, alias="")
                pod.links.move(link.ifindex, Path(_HERE), name)
                _log.warning("a device whose record was damaged is back, with nothing but its name", extra=told)
    except LinuxError as error:
        _log.warning("a device whose record was damaged is left as it is", extra=told | {"why": str(error)})


def _tagged(pod: KernelNetwork, damaged: Damaged) -> Iterator[Link]:
    for each in pod.links.list():
        parts = each.alias.removeprefix(TAG).split("/")
        if each.alias.startswith(TAG) and (parts[0], parts[2:3]) == (damaged.claim_uid, [damaged.device]):
            yield each


def _name(listed: Path, device: str) -> str:
    """On the host; empty for a device that interfaces are made on, or of which nothing is known."""
    try:
        attributes = json.loads((listed / f"{quote(device, safe='')}.json").read_bytes())["attributes"]
        return "" if attributes["shared"]["bool"] else str(attributes["interface"]["string"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
