"""Timeouts, intervals and sizes of the runtime side of CNI. Times are seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CniLimits:
    """All of it, with the defaults; tests pass their own."""

    # One call of a plugin
    plugin: float = 60.0
    """After this time a plugin is killed."""
    output: int = 1 << 20
    """Bytes of stdout and stderr together; a plugin that writes more is killed."""
    kill: float = 10.0
    """From SIGKILL to the end of a plugin's process."""
    busy: float = 5.0
    """Wait for a program that is being written at this moment (ETXTBSY)."""
    concurrent_pods: int = 16
    """Pods for which plugins run at the same time; others wait. Each has a thread, which stays."""

    # Reconciler
    first_pause: float = 1.0
    """Between the first failed attempt and the second; the pause doubles with each failure."""
    longest_del_pause: float = 300.0
    longest_status_pause: float = 30.0
    gc_interval: float = 3600.0
    gc_pause: float = 60.0
    """Between two GCs, the second of which is because STATUS began to fail."""
    first_status: float = 2.0
    """The start of the runtime waits this long for the first answer of STATUS."""
    config_debounce: float = 0.2
    """Time without a change after which configurations and plugins are read again: files come in several steps."""

    # CHECK
    concurrent_checks: int = 4
    first_check: float = 1.0
    """After a pod was attached. An earlier check would slow its start."""
    after_restart: float = 10.0
    """Within this time all pods are checked that were attached before the runtime was restarted."""
    quiet: float = 1.0
    """Time without an ADD before a pod is checked of which nothing changed."""
    patience: float = 30.0
    """The longest time that such a check waits for quiet."""
    confirm: float = 1.0
    """Between a failed check and the one that gives up the pod's network."""
    gap: float = 0.5
    """Between two checks because of changes; doubles after each check that found nothing new."""
    calm: float = 10.0
    """Time without a check after which the doubled gap is reset."""
    netlink_debounce: float = 0.2
    """From the first event of a change until all events are read."""
