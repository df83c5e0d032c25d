"""Decides what happens to a claim or a volume: bind, provision, wait, release, reclaim. Pure.

The rules, phases, events and their words are upstream's (pkg/controller/volume/persistentvolume). A binding is two
references, from the volume to the claim and back; each write of them can be the last before a crash, so every state in
between has a decision here.

| claim | decision |
|---|---|
| not completed, no volumeName | bind the best volume; else take the default class, wait for a pod, or provision |
| not completed, volumeName | bind it if it is free and fits, or names this claim; else stay Pending |
| completed | bind again if the volume is free or names this claim; else Lost |

| volume | decision |
|---|---|
| no claimRef, or one without uid | Available |
| its claim does not exist | Released, and reclaimed |
| its claim has no volumeName yet | the claim is decided |
| its claim names it | Bound |
| its claim names another volume | reclaimed if it was provisioned for it, else made Available |
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.objects import persistent_volumes as storage
from podwire.objects.persistent_volumes import Object
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING

PENDING, BOUND, LOST = "Pending", "Bound", "Lost"
AVAILABLE, RELEASED, FAILED = "Available", "Released", "Failed"
RETAIN, DELETE, RECYCLE = "Retain", "Delete", "Recycle"


@dataclass(frozen=True, slots=True)
class Event:
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Writes both references and both phases."""

    volume: Object


@dataclass(frozen=True, slots=True)
class Wait:
    """The claim stays Pending."""

    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Lose:
    """The claim becomes Lost."""

    event: Event


@dataclass(frozen=True, slots=True)
class TakeDefaultClass:
    name: str


@dataclass(frozen=True, slots=True)
class Provision:
    """Asks the provisioner of the class for a volume."""

    provisioner: str
    event: Event


@dataclass(frozen=True, slots=True)
class Retry:
    """The claim and the volume contradict each other; another writer is about to correct one of them."""

    event: Event


ClaimDecision = Bind | Wait | Lose | TakeDefaultClass | Provision | Retry


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """The state of the cluster that a decision about a claim depends on."""

    volume: Callable[[str], Object | None]
    """Finds a volume by its name."""
    candidates: Iterable[Object]
    """Volumes without a claim, and those that name this one."""
    classes: Sequence[Object]
    waiting_pods: Sequence[str] = ()
    """Names of the pods that use the claim and have no node."""


