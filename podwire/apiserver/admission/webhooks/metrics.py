"""Metrics of webhooks, by upstream's names."""

from podwire.protocols.prometheus import Metrics

BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0)
MOST_CODE = 600
"""Codes above are counted as this one."""


class WebhookMetrics:
    """Counts calls, refusals and failures; `type` is `admit` or `validating`."""

    def __init__(self, metrics: Metrics) -> None:
        prefix = "apiserver_admission"
        self._seconds = metrics.histograms(
            f"{prefix}_webhook_admission_duration_seconds",
            "Time that webhooks take",
            "name", "type", "operation", "rejected",
            bounds=BOUNDS,
        )  # fmt: skip
        self._requests = metrics.counter(
            f"{prefix}_webhook_request_total",
            "Calls of webhooks by their HTTP code",
            "name", "type", "operation", "code", "rejected",
        )  # fmt: skip
        self._rejections = metrics.counter(
            f"{prefix}_webhook_rejection_count",
            "Requests that were refused by a webhook, or because it failed",
            "name", "type", "operation", "error_type", "rejection_code",
        )  # fmt: skip
        self._failed_open = metrics.counter(
            f"{prefix}_webhook_fail_open_count",
            "Requests that were admitted although a webhook failed",
            "name", "type",
        )  # fmt: skip
        self._exclusions = metrics.counter(
            f"{prefix}_match_condition_exclusions_total",
            "Requests that match conditions kept from a webhook",
            "name", "kind", "type", "operation",
        )  # fmt: skip

    def called(self, name: str, type_: str, operation: str, seconds: float, code: int, *, rejected: bool) -> None:
        word = "true" if rejected else "false"
        self._seconds.observe(seconds, name, type_, operation, word)
        self._requests.inc(name, type_, operation, str(min(code, MOST_CODE)), word)

    def rejected(self, name: str, type_: str, operation: str, error_type: str, code: int) -> None:
        self._rejections.inc(name, type_, operation, error_type, str(min(code, MOST_CODE)))

    def failed_open(self, name: str, type_: str) -> None:
        self._failed_open.inc(name, type_)

    def excluded(self, name: str, type_: str, operation: str) -> None:
        self._exclusions.inc(name, "webhook", type_, operation)
