"""Metrics of the scheduler, by upstream's names."""

from collections.abc import Iterator

from podwire.protocols.prometheus import Labels, Metrics, family
from podwire.scheduler.queue import PodQueue

BOUNDS = tuple(0.001 * 2**step for step in range(15))
ATTEMPTS = (1.0, 2.0, 4.0, 8.0, 16.0)
VICTIMS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class SchedulerMetrics:
    def __init__(self, metrics: Metrics, queue: PodQueue) -> None:
        self._attempts = metrics.counter(
            "scheduler_schedule_attempts_total", "Attempts to schedule pods", "profile", "result"
        )
        self._seconds = metrics.histograms(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of an attempt: the decision, and the binding",
            "profile",
            "result",
            bounds=BOUNDS,
        )
        self._decision = metrics.histograms(
            "scheduler_scheduling_algorithm_duration_seconds", "Time of a decision", bounds=BOUNDS
        )
        self._preemptions = metrics.counter("scheduler_preemption_attempts_total", "Preemptions")
        self._victims = metrics.histograms(
            "scheduler_preemption_victims", "Pods that one preemption evicts", bounds=VICTIMS
        )
        self._queue = queue
        metrics.collect(self._pending)

    def decided(self, seconds: float) -> None:
        self._decision.observe(seconds)

    def attempted(self, profile: str, result: str, seconds: float) -> None:
        """Counts an attempt that ended: `scheduled`, `unschedulable` or `error`."""
        self._attempts.inc(profile, result)
        self._seconds.observe(seconds, profile, result)

    def preempted(self, victims: int) -> None:
        self._preemptions.inc()
        self._victims.observe(victims)

    def _pending(self) -> Iterator[str]:
        rows: list[tuple[Labels, float]] = [
            ((("queue", queue),), count) for queue, count in self._queue.counts().items()
        ]
        return family("scheduler_pending_pods", "Pods that wait, by queue", rows)
