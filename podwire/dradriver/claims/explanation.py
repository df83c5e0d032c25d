"""Explains a claim to people: its requests, its allocation, how far it got on this node, and why.

`explained` is pure; `seen_on_host` looks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.dradriver.attach.records import ATTACHED, PREPARED, DeviceRecords, Record
from podwire.dradriver.claims.damaged_records import DamagedRecord, DamagedRecords
from podwire.dradriver.names import COMPONENT, DRIVER
from podwire.linux.errors import LinuxError
from podwire.linux.net.network import KernelNetwork

Object = dict[str, Any]

_REASONS = (
    "FailedScheduling",
    "WaitingForDynamicResources",
    "FailedPrepareDynamicResources",
    "FailedUnprepareDynamicResources",
    "FailedCreatePodSandBox",
)
"""Of other participants' events, those that are about claims or may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A device of the claim on this node."""

    record: Record
    link: str
    """How its link is on the host; empty when it is not there."""
    pod_there: bool
    """Whether the pod's network namespace exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """All that a look at the node gave."""

    devices: tuple[Seen, ...] = ()
    damaged: tuple[DamagedRecord, ...] = ()
    """Records that could not be read."""
    unknown: str = ""
    """Why nothing could be seen."""


def seen_on_host(state: Path, claim_uid: str) -> Sight:
    """Blocks; raises OSError."""
    if not state.is_dir():
        return Sight(unknown="no network driver has worked here; `podwire up --network-driver` runs one")
    records = DeviceRecords(state)
    found = records.of_claim(claim_uid)
    with KernelNetwork() as network:
        devices = tuple(
            Seen(
                record=record,
                link=_link(network, record.allocation.device.link),
                pod_there=bool(record.netns) and Path(record.netns).exists(),
            )
            for record in found
        )
    return Sight(devices=devices, damaged=tuple(DamagedRecords(state).list(claim_uid)))


def _link(network: KernelNetwork, name: str) -> str:
    try:
        link = network.links.get(name)
    except LinuxError:
        return ""
    return f"{link.name}, {'up' if link.up else 'down'}, mtu {link.mtu}, {link.mac}"


def explained(claim: Object, *, pods: Sequence[Object], events: Sequence[Object], node: str, sight: Sight) -> list[str]:
    meta = claim["metadata"]
    lines = [f"claim {meta['namespace']}/{meta['name']}"]
    lines += _indented(_asked(claim))
    users = [pod for pod in pods if _uses(pod, meta["name"])]
    lines += ["allocation"]
    lines += _indented(_allocation(claim, users))
    lines += [f"on this node, {node}"]
    lines += _indented(_here(claim, node, sight))
    lines += ["reported in its status"]
    lines += _indented(_status(claim) or ["nothing yet"])
    if about := list(_events(claim, users, events)):
        lines += ["events", *_indented(about)]
    return lines


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _asked(claim: Object) -> Iterator[str]:
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        for choice in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
            if choice:
                count = (
                    "all devices" if choice.get("allocationMode") == "All" else f"{choice.get('count', 1)} device(s)"
                )
                yield f"request {request['name']}: {count} of class {choice.get('deviceClassName')}"


def _allocation(claim: Object, users: Sequence[Object]) -> Iterator[str]:
    status = claim.get("status") or {}
    if when := claim["metadata"].get("deletionTimestamp"):
        yield f"deleted at {when}: it goes when no pod has it any more, and no other pod gets it"
    if "allocation" not in status:
        yield "none: the scheduler has given it no devices"
        if not users:
            yield "no pod uses it: a claim is allocated when a pod that names it is scheduled"
        for pod in users:
            why = _condition(pod, "PodScheduled")
            yield f"pod {pod['metadata']['name']}: {why or 'is not looked at by the scheduler yet'}"
        return
    for result in status["allocation"].get("devices", {}).get("results") or ():
        ours = "" if result["driver"] == DRIVER else f", which is the business of {result['driver']}"
        share = f", share {result['shareID']}" if result.get("shareID") else ""
        yield f"request {result['request']}: device {result['device']} of pool {result['pool']}{share}{ours}"
    reserved = [
        f"{consumer['resource'].removesuffix('s')} {consumer['name']}" for consumer in status.get("reservedFor") or ()
    ]
    yield f"reserved for {', '.join(reserved) or 'no pod: it is gone, or not scheduled'}"


def _condition(pod: Object, type_: str) -> str:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == type_ and condition["status"] != "True":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


def _here(claim: Object, node: str, sight: Sight) -> Iterator[str]:
    if sight.unknown:
        yield f"not known: {sight.unknown}"
        return
    seen = sight.devices
    results = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or ()
    ours = [result for result in results if result["driver"] == DRIVER]
    known = {*(device.record.allocation.device.name for device in seen), *(damage.device for damage in sight.damaged)}
    for allocated in ours:
        if allocated["pool"] != node:
            yield f"{allocated['device']}: is on node {allocated['pool']}; ask there"
        elif allocated["device"] not in known:
            yield f"{allocated['device']}: not prepared; no kubelet has asked for it, or it was refused (see events)"
    for device in seen:
        yield from _device(device)
    for damage in sight.damaged:
        yield f"{damage.device}: {damage.message}"
    if not ours and not seen and not sight.damaged:
        yield "nothing"


def _device(seen: Seen) -> Iterator[str]:
    record, allocation = seen.record, seen.record.allocation
    pod = f"pod {allocation.pod.namespace}/{allocation.pod.name}"
    name = allocation.device.name
    match record.stage:
        case stage if stage == ATTACHED:
            there = (
                "" if seen.pod_there else ", whose network namespace is gone: it is brought back with the next event"
            )
            ips = ", ".join(map(str, record.addresses or ())) or record.lapse or "the addresses that it has on the host"
            yield f"{name}: attached to {pod} as {allocation.settings.name}, {record.mac}, {ips}{there}"
        case stage if stage == PREPARED:
            yield f"{name}: prepared for {pod}, not attached{_why(record)}"
        case _:
            yield f"{name}: on its way into {pod} or back; the driver was interrupted{_why(record)}"
    if record.stage != ATTACHED or allocation.device.shared:
        yield f"{name}: on the host {seen.link or f'there is no link {allocation.device.link}'}"
    for lost in record.lost:
        yield f"{name}: could not be brought back as it was: {lost}"


def _why(record: Record) -> str:
    return f": {record.failure}" if record.failure else ": its sandbox has not started, or has ended"


def _status(claim: Object) -> list[str]:
    return [
        f"{device['device']}: {condition['type']} {condition['status']}, {condition['reason']}: {condition['message']}"
        for device in (claim.get("status") or {}).get("devices") or ()
        if device["driver"] == DRIVER
        for condition in device.get("conditions") or ()
    ]


def _events(claim: Object, users: Sequence[Object], events: Sequence[Object]) -> Iterator[str]:
    uids = {claim["metadata"]["uid"], *(user["metadata"]["uid"] for user in users)}
    about = [event for event in events if event.get("involvedObject", {}).get("uid") in uids]
    for event in sorted(about, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or ""):
        if event["reason"] in _REASONS or event.get("source", {}).get("component") == COMPONENT:
            when = event.get("lastTimestamp") or event.get("eventTime")
            yield f"{when} {event['involvedObject']['kind']} {event['reason']}: {event['message']}"


def _uses(pod: Object, claim: str) -> bool:
    named = {resource_claim.get("resourceClaimName") for resource_claim in pod["spec"].get("resourceClaims") or ()}
    made = {status.get("resourceClaimName") for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    return claim in named | made
