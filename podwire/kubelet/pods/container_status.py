"""The status of a container as the API shows it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.pods.plan import next_attempt
from podwire.objects.containers import Container, Requests
from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339
from podwire.protocols.cri import cri_pb2 as pb

State = dict[str, Any]

LOST = "The container could not be located when the pod was deleted.  The container used to be Running"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """Inputs of a status beside the pod and its state in the runtime."""

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
    """By container name: reason and message of its waiting state."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """By container id: termination messages."""
    devices: Mapping[str, list[dict[str, object]]] = field(default_factory=dict)
    """By container name: the health of its devices."""
    failure: tuple[str, str] | None = None
    """Reason and message of a pod that has failed as a whole."""
    actuated: Mapping[str, Requests] = field(default_factory=dict)
    """By container id: the resources of containers that run."""
    resize: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    """By condition type: reason, message and generation of a resize that is pending or in progress."""
    disruption: str = ""
    """Why the node ended the pod for its own sake; the message of a DisruptionTarget condition."""


def container_status(pod: Pod, container: Container, observed: ObservedPod, inputs: StatusInputs) -> State:
    seen = observed.latest(container.name)
    if seen is None:
        return {**_unseen(pod, container, observed, inputs), **_devices(container, inputs)}
    return {
        "name": container.name,
        **_states(seen, observed, inputs),
        "ready": _ready(pod, container, seen, inputs),
        "restartCount": seen.attempt,
        "image": seen.image or container.image,
        "imageID": seen.image_ref,
        "containerID": f"{inputs.runtime}://{seen.id}",
        "started": seen.running and seen.id in inputs.started,
        **({"user": {"linux": dict(seen.user)}} if seen.user is not None else {}),
        **_devices(container, inputs),
        **_resources(pod, container, inputs.actuated.get(seen.id, container.resources)),
    }


def _resources(pod: Pod, container: Container, actuated: Requests) -> State:
    """The resources that a container has, and its requests that are allocated."""
    if container in pod.spec.ephemeral_containers:
        return {}
    resources = {"requests": dict(actuated.requests), "limits": dict(actuated.limits)}
    state: State = {"resources": {name: amounts for name, amounts in resources.items() if amounts}}
    if container.resources.requests:
        state["allocatedResources"] = dict(container.resources.requests)
    return state


def _devices(container: Container, inputs: StatusInputs) -> State:
    return {"allocatedResourcesStatus": inputs.devices[container.name]} if container.name in inputs.devices else {}


def _unseen(pod: Pod, container: Container, observed: ObservedPod, inputs: StatusInputs) -> State:
    """The status of a container that the runtime does not have, or has lost since its status was reported."""
    reported = reported_status(pod, container.name)
    if "terminated" in reported.get("state", {}):
        return reported
    last = reported.get("lastState") or {}
    if "running" in reported.get("state", {}) and not last:
        last = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": LOST}}
    return {
        "name": container.name,
        "state": {"waiting": _waiting(pod, container, observed, inputs)},
        "lastState": last,
        "ready": False,
        "restartCount": next_attempt(pod, container.name),
        "image": container.image,
        "imageID": "",
        "started": False,
        **_resources(pod, container, container.resources),
    }


def reported_status(pod: Pod, name: str) -> State:
    """The status that the API has of a container; empty if there is none."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((status for status in statuses if status.get("name") == name), {})


def _states(seen: ObservedContainer, observed: ObservedPod, inputs: StatusInputs) -> State:
    """`state` and `lastState`. A container that waits for its restart has terminated before."""
    history = observed.history(seen.name)
    before = next((earlier for earlier in history if earlier.id != seen.id and earlier.exited), None)
    last = {"terminated": terminated(before, inputs)} if before is not None else {}
    if seen.running:
        return {"state": {"running": {"startedAt": _time(seen.started_at)}}, "lastState": last}
    if seen.state == pb.CONTAINER_CREATED:
        reason, message = inputs.waiting.get(seen.name, ("ContainerCreating", ""))
        return {"state": {"waiting": _waiting_state(reason, message)}, "lastState": last}
    if seen.name in inputs.waiting:
        state = {"waiting": _waiting_state(*inputs.waiting[seen.name])}
        return {"state": state, "lastState": {"terminated": terminated(seen, inputs)}}
    return {"state": {"terminated": terminated(seen, inputs)}, "lastState": last}


def terminated(seen: ObservedContainer, inputs: StatusInputs) -> State:
    reason = seen.reason or ("Completed" if seen.exit_code == 0 else "Error")
    state = {
        "exitCode": seen.exit_code,
        "reason": reason,
        "message": inputs.messages.get(seen.id) or seen.message,
        "startedAt": _time(seen.started_at),
        "finishedAt": _time(seen.finished_at),
        "containerID": f"{inputs.runtime}://{seen.id}",
    }
    return {name: value for name, value in state.items() if value not in ("", None)}


def _waiting(pod: Pod, container: Container, observed: ObservedPod, inputs: StatusInputs) -> State:
    if container.name in inputs.waiting:
        return _waiting_state(*inputs.waiting[container.name])
    init = pod.spec.init_containers
    behind = container in pod.spec.containers and init and not initialized(pod, observed, inputs)
    return {"reason": "PodInitializing" if behind or container in init else "ContainerCreating"}


def initialized(pod: Pod, observed: ObservedPod, inputs: StatusInputs) -> bool:
    """Whether all init containers have succeeded and all sidecars have started."""
    return not uninitialized(pod, observed, inputs)


def uninitialized(pod: Pod, observed: ObservedPod, inputs: StatusInputs) -> list[str]:
    """Names of init containers that have not succeeded, and of sidecars that have not started."""
    if any(observed.latest(container.name) is not None for container in pod.spec.containers):
        return []
    names = []
    for container in pod.spec.init_containers:
        latest = observed.latest(container.name)
        if container.sidecar:
            done = latest is not None and latest.running and latest.id in inputs.started
        else:
            done = latest is not None and latest.exited and latest.exit_code == 0
        if not done:
            names.append(container.name)
    return names


def _ready(pod: Pod, container: Container, seen: ObservedContainer, inputs: StatusInputs) -> bool:
    if container in pod.spec.init_containers and not container.sidecar:
        return seen.exited and seen.exit_code == 0
    return seen.running and seen.id in inputs.ready


def _waiting_state(reason: str, message: str) -> State:
    return {"reason": reason, "message": message} if message else {"reason": reason}


def _time(nanoseconds: int) -> str | None:
    return rfc3339(nanoseconds / 1e9) if nanoseconds else None
