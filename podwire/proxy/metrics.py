"""Prometheus metrics of the proxy, under the names of kube-proxy's. Both address families are synced together."""

from podwire.protocols.prometheus import Metrics

_SYNC = tuple(0.001 * 2**exponent for exponent in range(15))
_PROGRAMMING = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))
FAMILIES = "IPv4,IPv6"


class ProxyMetrics:
    """Counts and timings of the proxy; `metrics` writes them as text."""

    def __init__(self) -> None:
        self.metrics = metrics = Metrics()
        prefix = "kubeproxy"
        self.sync = metrics.histograms(
            f"{prefix}_sync_proxy_rules_duration_seconds",
            "SyncProxyRules latency in seconds",
            "ip_family",
            bounds=_SYNC,
        )
        self.full = metrics.histograms(
            f"{prefix}_sync_full_proxy_rules_duration_seconds",
            "SyncProxyRules latency in seconds for full resyncs",
            "ip_family",
            bounds=_SYNC,
        )
        self.partial = metrics.histograms(
            f"{prefix}_sync_partial_proxy_rules_duration_seconds",
            "SyncProxyRules latency in seconds for partial resyncs",
            "ip_family",
            bounds=_SYNC,
        )
        self.programming = metrics.histograms(
            f"{prefix}_network_programming_duration_seconds",
            "In Cluster Network Programming Latency in seconds",
            "ip_family",
            bounds=_PROGRAMMING,
        )
        self.last = metrics.gauge(
            f"{prefix}_sync_proxy_rules_last_timestamp_seconds",
            "The last time proxy rules were successfully synced",
            "ip_family",
        )
        self.queued = metrics.gauge(
            f"{prefix}_sync_proxy_rules_last_queued_timestamp_seconds",
            "The last time a sync of proxy rules was queued",
            "ip_family",
        )
        self.failures = metrics.counter(
            f"{prefix}_sync_proxy_rules_nftables_sync_failures_total",
            "Cumulative proxy nftables sync failures",
            "ip_family",
        )
        self.endpoint_changes = metrics.counter(
            f"{prefix}_sync_proxy_rules_endpoint_changes_total", "Cumulative proxy rules Endpoint changes"
        )
        self.service_changes = metrics.counter(
            f"{prefix}_sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes"
        )
        self.no_local = metrics.gauge(
            f"{prefix}_sync_proxy_rules_no_local_endpoints_total",
            "Number of services with a Local traffic policy and no endpoints",
            "ip_family",
            "traffic_policy",
        )
        self.deleted_flows = metrics.counter(
            f"{prefix}_conntrack_reconciler_deleted_entries_total",
            "Cumulative conntrack flows deleted by conntrack reconciler",
            "ip_family",
        )
        self.healthz = metrics.counter(f"{prefix}_proxy_healthz_total", "Cumulative proxy healthz HTTP status", "code")
        self.livez = metrics.counter(f"{prefix}_proxy_livez_total", "Cumulative proxy livez HTTP status", "code")
