"""How a simulated container behaves, by annotations of its pod. Pure.

`hollow.podwire.dev/KEY` is for all containers of a pod except init containers, which exit at once and succeed;
`hollow.podwire.dev/KEY.CONTAINER` is for one of them, of any kind.
"""

from dataclasses import dataclass

from podwire.objects.containers import Container
from podwire.objects.pods import Pod

PREFIX = "hollow.podwire.dev/"
START_SECONDS, RUN_SECONDS, STOP_SECONDS = "start-seconds", "run-seconds", "stop-seconds"
EXIT_CODE, MESSAGE, START_ERROR, FAILING_PROBES, PREPARE_ERROR = (
    "exit-code", "message", "start-error", "failing-probes", "prepare-error",
)  # fmt: skip

JOB_SECONDS = 1.0
"""A container of a Job runs this long."""
KILLED, TERMINATED = 137, 143


class BadAnnotation(ValueError):
    """The message names the annotation, its value and what it must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    start_seconds: float = 0.0
    """Until the container runs, as if its image was pulled."""
    run_seconds: float | None = None
    """Until the container exits by itself; None: never."""
    stop_seconds: float = 0.0
    """From SIGTERM until the container exits."""
    exit_code: int = 0
    message: str = ""
    """Its termination message."""
    start_error: str = ""
    """Why the container cannot be created."""


def behaviour(pod: Pod, container: Container) -> Behaviour:
    """Raises BadAnnotation."""
    run_seconds = _seconds(pod, container, RUN_SECONDS)
    if run_seconds is None and container in pod.spec.init_containers and not container.sidecar:
        run_seconds = 0.0
    if run_seconds is None and any(owner.kind == "Job" for owner in pod.metadata.owner_references):
        run_seconds = JOB_SECONDS
    code = _value(pod, container, EXIT_CODE)
    if code and (not code.isascii() or not code.isdecimal() or int(code) > 255):
        raise BadAnnotation(f"annotation {PREFIX}{EXIT_CODE}: {code!r} must be a number from 0 to 255")
    return Behaviour(
        start_seconds=_seconds(pod, container, START_SECONDS) or 0.0,
        run_seconds=run_seconds,
        stop_seconds=_seconds(pod, container, STOP_SECONDS) or 0.0,
        exit_code=int(code or "0"),
        message=_value(pod, container, MESSAGE),
        start_error=_value(pod, container, START_ERROR),
    )


def failing_probes(pod: Pod, container: Container) -> frozenset[str]:
    """Returns the probes that fail: `startup`, `liveness`, `readiness`."""
    names = _value(pod, container, FAILING_PROBES).lower().split(",")
    return frozenset(name.strip() for name in names) - {""}


def prepare_error(pod: Pod) -> str:
    """Returns why the claims of a pod cannot be prepared; empty if they can."""
    return pod.metadata.annotations.get(PREFIX + PREPARE_ERROR, "")


def _value(pod: Pod, container: Container, key: str) -> str:
    annotations = pod.metadata.annotations
    plain_init = container in pod.spec.init_containers and not container.sidecar
    return annotations.get(f"{PREFIX}{key}.{container.name}", "" if plain_init else annotations.get(PREFIX + key, ""))


def _seconds(pod: Pod, container: Container, key: str) -> float | None:
    text = _value(pod, container, key)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise BadAnnotation(f"annotation {PREFIX}{key}: {text!r} must be a number of seconds")
    return seconds
