"""Timeouts, intervals and back-offs of pod workers, in seconds. A pair is the first and the longest pause."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLimits:
    crash_backoff: tuple[float, float] = (10.0, 300.0)
    """Between two starts of a container that exits again and again (CrashLoopBackOff)."""
    sandbox_backoff: tuple[float, float] = (1.0, 30.0)
    """Between two attempts to create a sandbox, unless an event lets it retry earlier; likewise for those below."""
    claim_backoff: tuple[float, float] = (1.0, 30.0)
    """Between two attempts to prepare or unprepare a pod's claims."""
    volume_backoff: tuple[float, float] = (2.0, 60.0)
    """Between two attempts to set up volumes."""
    device_retry: float = 10.0
    """Until a pod that waits for devices tries again."""
    start_retry: float = 5.0
    """Until a container start that failed for a transient cause is retried."""
    unreachable_retry: float = 0.5
    """Between two calls to an API server or a runtime that does not answer."""
    fault_retry: float = 5.0
    """Until a pod is synced again after an unexpected error; also the longest pause between attempts to end it."""
    orphan_retry: float = 1.0
    """Between two attempts to remove an orphaned pod."""
    run_sandbox: float = 240.0
    """For RunPodSandbox, which a CNI plugin may delay."""
    runtime_call: float = 120.0
    """For every other call to the runtime that changes something; StopContainer gets the grace period on top."""
    hand_over: float = 2.0
    """At least this long the end of a pod waits for calls in flight that create something for it."""
    forced_grace: int = 1
    """Grace period of a pod that was deleted from the API without waiting for this kubelet."""
    grace_after_hook: int = 2
    """At least this much of the grace period is left for SIGTERM, however long the preStop hook took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusLimits:
    """Limits of the status manager."""

    backoff: tuple[float, float] = (0.05, 5.0)
    starting_delay: float = 0.15
    """Until `ContainerCreating` is reported: most pods run by then, and that is reported at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeLimits:
    """Limits of the runtime cache, the health check of the runtime and its network checks."""

    call: float = 10.0
    """For a call that only reads."""
    relist: float = 1.0
    """Between two listings of a runtime that sends no events; with events, until it is listed after a pod's end."""
    audit: float = 60.0
    """Between two listings of a runtime that sends events: they are also a check that no event was lost."""
    after_action: float = 0.1
    """Until a pod is listed again after an action, with such a runtime: a container may have exited at once."""
    reconnect: tuple[float, float] = (0.1, 1.0)
    not_ready: tuple[float, float] = (0.25, 5.0)
    """Between two health checks of a runtime that is not ready."""
    ready: float = 30.0
    """Between two health checks of a runtime that is ready: it may stop being so without an event."""
