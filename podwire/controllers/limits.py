"""Limits of the controllers: times and numbers that an operator or a test may change. The numbers are upstream's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, where not said otherwise."""

    event_ttl: float = 3600.0
    """An event is deleted this long after it last happened."""
    heartbeat_grace: float = 40.0
    """A node without a heartbeat for this long is unresponsive: four renewals of its lease."""
    max_latency: float = 5.0
    """A slower answer of the API indicates an outage, during which heartbeats could not arrive."""
    node_eviction_rate: float = 0.1
    """Nodes of a zone per second that get a NoExecute taint after they stopped answering."""
    secondary_eviction_rate: float = 0.01
    """The same in a large zone of which many nodes fail at once."""
    large_zone: int = 50
    """A zone with more nodes is large; in others no node is tainted while many fail at once."""
    unhealthy_zone: float = 0.55
    """The part of a zone's nodes from which on many fail at once."""
    pod_gc_period: float = 20.0
    """From a change to the sweep that handles it together with later changes."""
    node_grace: float = 40.0
    """A node must have been absent for this long before its pods are deleted."""
    finished_pods: int = 12500
    """How many finished pods are kept."""
    taint_rule_status_period: float = 10.0
    """Between two updates of a DeviceTaintRule's status."""
    quota_delay: float = 0.2
    """From a deletion in a namespace with a quota to the recalculation; deletions in this time share it."""
    quota_settle: float = 1.0
    """The same for objects that are created or updated, and for the quota itself: the API server has charged them."""
    quota_resync: float = 300.0
    """A quota is recalculated at least this often."""
    job_backoff: float = 10.0
    """From the first failure of a Job's pod to its replacement; doubled with each further failure in a row."""
    job_max_backoff: float = 600.0
    """The longest pause between two pods of a Job."""
    job_batch: float = 1.0
    """The changes of a Job with many pods are handled together in this time."""
    endpoints_batch: float = 0.1
    """The changes of a Service with many pods are handled together in this time."""
    budgets_batch: float = 0.05
    """The changes of a disruption budget's pods are handled together in this time."""
    autoscaler_period: float = 15.0
    """Between two evaluations of a HorizontalPodAutoscaler's metrics."""
    autoscaler_down_window: float = 300.0
    """Replicas go down to the highest recommendation in this time, unless the autoscaler says otherwise."""
    autoscaler_tolerance: float = 0.1
    """The part of its target by which a metric may differ without any change."""
    autoscaler_cpu_initialization: float = 300.0
    """After its start, the CPU usage of a pod counts only while it is ready."""
    autoscaler_initial_readiness: float = 30.0
    """A pod that was never ready after this time is still starting."""
    cidr_deletion_grace: float = 10.0
    """From the deletion of a ServiceCIDR to its end: by then every API server has stopped giving its addresses."""
    attach_timeout: float = 120.0
    """A volume that is not attached after this time is reported at its pods, and again after each further period."""
    kinds_announced_after: float = 1.0
    """A server announces a new kind after this time at the latest."""


DEFAULT = Limits()
