"""Rows of the core group's small kinds."""

from typing import Any

from podwire.kinds.tables.values import Json, Rows, age, condition, count, name, part, shown, text


def component_status(obj: Json, _now: float) -> list[Any]:
    healthy = condition(obj, "Healthy")
    told = "Unknown" if not healthy else "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name(obj), told, text(healthy, "message"), text(healthy, "error")]


def config_map(obj: Json, now: float) -> list[Any]:
    return [name(obj), count(obj, "data") + count(obj, "binaryData"), age(obj, now)]


def namespace(obj: Json, now: float) -> list[Any]:
    return [name(obj), text(part(obj, "status"), "phase"), age(obj, now)]


def resource_quota(obj: Json, now: float) -> list[Any]:
    hard, used = part(obj, "status", "hard"), part(obj, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        column = limits if resource.startswith("limits.") else requests
        column.append(f"{resource}: {shown(used, resource, '0')}/{shown(hard, resource, '0')}")
    return [name(obj), ", ".join(requests), ", ".join(limits), age(obj, now)]


def secret(obj: Json, now: float) -> list[Any]:
    return [name(obj), text(obj, "type"), count(obj, "data"), age(obj, now)]


def service_account(obj: Json, now: float) -> list[Any]:
    return [name(obj), age(obj, now)]


ROWS: Rows = {
    ("", "componentstatuses"): component_status,
    ("", "configmaps"): config_map,
    ("", "namespaces"): namespace,
    ("", "resourcequotas"): resource_quota,
    ("", "secrets"): secret,
    ("", "serviceaccounts"): service_account,
}
