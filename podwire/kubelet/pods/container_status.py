"""A container as the pod's status shows it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.pods.plan import told_restarts
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339
from podwire.protocols.cri import cri_pb2 as pb

State = dict[str, Any]

LOST = "The container could not be located when the pod was deleted.  The container used to be Running"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a status shows beside the pod and the runtime's side of it."""

    now: str
    """The time, as a timestamp."""
    runtime: str = "podwire"
    """The scheme of container ids."""
    host_ips: tuple[str, ...] = ()
    qos: str = "BestEffort"
    ready: frozenset[str] = frozenset()
    """Ids of containers that are ready, and below, of those whose startup probe has succeeded."""
    started: frozenset[str] = frozenset()
    waiting: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By container name: why it does not run, as a reason and a message."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """By container id: the last words of those that ended."""
    devices: Mapping[str, list[dict[str, object]]] = field(default_factory=dict)
    """By container name: how the devices are that it has."""
    failure: tuple[str, str] | None = None
    """Why the pod as a whole has failed: a reason and a message."""


def container_status(pod: Pod, container: Container, observed: ObservedPod, view: View) -> State:
    seen = observed.latest(container.name)
    if seen is None:
        return {**_unseen(pod, container, observed, view), **_devices(container, view)}
    return {
        "name": container.name,
        **_states(seen, observed, view),
        "ready": _ready(pod, container, seen, view),
        "restartCount": seen.attempt,
        "image": seen.image or container.image,
        "imageID": seen.image_ref,
        "containerID": f"{view.runtime}://{seen.id}",
        "started": seen.running and seen.id in view.started,
        **({"user": {"linux": dict(seen.user)}} if seen.user is not None else {}),
        **_devices(container, view),
    }


def _devices(container: Container, view: View) -> State:
    return {"allocatedResourcesStatus": view.devices[container.name]} if container.name in view.devices else {}


def _unseen(pod: Pod, container: Container, observed: ObservedPod, view: View) -> State:
    """The runtime has none: it never had, or has lost what the API was told of."""
    told = told_status(pod, container.name)
    if "terminated" in told.get("state", {}):
        return told
    last = told.get("lastState") or {}
    if "running" in told.get("state", {}) and not last:
        last = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": LOST}}
    return {
        "name": container.name,
        "state": {"waiting": _waiting(pod, container, observed, view)},
        "lastState": last,
        "ready": False,
        "restartCount": told_restarts(pod, container.name),
        "image": container.image,
        "imageID": "",
        "started": False,
    }


def told_status(pod: Pod, name: str) -> State:
    """What the API has of a container, if anything."""
    told = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((each for each in told if each.get("name") == name), {})


def _states(seen: ObservedContainer, observed: ObservedPod, view: View) -> State:
    """Now and before. What waits to be started again has ended before."""
    before = next((each for each in observed.history(seen.name) if each.id != seen.id and each.exited), None)
    last = {"terminated": terminated(before, view)} if before is not None else {}
    if seen.running:
        return {"state": {"running": {"startedAt": _time(seen.started_at)}}, "lastState": last}
    if seen.state == pb.CONTAINER_CREATED:
        why = view.waiting.get(seen.name, ("ContainerCreating", ""))
        return {"state": {"waiting": _told(*why)}, "lastState": last}
    if seen.name in view.waiting:
        state = {"waiting": _told(*view.waiting[seen.name])}
        return {"state": state, "lastState": {"terminated": terminated(seen, view)}}
    return {"state": {"terminated": terminated(seen, view)}, "lastState": last}


def terminated(seen: ObservedContainer, view: View) -> State:
    reason = seen.reason or ("Completed" if seen.exit_code == 0 else "Error")
    told = {
        "exitCode": seen.exit_code,
        "reason": reason,
        "message": view.messages.get(seen.id) or seen.message,
        "startedAt": _time(seen.started_at),
        "finishedAt": _time(seen.finished_at),
        "containerID": f"{view.runtime}://{seen.id}",
    }
    return {name: value for name, value in told.items() if value not in ("", None)}


def _waiting(pod: Pod, container: Container, observed: ObservedPod, view: View) -> State:
    if container.name in view.waiting:
        return _told(*view.waiting[container.name])
    init = pod.spec.init_containers
    behind = container in pod.spec.containers and init and not initialized(pod, observed, view)
    return {"reason": "PodInitializing" if behind or container in init else "ContainerCreating"}


def initialized(pod: Pod, observed: ObservedPod, view: View) -> bool:
    """All init containers have done their work, and the sidecars have started."""
    return not uninitialized(pod, observed, view)


def uninitialized(pod: Pod, observed: ObservedPod, view: View) -> list[str]:
    """The init containers that are not through."""
    if any(observed.latest(each.name) is not None for each in pod.spec.containers):
        return []
    names = []
    for each in pod.spec.init_containers:
        seen = observed.latest(each.name)
        if each.sidecar:
            through = seen is not None and seen.running and seen.id in view.started
        else:
            through = seen is not None and seen.exited and seen.exit_code == 0
        if not through:
            names.append(each.name)
    return names


def _ready(pod: Pod, container: Container, seen: ObservedContainer, view: View) -> bool:
    if container in pod.spec.init_containers and not container.sidecar:
        return seen.exited and seen.exit_code == 0
    return seen.running and seen.id in view.ready


def _told(reason: str, message: str) -> State:
    return {"reason": reason, "message": message} if message else {"reason": reason}


def _time(nanoseconds: int) -> str | None:
    return rfc3339(nanoseconds / 1e9) if nanoseconds else None
