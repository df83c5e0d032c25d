"""Failures of a Job's pods: which pods failed, when, what the pod failure policy says, and the back-off. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.objects.times import parse
from podwire.protocols.k8sapi.watch import Object

FINALIZER = "batch.kubernetes.io/job-tracking"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
_LARGEST = 2**31 - 1


def phase(pod: Object) -> str:
    return (pod.get("status") or {}).get("phase") or ""


def is_tracked(pod: Object) -> bool:
    """Returns whether the pod has the finalizer, that is: it is not counted yet."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def is_deleting(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_active(pod: Object) -> bool:
    return phase(pod) not in ("Succeeded", "Failed") and not is_deleting(pod)


def is_terminating(pod: Object) -> bool:
    return phase(pod) not in ("Succeeded", "Failed") and is_deleting(pod)


def condition(pod: Object, type_: str) -> Mapping[str, Any]:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((row for row in conditions if row.get("type") == type_), {})


def is_ready(pod: Object) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def only_replaces_failed(spec: Mapping[str, Any]) -> bool:
    return spec.get("podReplacementPolicy") == "Failed"


def is_failed(pod: Object, spec: Mapping[str, Any]) -> bool:
    """Returns whether a pod counts as failed. A deleted one does at once, unless the Job only replaces failed pods."""
    if phase(pod) == "Failed":
        return True
    return not only_replaces_failed(spec) and is_deleting(pod) and phase(pod) != "Succeeded"


def _number(pod: Object, annotation: str) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    number = int(text)
    return number if number <= _LARGEST else None


def completion_index(pod: Object) -> int | None:
    return _number(pod, COMPLETION_INDEX)


def failure_counts(pod: Object) -> tuple[int, int]:
    """Returns the counted and the ignored failures of the pods that this one replaced."""
    return _number(pod, FAILURE_COUNT) or 0, _number(pod, IGNORED_FAILURE_COUNT) or 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a pod failure policy about one failed pod."""

    action: str = ""
    """Empty when no rule matches."""
    message: str = ""
    """The reason for which the whole Job fails; empty when it does not."""

    @property
    def counts(self) -> bool:
        return self.action != "Ignore"


def policy_verdict(policy: Mapping[str, Any] | None, pod: Object) -> Verdict:
    """Returns the verdict of the first rule that matches."""
    status, meta = pod.get("status") or {}, pod["metadata"]
    pod_ref = f"{meta.get('namespace', '')}/{meta['name']}"
    for place, rule in enumerate((policy or {}).get("rules") or ()):
        action = rule.get("action", "")
        if (wanted := rule.get("onExitCodes")) is not None:
            container = _failed_container(status, wanted)
            if container is not None:
                code = container["state"]["terminated"].get("exitCode", 0)
                message = (
                    f"Container {container.get('name', '')} for pod {pod_ref} failed with exit code {code} "
                    f"matching {action} rule at index {place}"
                )
                return Verdict(action, message if action == "FailJob" else "")
        elif rule.get("onPodConditions"):
            type_ = _matching_condition(status, rule["onPodConditions"])
            if type_ is not None:
                message = f"Pod {pod_ref} has condition {type_} matching {action} rule at index {place}"
                return Verdict(action, message if action == "FailJob" else "")
    return Verdict()


def _failed_container(status: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        terminated = (container.get("state") or {}).get("terminated")
        if terminated is None or wanted.get("containerName") not in (None, container.get("name")):
            continue
        code, listed = terminated.get("exitCode", 0), wanted.get("values") or ()
        if code != 0 and (code in listed) is (wanted.get("operator") == "In"):
            found: Mapping[str, Any] = container
            return found
    return None


def _matching_condition(status: Mapping[str, Any], patterns: Sequence[Mapping[str, Any]]) -> str | None:
    wanted = {(pattern.get("type"), pattern.get("status") or "True") for pattern in patterns}
    for row in status.get("conditions") or ():
        if (row.get("type"), row.get("status")) in wanted:
            return str(row["type"])
    return None


def finish_time(pod: Object) -> float:
    """Returns when a pod ended: its last container, or when it became unready, was deleted, or at least was created."""
    if (ended := _containers_ended(pod)) is not None:
        return ended
    ready, meta = condition(pod, "Ready"), pod["metadata"]
    if ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return parse(ready["lastTransitionTime"])
    if meta.get("deletionTimestamp"):
        return parse(meta["deletionTimestamp"]) - (meta.get("deletionGracePeriodSeconds") or 0)
    return parse(meta["creationTimestamp"]) if meta.get("creationTimestamp") else 0.0


def _containers_ended(pod: Object) -> float | None:
    """Returns the end of the last container; sidecars are containers that end after the others."""
    status = pod.get("status") or {}
    sidecars = {
        container["name"]
        for container in (pod.get("spec") or {}).get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    statuses = [
        *(status.get("containerStatuses") or ()),
        *(row for row in status.get("initContainerStatuses") or () if row.get("name") in sidecars),
    ]
    ends = [((row.get("state") or {}).get("terminated") or {}).get("finishedAt") for row in statuses]
    return max(parse(str(end)) for end in ends) if ends and all(ends) else None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures in a row, and when the last of them happened."""

    failures: int = 0
    last: float = 0.0

    def after(self, succeeded: Sequence[Object], failed: Sequence[Object]) -> "Backoff":
        """Returns the back-off after these pods have finished: a success resets it."""
        ends = sorted(map(finish_time, failed))
        if not succeeded:
            return Backoff(self.failures + len(ends), ends[-1]) if ends else self
        last_success = max(map(finish_time, succeeded))
        later = [end for end in ends if end > last_success]
        return Backoff(len(later), later[-1] if later else 0.0)

    def remaining(self, now: float, initial: float, longest: float) -> float:
        """Returns the seconds until the next pod may be created: the initial pause, doubled with each failure."""
        if not self.failures:
            return 0.0
        pause: float = min(longest, initial * 2 ** min(self.failures - 1, 30))
        return max(0.0, self.last + pause - now)


def index_backoff(pod: Object | None) -> Backoff:
    """Returns the back-off of an index whose last pod failed."""
    return Backoff() if pod is None else Backoff(sum(failure_counts(pod)) + 1, finish_time(pod))
