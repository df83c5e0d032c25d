"""Evaluates one metric of an autoscaler: reads it, computes the replicas, and renders its status."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.controllers.autoscaling import replica_calculator as calculator
from podwire.controllers.autoscaling.metrics_client import MetricsClient
from podwire.controllers.autoscaling.replica_calculator import Calculated, Moment, NoReplicas, Pod, Tolerances
from podwire.objects import selectors
from podwire.objects.quantity import Format, Quantity
from podwire.objects.quantity import parse as parse_quantity

Spec = Mapping[str, Any]


class MetricError(Exception):
    """A metric that cannot be evaluated: the condition's reason and text, and the text in the sum of all errors."""

    def __init__(self, reason: str, cause: str, summed: str) -> None:
        super().__init__(summed)
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Proposal:
    replicas: int
    name: str
    """The metric in sentences."""
    status: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The scaled object, and its pods."""

    namespace: str
    selector: str
    spec_replicas: int
    status_replicas: int
    pods: Sequence[Pod]
    tolerances: Tolerances
    moment: Moment


class Sources:
    """`resource_of` returns the resource of an apiVersion and kind, for metrics of objects."""

    def __init__(self, client: MetricsClient, resource_of: Callable[[str, str], Awaitable[str]]) -> None:
        self._client = client
        self._resource_of = resource_of
        self._evaluators: Mapping[str, Callable[[Spec, Target], Awaitable[Proposal]]] = {
            "Resource": self._resource,
            "ContainerResource": self._container,
            "Pods": self._pods,
            "Object": self._object,
            "External": self._external,
        }

    async def evaluate(self, spec: Spec, target: Target) -> Proposal:
        """Raises MetricError."""
        type_ = spec.get("type", "")
        if type_ not in self._evaluators:
            text = f'unknown metric source type "{type_}"'
            raise MetricError("InvalidMetricSourceType", text, text)
        return await self._evaluators[type_](spec, target)

    async def _resource(self, spec: Spec, target: Target) -> Proposal:
        source = spec["resource"]
        name = source["name"]
        try:
            proposal, current = await self._usage(name, "", source["target"], target)
        except NoReplicas as error:
            raise MetricError(
                "FailedGetResourceMetric", str(error), f"failed to get {name} resource metric value: {error}"
            ) from error
        status = {"type": "Resource", "resource": {"name": name, "current": current}}
        described = "resource utilization (percentage of request)" if "averageUtilization" in current else "resource"
        return Proposal(proposal.replicas, f"{name} {described}", status)

    async def _container(self, spec: Spec, target: Target) -> Proposal:
        source = spec["containerResource"]
        name, container = source["name"], source["container"]
        try:
            proposal, current = await self._usage(name, container, source["target"], target)
        except NoReplicas as error:
            raise MetricError(
                "FailedGetContainerResourceMetric",
                str(error),
                f"failed to get {container} container metric value: {error}",
            ) from error
        row = {"name": name, "container": container, "current": current}
        utilization = "container resource utilization (percentage of request)"
        described = utilization if "averageUtilization" in current else "resource"
        return Proposal(
            proposal.replicas, f"{name} {described}", {"type": "ContainerResource", "containerResource": row}
        )

    async def _usage(
        self, name: str, container: str, wanted: Spec, target: Target
    ) -> tuple[Calculated, dict[str, Any]]:
        by_value = wanted.get("averageValue") is not None
        what = "usage" if by_value else "utilization"
        if not by_value and wanted.get("averageUtilization") is None:
            raise NoReplicas(
                "invalid resource metric source: neither an average utilization target nor an average value (usage) "
                "target was set"
            )
        try:
            try:
                metrics = await self._client.resource(name, target.namespace, target.selector, container)
            except NoReplicas as error:
                raise NoReplicas(f"unable to get metrics for resource {name}: {error}") from error
            if by_value:
                found = calculator.average_replicas(
                    target.spec_replicas, _milli(wanted["averageValue"]), name, target.pods, metrics,
                    target.tolerances, target.moment,
                )  # fmt: skip
                return found, {"averageValue": _shown(found.usage, name)}
            found = calculator.utilization_replicas(
                target.spec_replicas, wanted["averageUtilization"], name, container, target.pods, metrics,
                target.tolerances, target.moment,
            )  # fmt: skip
        except NoReplicas as error:
            raise NoReplicas(f"failed to get {name} {what}: {error}") from error
        return found, {"averageUtilization": found.utilization, "averageValue": _shown(found.usage, name)}

    async def _pods(self, spec: Spec, target: Target) -> Proposal:
        metric, wanted = spec["pods"]["metric"], spec["pods"]["target"]
        name = metric["name"]
        try:
            try:
                metrics = await self._client.pods(name, target.namespace, target.selector, _selector(metric))
            except NoReplicas as error:
                raise NoReplicas(f"unable to get metric {name}: {error}") from error
            average = _milli(wanted.get("averageValue") or "0") or 1
            found = calculator.average_replicas(
                target.spec_replicas, average, "", target.pods, metrics, target.tolerances, target.moment
            )
        except NoReplicas as error:
            raise MetricError("FailedGetPodsMetric", str(error), f"failed to get pods metric value: {error}") from error
        status = {"type": "Pods", "pods": {"metric": dict(metric), "current": {"averageValue": _shown(found.usage)}}}
        return Proposal(found.replicas, f"pods metric {name}", status)

    async def _object(self, spec: Spec, target: Target) -> Proposal:
        source = spec["object"]
        metric, wanted, described = source["metric"], source["target"], source["describedObject"]
        name, kind = metric["name"], described["kind"]
        try:
            resource = await self._resource_of(described.get("apiVersion", ""), kind)
            try:
                usage = await self._client.object(
                    name, target.namespace, resource, described["name"], _selector(metric)
                )
            except NoReplicas as error:
                where = f"{kind} {target.namespace}/{described['name']}"
                raise NoReplicas(f"unable to get metric {name}: {where} on {error}") from error
            found, current = _of_value(
                usage,
                wanted,
                target,
                "invalid object metric source: neither a value target nor an average value target was set",
            )
        except NoReplicas as error:
            raise MetricError(
                "FailedGetObjectMetric", str(error), f"failed to get object metric value: {error}"
            ) from error
        row = {"metric": dict(metric), "current": current, "describedObject": dict(described)}
        shown = f"{kind} metric {name}" if "value" in current else f"external metric {name}({_go(metric)})"
        return Proposal(found.replicas, shown, {"type": "Object", "object": row})

    async def _external(self, spec: Spec, target: Target) -> Proposal:
        metric, wanted = spec["external"]["metric"], spec["external"]["target"]
        name = metric["name"]
        try:
            try:
                usage = await self._client.external(name, target.namespace, _selector(metric))
            except NoReplicas as error:
                where = f"{target.namespace}/{name}/{_go(metric)}"
                raise NoReplicas(f"unable to get external metric {where}: {error}") from error
            found, current = _of_value(
                usage,
                wanted,
                target,
                "invalid external metric source: neither a value target nor an average value target was set",
            )
        except NoReplicas as error:
            raise MetricError(
                "FailedGetExternalMetric", str(error), f"failed to get {name} external metric value: {error}"
            ) from error
        row = {"metric": dict(metric), "current": current}
        return Proposal(found.replicas, f"external metric {name}({_go(metric)})", {"type": "External", "external": row})


def _of_value(usage: int, wanted: Spec, target: Target, neither: str) -> tuple[Calculated, dict[str, Any]]:
    if wanted.get("averageValue") is not None:
        found = calculator.per_pod_replicas(
            target.status_replicas, usage, _milli(wanted["averageValue"]), target.tolerances
        )
        return found, {"averageValue": _shown(found.usage)}
    if wanted.get("value") is None:
        raise NoReplicas(neither)
    found = calculator.value_replicas(
        target.spec_replicas, usage, _milli(wanted["value"]), target.pods, target.tolerances
    )
    return found, {"value": _shown(found.usage)}


def _milli(quantity: object) -> int:
    return parse_quantity(str(quantity)).milli()


def _shown(milli: int, resource: str = "") -> str:
    """Renders thousandths as a quantity; memory has binary suffixes, as metrics servers write it."""
    return Quantity(milli * 10**6, Format.BINARY_SI if resource == "memory" else Format.DECIMAL_SI).canonical()


def _selector(metric: Spec) -> str:
    if not metric.get("selector"):
        return ""
    try:
        return str(selectors.from_object(metric["selector"]))
    except ValueError as error:
        raise NoReplicas(str(error)) from error


def _go(metric: Spec) -> str:
    """Returns a selector as Go prints a pointer to one."""
    selector = metric.get("selector")
    if not selector:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{row['key']},Operator:{row['operator']},"
        f"Values:[{' '.join(row.get('values') or ())}],}},"
        for row in selector.get("matchExpressions") or ()
    )
    rest = f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},"
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},{rest}}}"