def decide_claim(claim: Object, context: ClaimContext) -> ClaimDecision:
    if storage.BIND_COMPLETED in storage.annotations(claim):
        return _decide_completed(claim, context)
    name = claim["spec"].get("volumeName")
    if not name:
        return _decide_unbound(claim, context)
    volume = context.volume(name)
    if volume is None:
        return Wait()
    if not volume["spec"].get("claimRef"):
        if why := storage.why_unsuitable(volume, claim):
            return Wait(Event(WARNING, "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}'))
        return Bind(volume)
    if storage.is_bound_to(volume, claim):
        return Bind(volume)
    event = Event(WARNING, "FailedBinding", f'volume "{name}" already bound to a different claim.')
    return Retry(event) if storage.BOUND_BY_CONTROLLER in storage.annotations(claim) else Wait(event)


def _decide_unbound(claim: Object, context: ClaimContext) -> ClaimDecision:
    name = storage.class_of_claim(claim)
    class_ = next((class_ for class_ in context.classes if class_["metadata"]["name"] == name), None) if name else None
    waits = storage.waits_for_consumer(class_)
    volume = storage.best_match(claim, context.candidates, waits=waits)
    if volume is not None:
        return Bind(volume)
    if not storage.has_class(claim) and (default := storage.default_class(context.classes)):
        return TakeDefaultClass(default)
    if waits and storage.SELECTED_NODE not in storage.annotations(claim):
        return Wait(_waiting(context.waiting_pods))
    if not name:
        text = "no persistent volumes available for this claim and no storage class is set"
        return Wait(Event(NORMAL, "FailedBinding", text))
    if class_ is None:
        return Wait(Event(WARNING, "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found'))
    provisioner: str = class_.get("provisioner") or ""
    if provisioner.startswith("kubernetes.io/"):
        return Wait(Event(WARNING, "ProvisioningFailed", f"no volume plugin matched name: {provisioner}"))
    text = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
        "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
        "correctly registered."
    )
    return Provision(provisioner, Event(NORMAL, "ExternalProvisioning", text))


def _waiting(pods: Sequence[str]) -> Event:
    if not pods:
        return Event(NORMAL, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
    word = "pods" if len(pods) > 1 else "pod"
    return Event(NORMAL, "WaitForPodScheduled", f"waiting for {word} {','.join(pods)} to be scheduled")


def _decide_completed(claim: Object, context: ClaimContext) -> ClaimDecision:
    name = claim["spec"].get("volumeName")
    if not name:
        text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return Lose(Event(WARNING, "ClaimLost", text))
    volume = context.volume(name)
    if volume is None:
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return Lose(Event(WARNING, "ClaimLost", text))
    reference = volume["spec"].get("claimRef")
    if not reference or reference.get("uid") == claim["metadata"]["uid"]:
        return Bind(volume)
    text = "Two claims are bound to the same volume, this one is bound incorrectly"
    return Lose(Event(WARNING, "ClaimMisbound", text))


@dataclass(frozen=True, slots=True)
class SetPhase:
    phase: str
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class DecideClaim:
    """The claim is decided next."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Events about both; nothing else is done."""

    of_volume: Event
    of_claim: Event


@dataclass(frozen=True, slots=True)
class Unbind:
    """Removes the reference to the claim, and makes the volume Available."""


VolumeDecision = SetPhase | DecideClaim | Mismatch | Unbind | None


def decide_volume(volume: Object, claim: Object | None) -> VolumeDecision:
    """`claim` is the one of that namespace and name, if it exists."""
    reference, name = volume["spec"].get("claimRef"), volume["metadata"]["name"]
    phase = (volume.get("status") or {}).get("phase")
    if not reference or not reference.get("uid"):
        return SetPhase(AVAILABLE) if phase != AVAILABLE else None
    if claim is None or claim["metadata"]["uid"] != reference["uid"]:
        return SetPhase(RELEASED) if phase not in (RELEASED, FAILED) else reclaim(volume)
    if not claim["spec"].get("volumeName"):
        if storage.same_mode(claim, volume):
            return DecideClaim()
        reason, why = "VolumeMismatch", "due to incompatible volumeMode."
        to_claim = f'to requested PersistentVolumeClaim "{claim["metadata"]["name"]}"'
        return Mismatch(
            Event(WARNING, reason, f"Cannot bind PersistentVolume {to_claim} {why}"),
            Event(WARNING, reason, f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim {why}'),
        )
    if claim["spec"]["volumeName"] == name:
        return SetPhase(BOUND) if phase != BOUND else None
    if storage.PROVISIONED_BY in storage.annotations(volume) and _policy(volume) == DELETE:
        return SetPhase(RELEASED) if phase not in (RELEASED, FAILED) else reclaim(volume)
    return Unbind()


def _policy(volume: Object) -> str:
    policy: str = volume["spec"].get("persistentVolumeReclaimPolicy") or RETAIN
    return policy


def reclaim(volume: Object) -> VolumeDecision:
    """Returns what happens to a released volume.

    Delete is the provisioner's task; a volume that was not provisioned has nobody who could delete what is behind it.
    Recycle, which upstream deprecates, is not supported.
    """
    if _policy(volume) == RETAIN or (volume.get("status") or {}).get("phase") == FAILED:
        return None
    if _policy(volume) == RECYCLE:
        return _failed("VolumeFailedRecycle", "No recycler plugin found for the volume!")
    if _policy(volume) != DELETE:
        return _failed("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")
    provisioner = storage.annotations(volume).get(storage.PROVISIONED_BY)
    if provisioner and not provisioner.startswith("kubernetes.io/"):
        return None
    return _failed("VolumeFailedDelete", "error getting deleter volume plugin for volume "
                   f'"{volume["metadata"]["name"]}": no volume plugin matched')  # fmt: skip


def _failed(reason: str, message: str) -> SetPhase:
    return SetPhase(FAILED, Event(WARNING, reason, message))


def unbound(volume: Object) -> dict[str, Any]:
    """Returns a volume without its claim; a reference that a user wrote stays, without the uid."""
    metadata, spec = dict(volume["metadata"]), dict(volume["spec"])
    if storage.BOUND_BY_CONTROLLER in storage.annotations(volume):
        kept = {key: text for key, text in storage.annotations(volume).items() if key != storage.BOUND_BY_CONTROLLER}
        metadata["annotations"] = kept
        del spec["claimRef"]
    else:
        spec["claimRef"] = {key: value for key, value in spec["claimRef"].items() if key != "uid"}
    return {**volume, "metadata": metadata, "spec": spec}


def bound_claim(claim: Object, volume: str) -> dict[str, Any] | None:
    """Returns a claim with its volume and the mark that binding is complete; None if it has them."""
    marks = dict(storage.annotations(claim))
    if claim["spec"].get("volumeName") != volume:
        marks.setdefault(storage.BOUND_BY_CONTROLLER, "yes")
    marks.setdefault(storage.BIND_COMPLETED, "yes")
    if marks == storage.annotations(claim):
        return None
    spec = {**claim["spec"], "volumeName": volume}
    return {**claim, "metadata": {**claim["metadata"], "annotations": marks}, "spec": spec}


def claim_status(claim: Object, phase: str, volume: Object | None) -> dict[str, Any]:
    """Returns the status of a claim; of a bound one, it shows what the volume offers."""
    before = claim.get("status") or {}
    if volume is None:
        gone = ("accessModes", "capacity", "currentVolumeAttributesClassName")
        return {**{key: value for key, value in before.items() if key not in gone}, "phase": phase}
    status = {**before, "phase": phase, "accessModes": list(volume["spec"].get("accessModes") or ())}
    if before.get("phase") != phase:
        status["capacity"] = dict(volume["spec"].get("capacity") or {})
    name = volume["spec"].get("volumeAttributesClassName")
    if before.get("phase") == PENDING and phase == BOUND and name:
        status["currentVolumeAttributesClassName"] = name
    return status


def with_provisioner(claim: Object, provisioner: str) -> dict[str, Any] | None:
    """Returns a claim with the annotations by which a provisioner recognizes its work; None if it has them."""
    marks = {**storage.annotations(claim), **dict.fromkeys(storage.STORAGE_PROVISIONERS, provisioner)}
    if marks == storage.annotations(claim):
        return None
    return {**claim, "metadata": {**claim["metadata"], "annotations": marks}}
