"""Reads the three metrics APIs: of resources, of objects (custom) and of things outside the cluster (external).

Values are thousandths of a unit. Errors have upstream's words, since they end in conditions and events.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from podwire.controllers.autoscaling.replica_calculator import NoReplicas, PodMetric
from podwire.objects.quantity import parse as parse_quantity
from podwire.objects.times import parse as parse_time
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.status import ApiError

RESOURCE, CUSTOM, EXTERNAL = "metrics.k8s.io/v1beta1", "custom.metrics.k8s.io", "external.metrics.k8s.io/v1beta1"
CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
DEFAULT_WINDOW = 60.0
"""Seconds; of a custom metric that does not say."""
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class MetricsClient:
    def __init__(self, api: Client) -> None:
        self._api = api

    async def resource(self, resource: str, namespace: str, selector: str, container: str) -> dict[str, PodMetric]:
        """Returns the usage by pods, or of one container of them. Raises NoReplicas."""
        path = f"/apis/{RESOURCE}/namespaces/{quote(namespace)}/pods"
        query = {"labelSelector": selector}
        items = await self._items(path, query, "resource metrics API", "pods.metrics.k8s.io")
        found = {}
        for item in items:
            usages = [row for row in item.get("containers") or () if container in ("", row.get("name"))]
            values = [(row.get("usage") or {}).get(resource) for row in usages]
            if usages and None not in values:
                total = sum(_milli(value) for value in values)
                found[item["metadata"]["name"]] = PodMetric(
                    total, parse_time(item["timestamp"]), seconds_of(item.get("window", ""))
                )
        return found

    async def pods(self, name: str, namespace: str, selector: str, metric_selector: str) -> dict[str, PodMetric]:
        """Returns a custom metric of pods. Raises NoReplicas."""
        query = {"labelSelector": selector} | ({"metricLabelSelector": metric_selector} if metric_selector else {})
        items = await self._custom(f"namespaces/{quote(namespace)}/pods/*/{quote(name, safe='')}", query)
        return {
            item["describedObject"]["name"]: PodMetric(
                _milli(item["value"]),
                parse_time(item["timestamp"]),
                float(item["windowSeconds"]) if item.get("windowSeconds") is not None else DEFAULT_WINDOW,
            )
            for item in items
        }

    async def object(self, name: str, namespace: str, resource: str, target: str, metric_selector: str) -> int:
        """Returns a custom metric of one object; of a namespace, of the autoscaler's own. Raises NoReplicas."""
        query = {"metricLabelSelector": metric_selector} if metric_selector else {}
        if resource == "namespaces":
            path = f"namespaces/{quote(namespace)}/metrics/{quote(name, safe='')}"
        else:
            path = f"namespaces/{quote(namespace)}/{quote(resource)}/{quote(target)}/{quote(name, safe='')}"
        return _milli((await self._custom(path, query))[0]["value"])

    async def external(self, name: str, namespace: str, metric_selector: str) -> int:
        """Returns the sum of an external metric. Raises NoReplicas."""
        query = {"labelSelector": metric_selector} if metric_selector else {}
        path = f"/apis/{EXTERNAL}/namespaces/{quote(namespace)}/{quote(name, safe='')}"
        items = await self._items(path, query, "external metrics API", f"{name}.external.metrics.k8s.io")
        return min(2**63 - 1, sum(_milli(item["value"]) for item in items))

    async def _custom(self, path: str, query: Mapping[str, str]) -> Sequence[dict[str, Any]]:
        try:
            group = await self._read(f"/apis/{CUSTOM}")
        except ApiError as error:
            if error.code != 404:
                raise NoReplicas(f"unable to fetch metrics from custom metrics API: {error.message}") from error
            group = {}
        served = {row.get("version") for row in group.get("versions") or ()}
        version = next((version for version in CUSTOM_VERSIONS if version in served), None)
        if version is None:
            raise NoReplicas(
                "unable to fetch metrics from custom metrics API: no known available metric versions found"
            )
        path = f"/apis/{CUSTOM}/{version}/{path}"
        return await self._items(path, query, "custom metrics API", "custom.metrics.k8s.io")

    async def _items(self, path: str, query: Mapping[str, str], what: str, resource: str) -> Sequence[dict[str, Any]]:
        try:
            items: Sequence[dict[str, Any]] = (await self._read(path, query)).get("items") or ()
        except ApiError as error:
            text = error.message
            if error.code == 404 and "page not found" in text:
                text = f"the server could not find the requested resource (get {resource})"
            raise NoReplicas(f"unable to fetch metrics from {what}: {text}") from error
        except ClientError as error:
            raise NoReplicas(f"unable to fetch metrics from {what}: {error}") from error
        if not items:
            raise NoReplicas(f"no metrics returned from {what}")
        return items

    async def _read(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        try:
            answer = msgspec.json.decode(await self._api.raw(path, query=tuple((query or {}).items())))
        except msgspec.DecodeError as error:
            raise NoReplicas(f"the answer to GET {path} is not JSON: {error}") from error
        return answer if isinstance(answer, dict) else {}


def seconds_of(duration: str) -> float:
    """Returns the seconds of a Go duration such as 1m30.5s."""
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(duration))


def _milli(value: object) -> int:
    try:
        return parse_quantity(str(value)).milli()
    except ValueError as error:
        raise NoReplicas(f"invalid quantity {value!r} in a metric: {error}") from error
