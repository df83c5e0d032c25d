"""Finds the container or sandbox of a request, or the reason why there is none. Pure."""

from collections.abc import Mapping
from typing import Any

from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request

Status = Mapping[str, Any]
"""A containerStatus of the API."""

_PULLING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


def require_container(pod: Pod, name: str) -> None:
    if all(container.name != name for container in pod.spec.every_container):
        raise ApiError(Reason.NOT_FOUND, f'container "{name}" not found in pod "{pod.name}"')


def to_read(pod: Pod, observed: ObservedPod, name: str, status: Status, *, previous: bool) -> ObservedContainer:
    """The instance of a container whose log is requested. Raises ApiError with the messages of the stock kubelet.

    While a container waits for its restart, its last instance is both the current and the previous one.
    """
    require_container(pod, name)
    began = [container for container in observed.history(name) if container.state != pb.CONTAINER_CREATED]
    waiting = status.get("state", {}).get("waiting")
    if previous:
        ended = [container for container in (began if waiting else began[1:]) if container.exited]
        if not ended:
            raise bad_request(f'previous terminated container "{name}" in pod "{pod.name}" not found')
        return ended[0]
    if began:
        return began[0]
    raise bad_request(f'container "{name}" in pod "{pod.name}" is waiting to start: {_reason(pod, name, waiting)}')


def _reason(pod: Pod, name: str, waiting: Mapping[str, str] | None) -> str:
    if waiting and (reason := waiting.get("reason")):
        return _PULLING.get(reason, reason)
    starts_first = any(container.name == name for container in pod.spec.init_containers)
    return "PodInitializing" if pod.spec.init_containers and not starts_first else "ContainerCreating"


def to_enter(pod: Pod, observed: ObservedPod, name: str) -> ObservedContainer:
    """The container for exec or attach. Raises ApiError."""
    require_container(pod, name)
    latest = observed.latest(name)
    if latest is None or latest.state == pb.CONTAINER_CREATED:
        raise ApiError(Reason.INTERNAL_ERROR, f'container not found ("{name}")')
    if not latest.running:
        raise ApiError(Reason.INTERNAL_ERROR, f'cannot exec in a stopped container: "{name}" has ended')
    return latest


def to_reach(pod: Pod, observed: ObservedPod) -> str:
    """The id of the sandbox for port-forward. Raises ApiError."""
    sandbox = observed.sandbox
    if sandbox is None or not sandbox.ready:
        raise bad_request(f'unable to forward port because pod "{pod.name}" is not running')
    return sandbox.id


def status_of(pod: Mapping[str, Any], name: str) -> Status:
    """A container's status in a pod's object; empty when there is none yet."""
    pod_status = pod.get("status", {})
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for status in pod_status.get(kind) or ():
            if status.get("name") == name:
                return dict(status)
    return {}
